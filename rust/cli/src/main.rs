//! The command line of Frazil.
//!
//! `frazil verify` checks a table against the stream it came from: no record twice, none missing.

mod offsets;
mod verify;

use std::process::ExitCode;

const USAGE: &str = "\
usage: frazil verify --config FILE [--table NAME] [--expect TOPIC:PARTITION=START-END]...

Checks the metadata columns _topic, _partition and _offset of a table that Frazil writes.

  --config FILE   connector configuration: the JSON that is POSTed to Connect
  --table NAME    the table, when the configuration names several
  --expect RANGE  records that the topic holds, from START up to but without END; offsets of the
                  range that are not in the table are an error. Without it, gaps are listed only.

exit status: 0 all well, 1 records twice or missing, 2 the check could not be made";

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
        Some(lexopt::Arg::Long("help") | lexopt::Arg::Short('h')) => {
            println!("{USAGE}");
            Ok(true)
        }
        _ => Err(format!("no such command\n{USAGE}")),
    }
}
