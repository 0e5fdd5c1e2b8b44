//! `frazil rebuild`: makes a table with changes from the log of its changes.

use std::time::Instant;

use frazil_core::ErrorKind;
use frazil_engine::rebuild::{Rebuild, Rebuilt};
use serde_json::json;

use crate::settings::read_settings;

/// Errors that say something of the log or of a row of it, and not of how the command was carried out.
const OF_THE_LOG: &[&str] = &["LOG_NOT_WHOLE", "LOG_OUT_OF_ORDER", "REBUILD_ROW_REFUSED"];

struct Arguments {
    config: String,
    rebuild: Rebuild,
    as_json: bool,
}

/// Runs the command; `true` when the table is at the end of the log.
pub(crate) fn run(arguments: lexopt::Parser) -> Result<bool, String> {
    let arguments = parse(arguments).map_err(|error| error.to_string())?;
    let settings = read_settings(&arguments.config)?;
    let begun = Instant::now();
    match arguments.rebuild.run(&settings) {
        Ok(made) if arguments.as_json => println!("{}", report(&arguments.rebuild, &made)),
        Ok(made) => {
            for (partition, first, end) in &made.partitions {
                println!("  {partition}: from offset {first} to before {end}");
            }
            println!(
                "{}: {} rows of {} in {:.1} s",
                arguments.rebuild.table,
                made.rows,
                arguments.rebuild.log,
                begun.elapsed().as_secs_f64()
            );
        }
        Err(error) if OF_THE_LOG.contains(&error.code()) || error.kind() == ErrorKind::Data => {
            match arguments.as_json {
                true => println!(
                    "{}",
                    json!({ "code": error.code(), "error": error.report() })
                ),
                false => println!("BAD  {}", error.report()),
            }
            return Ok(false);
        }
        Err(error) => return Err(error.report()),
    }
    Ok(true)
}

fn report(rebuild: &Rebuild, made: &Rebuilt) -> serde_json::Value {
    let partitions = made.partitions.iter().map(|(partition, first, end)| {
        json!({
            "topic": &*partition.topic,
            "partition": partition.partition,
            "first": first,
            "next": end,
        })
    });
    json!({
        "table": rebuild.table,
        "log": rebuild.log,
        "rows": made.rows,
        "snapshot-id": made.snapshot_id,
        "partitions": partitions.collect::<Vec<_>>(),
    })
}

fn parse(mut parser: lexopt::Parser) -> Result<Arguments, lexopt::Error> {
    use lexopt::prelude::{Long, ValueExt};
    let mut arguments = Arguments {
        config: String::new(),
        rebuild: Rebuild {
            table: String::new(),
            log: String::new(),
            from_first: false,
        },
        as_json: false,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("config") => arguments.config = parser.value()?.string()?,
            Long("table") => arguments.rebuild.table = parser.value()?.string()?,
            Long("log") => arguments.rebuild.log = parser.value()?.string()?,
            Long("from-first") => arguments.rebuild.from_first = true,
            Long("json") => arguments.as_json = true,
            _ => return Err(argument.unexpected()),
        }
    }
    let Rebuild { table, log, .. } = &arguments.rebuild;
    if arguments.config.is_empty() || table.is_empty() || log.is_empty() {
        return Err("--config, --table and --log are needed".into());
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use frazil_core::offsets::TopicPartition;

    use super::*;

    fn parsed(words: &[&str]) -> Result<Arguments, String> {
        let parser = lexopt::Parser::from_args(words.iter().copied());
        parse(parser).map_err(|error| error.to_string())
    }

    #[test]
    fn table_and_log_are_named() {
        let words = [
            "--config",
            "c.json",
            "--table",
            "db.t",
            "--log",
            "db.l",
            "--from-first",
        ];
        let arguments = parsed(&words).unwrap();
        assert!(arguments.rebuild.from_first && !arguments.as_json);
        assert_eq!(arguments.rebuild.log, "db.l");
        assert!(parsed(&words[..4]).is_err());
    }

    #[test]
    fn the_answer_has_its_offsets() {
        let rebuild = parsed(&["--config", "c", "--table", "db.t", "--log", "db.l"]);
        let made = Rebuilt {
            rows: 7,
            partitions: vec![(TopicPartition::new("orders", 1), 0, 9)],
            snapshot_id: Some(5),
        };
        let text = report(&rebuild.unwrap().rebuild, &made).to_string();
        assert_eq!(
            text,
            r#"{"log":"db.l","partitions":[{"first":0,"next":9,"partition":1,"topic":"orders"}],"rows":7,"snapshot-id":5,"table":"db.t"}"#
        );
    }
}
