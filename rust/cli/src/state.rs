//! `frazil state`: what the tables know of a connector's offsets, and how to change it.

use std::io::Write;

use frazil_core::commit::location::StoredIn;
use frazil_core::commit::state::WriterState;
use frazil_core::offsets::TopicPartition;
use frazil_engine::admin::{Admin, Repair, TableState};

use crate::settings::read_settings;

#[derive(Default)]
struct Arguments {
    config: String,
    table: Option<String>,
    offsets: Vec<(TopicPartition, Option<i64>)>,
    all: bool,
    discard: bool,
}

/// Runs the command; `true` when nothing is wrong with the tables.
pub(crate) fn run(mut parser: lexopt::Parser) -> Result<bool, String> {
    use lexopt::prelude::ValueExt;
    let command = match parser.next().map_err(|error| error.to_string())? {
        Some(lexopt::Arg::Value(word)) => word.string().map_err(|error| error.to_string())?,
        _ => return Err("say `show`, `repair` or `reset`".to_owned()),
    };
    let arguments = parse(parser).map_err(|error| error.to_string())?;
    if !matches!(command.as_str(), "show" | "repair" | "reset") {
        return Err(format!("`{command}` is not `show`, `repair` or `reset`"));
    }
    if command == "reset" && arguments.all != arguments.offsets.is_empty() {
        return Err(
            "say which offsets: `--offsets TOPIC:PARTITION=OFFSET`, or `--all` for every partition"
                .to_owned(),
        );
    }
    let settings = read_settings(&arguments.config)?;
    let admin = Admin::open(&settings).map_err(|error| error.report())?;
    let mut out = std::io::stdout().lock();
    match command.as_str() {
        "show" => show(&admin, &arguments, &mut out),
        "repair" => repair(&admin, &arguments, &mut out),
        _ => reset(&admin, arguments, &mut out),
    }
}

fn parse(mut parser: lexopt::Parser) -> Result<Arguments, lexopt::Error> {
    use lexopt::prelude::{Long, ValueExt};
    let mut arguments = Arguments::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("config") => arguments.config = parser.value()?.string()?,
            Long("table") => arguments.table = Some(parser.value()?.string()?),
            Long("all") => arguments.all = true,
            Long("discard") => arguments.discard = true,
            Long("offsets") => {
                let text = parser.value()?.string()?;
                for item in text.split(',') {
                    arguments.offsets.push(parse_offset(item).ok_or_else(|| {
                        format!(
                            "`{item}` is not TOPIC:PARTITION=OFFSET, where OFFSET may be `none`"
                        )
                    })?);
                }
            }
            _ => return Err(argument.unexpected()),
        }
    }
    if arguments.config.is_empty() {
        return Err("--config is missing".into());
    }
    Ok(arguments)
}

fn parse_offset(text: &str) -> Option<(TopicPartition, Option<i64>)> {
    let (place, offset) = text.rsplit_once('=')?;
    let (topic, partition) = place.rsplit_once(':')?;
    let offset = match offset {
        "none" => None,
        number => Some(number.parse().ok()?),
    };
    Some((TopicPartition::new(topic, partition.parse().ok()?), offset))
}

fn show(admin: &Admin, arguments: &Arguments, out: &mut impl Write) -> Result<bool, String> {
    let states = admin.states().map_err(|error| error.report())?;
    let mut sound = true;
    for state in &states {
        if arguments
            .table
            .as_ref()
            .is_none_or(|name| *name == state.name)
        {
            sound &= show_table(state, out).map_err(|error| error.to_string())?;
        }
    }
    Ok(sound)
}

fn show_table(table: &TableState, out: &mut impl Write) -> std::io::Result<bool> {
    writeln!(out, "{} branch {}", table.name, table.branch)?;
    let (stored, effective, anchor) = match (&table.stored, &table.effective, &table.anchor) {
        (Ok(stored), Ok(effective), Ok(anchor)) => (stored, effective, anchor),
        (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => {
            writeln!(out, "  {}", error.report())?;
            return Ok(false);
        }
    };
    match stored {
        None => writeln!(out, "  no commit of this connector")?,
        Some(state) => writeln!(
            out,
            "  last commit {} of epoch {}, snapshot {}, at {} ms, by connector `{}` on `{}`, kept in {}",
            state.commit_id,
            state.epoch,
            state.snapshot_id,
            state.committed_ms,
            state.connector,
            state.hub_id,
            match state.stored_in {
                StoredIn::Property => "a table property",
                StoredIn::Summary => "the summary of that snapshot",
                StoredIn::Nowhere => "no place of its own: put together from the snapshots",
            }
        )?,
    }
    for (epoch, at_ms) in anchor.resets() {
        writeln!(
            out,
            "  offsets reset at {at_ms} ms, which began epoch {epoch}"
        )?;
    }
    let bound = |state: &Option<WriterState>, partition: &TopicPartition| {
        state.as_ref().and_then(|state| state.bound(partition))
    };
    for (partition, next) in stored.iter().flat_map(WriterState::bounds) {
        match bound(effective, &partition) {
            Some(counts) if counts == next => writeln!(out, "  {partition}: next offset {next}")?,
            Some(counts) => writeln!(
                out,
                "  {partition}: next offset {counts} after a reset, was {next}"
            )?,
            None => writeln!(
                out,
                "  {partition}: from the beginning after a reset, was {next}"
            )?,
        }
    }
    Ok(true)
}

fn repair(admin: &Admin, arguments: &Arguments, out: &mut impl Write) -> Result<bool, String> {
    let report = |error: frazil_core::SinkError| error.report();
    admin.epoch().map_err(report)?;
    let states = admin.states().map_err(report)?;
    let mut sound = true;
    for state in states {
        if arguments
            .table
            .as_ref()
            .is_some_and(|name| *name != state.name)
        {
            continue;
        }
        let outcome = match admin.repair(&state.name, arguments.discard) {
            Ok(Repair::Sound) => "nothing to repair".to_owned(),
            Ok(Repair::Rebuilt) => "written anew from the snapshots".to_owned(),
            Ok(Repair::Discarded) => {
                "discarded; every partition is read again once the connector starts".to_owned()
            }
            Err(error) => {
                sound = false;
                error.report()
            }
        };
        writeln!(out, "{}: {outcome}", state.name).map_err(|error| error.to_string())?;
    }
    Ok(sound)
}

fn reset(admin: &Admin, arguments: Arguments, out: &mut impl Write) -> Result<bool, String> {
    let epoch = admin
        .reset(arguments.offsets)
        .map_err(|error| error.report())?;
    writeln!(
        out,
        "the tables took the reset, epoch {epoch}; now reset the offsets of the consumer group to the same \
         places while the connector is stopped, and start the connector"
    )
    .map_err(|error| error.to_string())?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_as_written() {
        let read = |text: &str| parse_offset(text).map(|(p, offset)| (p.to_string(), offset));
        assert_eq!(read("a:b:3=17"), Some(("a:b-3".into(), Some(17))));
        assert_eq!(read("orders:0=none"), Some(("orders-0".into(), None)));
        for text in [
            "",
            "orders",
            "orders:0",
            "orders=5",
            "orders:x=5",
            "orders:0=x",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
