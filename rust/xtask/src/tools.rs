//! Cargo, Gradle and the Python environment.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::Failure;
use crate::run::{Log, root};

/// Returns a cargo command.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// Returns a Gradle command. No daemon: nothing of ours stays behind.
pub(crate) fn gradle(arguments: &[&str]) -> Command {
    let mut command = Command::new("gradle");
    command
        .args(["--no-daemon", "--console=plain"])
        .args(arguments);
    command
}

/// Returns the Python of the test environment.
pub(crate) fn python() -> PathBuf {
    root().join("build/venv/bin/python")
}

/// Builds the plugin: `build/dist/*.jar` and `*.zip`.
pub(crate) fn dist(log: &Log) -> Result<bool, Failure> {
    log.run(&mut gradle(&["dist"]))
}

/// Lays what the end-to-end tests run against: Java artifacts and the Python environment.
pub(crate) fn bed(log: &Log) -> Result<bool, Failure> {
    Ok(environment(log)? && log.run(&mut gradle(&[":bed:libraries"]))?)
}

/// Makes `build/venv` from `tests/requirements.txt`, unless it is there and as required.
fn environment(log: &Log) -> Result<bool, Failure> {
    let requirements = root().join("tests/requirements.txt");
    let wanted = fs::read_to_string(&requirements)
        .map_err(|error| format!("cannot read {}: {error}", requirements.display()))?;
    let stamp = root().join("build/venv/requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|present| present == wanted) {
        return Ok(true);
    }
    let base = env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let mut make = Command::new(base);
    make.args(["-m", "venv", "--clear", "build/venv"]);
    let mut install = Command::new(python());
    install.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    install.args(["-r", "tests/requirements.txt"]);
    if !log.run(&mut make)? || !log.run(&mut install)? {
        return Ok(false);
    }
    fs::write(&stamp, wanted)
        .map_err(|error| format!("cannot write {}: {error}", stamp.display()))?;
    Ok(true)
}
