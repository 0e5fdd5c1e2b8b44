//! `./x demo`: builds the plugin, lays the bed and hands over to `tests/demo.py`.

use std::process::Command;

use crate::Failure;
use crate::run::{Log, root};
use crate::tools;

/// Runs the demonstration with the options of `tests/demo.py`.
pub(crate) fn run(options: &[String]) -> Result<bool, Failure> {
    println!("building the plugin (build/logs/dist.log)");
    let log = Log::quiet("dist")?;
    if !tools::dist(&log)? {
        return Err(failed("the plugin was not built", &log)?);
    }
    println!("laying broker, worker and readers (build/logs/bed.log)");
    let log = Log::quiet("bed")?;
    if !tools::bed(&log)? {
        return Err(failed("the bed was not laid", &log)?);
    }
    let mut command = Command::new(tools::python());
    command.arg(root().join("tests/demo.py")).args(options);
    // Progress must show while it is made, also through the pipe.
    command.env("PYTHONUNBUFFERED", "1");
    Log::open("demo")?.run(&mut command)
}

fn failed(what: &str, log: &Log) -> Result<String, Failure> {
    let lines = log.lines()?;
    let tail = lines.len().saturating_sub(30);
    let shown = lines.get(tail..).unwrap_or_default().join("\n");
    Ok(format!("{what}:\n{shown}"))
}
