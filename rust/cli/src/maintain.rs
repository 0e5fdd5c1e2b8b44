//! `frazil maintain`: looks after the files of tables once.

use frazil_core::config::table::parse_name;
use frazil_core::config::{SinkConfig, TableConfig};
use frazil_engine::maintain::{GroupOutcome, GroupReport, Report, once};
use frazil_engine::runtime::Runtime;
use frazil_engine::{catalog, preflight};
use serde_json::{Value, json};

use crate::settings::read_settings;

#[derive(Default)]
struct Arguments {
    config: String,
    tables: Vec<String>,
    dry_run: bool,
    as_json: bool,
}

/// Runs the command; `true` when nothing failed.
pub(crate) fn run(arguments: lexopt::Parser) -> Result<bool, String> {
    let arguments = parse(arguments).map_err(|error| error.to_string())?;
    let settings = read_settings(&arguments.config)?;
    let config = preflight::start(&settings).map_err(|error| error.report())?;
    let tables = choose(&config, &arguments.tables)?;
    let runtime = Runtime::shared().map_err(|error| error.report())?;
    let opening = async { catalog::open(&config.catalog) };
    let catalog = runtime.handle().block_on(opening);
    let catalog = catalog.map_err(|error| error.report())?;
    let mut sound = true;
    let mut all = Vec::new();
    for table in &tables {
        let work = once(&config, table, &catalog, arguments.dry_run);
        match runtime.handle().block_on(work) {
            Ok(report) => {
                sound &= !report.has_failed();
                if !arguments.as_json {
                    print!("{}", text(&table.name, &report));
                }
                all.push(json_of(&table.name, &report));
            }
            Err(error) => {
                sound = false;
                if !arguments.as_json {
                    println!("{}: {}", table.name, error.report());
                }
                let error = json!({"code": error.code(), "message": error.report()});
                all.push(json!({"table": table.name, "error": error}));
            }
        }
    }
    if arguments.as_json {
        println!("{}", json!({"sound": sound, "tables": all}));
    }
    Ok(sound)
}

fn parse(mut parser: lexopt::Parser) -> Result<Arguments, lexopt::Error> {
    use lexopt::prelude::{Long, ValueExt};
    let mut arguments = Arguments::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("config") => arguments.config = parser.value()?.string()?,
            Long("table") => arguments.tables.push(parser.value()?.string()?),
            Long("dry-run") => arguments.dry_run = true,
            Long("json") => arguments.as_json = true,
            _ => return Err(argument.unexpected()),
        }
    }
    if arguments.config.is_empty() {
        return Err("--config is missing".into());
    }
    Ok(arguments)
}

/// Returns the tables that are named, or all of the configuration.
fn choose(config: &SinkConfig, named: &[String]) -> Result<Vec<TableConfig>, String> {
    if named.is_empty() {
        return match config.tables.is_empty() {
            true => Err("records name the tables: name those to look after by --table".into()),
            false => Ok(config.tables.clone()),
        };
    }
    let find = |name: &String| {
        let mut tables = config.tables.iter();
        if let Some(table) = tables.find(|table| table.name == *name) {
            return Ok(table.clone());
        }
        let ident = parse_name(name).map_err(|reason| format!("`{name}` {reason}"))?;
        let dynamic = config.dynamic.as_ref();
        let table = dynamic.and_then(|dynamic| dynamic.at(&ident));
        table.ok_or_else(|| format!("the configuration has no table `{name}`"))
    };
    named.iter().map(find).collect()
}

fn text(table: &str, report: &Report) -> String {
    let mut lines: Vec<String> = report.groups.iter().map(line).collect();
    lines.extend(report.skipped.map(str::to_owned));
    lines.push(format!(
        "{} files of {} bytes and {} delete files before, {} of {} groups compacted",
        report.files,
        report.bytes,
        report.delete_files,
        report.done(),
        report.groups.len()
    ));
    let lines = lines.iter().map(|line| format!("{table}: {line}\n"));
    lines.collect()
}

fn line(one: &GroupReport) -> String {
    let group = &one.group;
    let what = format!(
        "{} files, {} bytes, {} rows, {} of them deleted",
        group.files.len(),
        group.bytes,
        group.rows,
        group.deleted
    );
    match &one.outcome {
        GroupOutcome::Planned => format!("would compact {what}"),
        GroupOutcome::Done {
            snapshot_id,
            files,
            bytes,
            carried,
        } => format!(
            "compacted {what}, into {files} files of {bytes} bytes, {carried} deletes carried over, \
             snapshot {snapshot_id}"
        ),
        GroupOutcome::Dropped(why) => format!("left {what}: {why}"),
        GroupOutcome::Failed(error) => format!("FAILED {what}: {}", error.report()),
    }
}

fn json_of(table: &str, report: &Report) -> Value {
    let groups = report.groups.iter().map(|one| {
        let group = &one.group;
        let mut made = json!({
            "files": group.files.len(),
            "bytes": group.bytes,
            "rows": group.rows,
            "deleted": group.deleted,
        });
        let outcome = match &one.outcome {
            GroupOutcome::Planned => json!({"outcome": "planned"}),
            GroupOutcome::Done {
                snapshot_id,
                files,
                bytes,
                carried,
            } => json!({
                // As a text: many readers of JSON take no number as long.
                "outcome": "done", "snapshot_id": snapshot_id.to_string(), "new_files": files,
                "new_bytes": bytes, "carried": carried,
            }),
            GroupOutcome::Dropped(why) => json!({"outcome": "dropped", "reason": why}),
            GroupOutcome::Failed(error) => json!({
                "outcome": "failed", "code": error.code(), "reason": error.report(),
            }),
        };
        if let (Value::Object(made), Value::Object(outcome)) = (&mut made, outcome) {
            made.extend(outcome);
        }
        made
    });
    json!({
        "table": table,
        "files": report.files,
        "bytes": report.bytes,
        "delete_files": report.delete_files,
        "skipped": report.skipped,
        "groups": groups.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use frazil_core::maintain::compact::Group;

    use super::*;

    #[test]
    fn a_report_is_for_people_and_programs() {
        let group = Group {
            spec_id: 0,
            files: vec![0, 1],
            bytes: 20,
            rows: 7,
            deleted: 2,
        };
        let done = GroupOutcome::Done {
            snapshot_id: 5_577_006_791_947_779_410,
            files: 1,
            bytes: 12,
            carried: 1,
        };
        let outcomes = [done, GroupOutcome::Dropped("no room")];
        let groups = outcomes.map(|outcome| GroupReport {
            group: group.clone(),
            outcome,
        });
        let report = Report {
            files: 9,
            bytes: 90,
            delete_files: 3,
            skipped: None,
            groups: groups.into(),
        };
        let text = text("db.t", &report);
        assert!(text.contains(
            "db.t: compacted 2 files, 20 bytes, 7 rows, 2 of them deleted, into 1 files"
        ));
        assert!(text.ends_with("3 delete files before, 1 of 2 groups compacted\n"));
        let json = json_of("db.t", &report);
        assert_eq!(json["groups"][0]["snapshot_id"], "5577006791947779410");
        assert_eq!(json["groups"][0]["deleted"], 2);
        assert_eq!(json["groups"][1]["reason"], "no room");
    }
}
