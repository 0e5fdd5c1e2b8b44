//! The command line of Frazil.
//!
//! `frazil verify` checks a table against the stream it came from: no record twice, none missing; of a
//! table with changes that each key has one row.
//! `frazil state` shows, repairs and resets the offsets that the tables hold. `frazil compat` tells
//! what a new schema of a topic would do to its tables. `frazil rebuild` makes a table with changes from the
//! log of its changes. `frazil maintain` merges the small files of tables.

mod compat;
mod maintain;
mod offsets;
mod rebuild;
mod settings;
mod state;
mod verify;

use std::process::ExitCode;

const USAGE: &str = "\
usage: frazil verify --config FILE [--table NAME] [--expect TOPIC:PARTITION=START-END]...
       frazil state show --config FILE [--table NAME]
       frazil state repair --config FILE [--table NAME] [--discard]
       frazil state reset --config FILE (--all | --offsets TOPIC:PARTITION=OFFSET,...)
       frazil compat --config FILE --schema FILE [--message NAME] (--topic TOPIC | --subject SUBJECT)
                     [--table NAME]... [--json]
       frazil rebuild --config FILE --table NAME --log NAME [--from-first] [--json]
       frazil maintain --config FILE [--table NAME]... [--dry-run] [--json]

verify: checks the metadata columns _topic, _partition and _offset of a table that Frazil writes. Of a
table with changes it checks that no key is there twice, and no data file has two delete files.

  --config FILE   connector configuration: the JSON that is POSTed to Connect
  --table NAME    the table, when the configuration names several
  --expect RANGE  records that the topic holds, from START up to but without END; offsets of the
                  range that are not in the table are an error. Without it, gaps are listed only.

state: the offsets that the tables of a connector hold. Stop the connector before repair and reset.

  show            prints them, with the last commit and the resets of each table
  repair          writes the state of a table anew where its property is lost or unreadable
  --discard       gives up what the snapshots cannot prove: the connector reads everything again
  reset           does what Connect's REST does to the tables when offsets are altered; the offsets
                  of the consumer group are reset by other means
  --offsets LIST  the offset to read a partition from; `none` for its beginning
  --all           every partition from its beginning

compat: what records of a new schema would do to the tables: which columns are added, promoted or
made optional, and which block their records. Nothing is changed.

  --schema FILE   the schema of the values: .avsc (Avro), .json (JSON Schema) or .proto (Protobuf)
  --message NAME  the message of a .proto file, else the first
  --topic TOPIC   the topic that the schema is for; --subject TOPIC-value says the same
  --table NAME    a table to compare with, when records name their tables or a transform renames
                  the topic; else those that the topic goes to
  --json          the findings as JSON

rebuild: makes a table with changes from the table that has the changes, one row each, with the columns
_topic, _partition, _offset and _key. Stop the connector before. A run that was ended goes on where
it was, and the connector goes on behind the last row of the log.

  --table NAME    the table to make, of the mode upsert or cdc; new, or dropped before
  --log NAME      the table with the changes, of the mode append
  --from-first    the first row of each partition is its beginning, though its offset is not 0
  --json          what was done as JSON

maintain: merges small data files, and writes files again of which many rows are deleted, once; the
connector may run meanwhile. Rows and offsets stay what they are.

  --table NAME    a table; else all of the configuration
  --dry-run       tells what would be done
  --json          the same as JSON

exit status: 0 all well, 1 something is wrong with a table or blocked, 2 the command could not be carried out";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(message) => {
            eprintln!("frazil: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<bool, String> {
    let mut arguments = lexopt::Parser::from_env();
    match arguments.next().map_err(|error| error.to_string())? {
        Some(lexopt::Arg::Value(command)) if command == "verify" => verify::run(arguments),
        Some(lexopt::Arg::Value(command)) if command == "rebuild" => rebuild::run(arguments),
        Some(lexopt::Arg::Value(command)) if command == "compat" => compat::run(arguments),
        Some(lexopt::Arg::Value(command)) if command == "state" => state::run(arguments),
        Some(lexopt::Arg::Value(command)) if command == "maintain" => maintain::run(arguments),
        Some(lexopt::Arg::Long("help") | lexopt::Arg::Short('h')) => {
            println!("{USAGE}");
            Ok(true)
        }
        _ => Err(format!("no such command\n{USAGE}")),
    }
}
