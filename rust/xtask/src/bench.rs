//! `./x bench`: builds the plugin, fetches Apache Iceberg's sink and hands over to `tests/bench`.

use std::process::Command;

use crate::Failure;
use crate::run::{Log, root};
use crate::tools;

/// Takes plugin and bed as they are.
const BUILT: &str = "--built";
/// Compares the sinks alone, in one JVM without Kafka.
const SINK: &str = "--sink";
/// Compares upserts with Flink's.
const FLINK: &str = "--flink";

/// What changes of a large table cost, in the library alone.
const UPSERT: &str = "upsert";

/// Runs the benchmark with the options of `tests/bench`, and tells whether everything was measured.
pub(crate) fn run(words: &[String]) -> Result<bool, Failure> {
    if let [first, options @ ..] = words
        && first == UPSERT
    {
        return upsert(options);
    }
    let is = |wanted: &str| words.iter().any(|word| word == wanted);
    if !is(BUILT) && !is("--help") {
        lay(is(FLINK))?;
    }
    let module = match (is(SINK), is(FLINK)) {
        (true, _) => "bench.sink",
        (_, true) => "bench.flink",
        _ => "bench",
    };
    let mut command = Command::new(tools::python());
    command.args(["-m", module]);
    let ours = |word: &str| [BUILT, SINK, FLINK].contains(&word);
    command.args(words.iter().filter(|word| !ours(word)));
    command.env("PYTHONPATH", root().join("tests"));
    // Progress must show while it is made, also through the pipe.
    command.env("PYTHONUNBUFFERED", "1");
    Log::open("bench")?.run(&mut command)
}

/// Measures commits of changes without Kafka or Java (`rust/engine/benches/upsert.rs`).
fn upsert(options: &[String]) -> Result<bool, Failure> {
    let mut command = Command::new("cargo");
    command.args(["bench", "-p", "frazil-engine", "--bench", UPSERT, "--"]);
    command.args(options);
    command.current_dir(root());
    Log::open("bench-upsert")?.run(&mut command)
}

fn lay(flink: bool) -> Result<(), Failure> {
    println!("building the plugin (build/logs/dist.log)");
    if !tools::dist(&Log::quiet("dist")?)? {
        return Err("the plugin was not built: see build/logs/dist.log".to_owned());
    }
    println!("laying the bed and Apache Iceberg's sink (build/logs/bed.log)");
    let log = Log::quiet("bed")?;
    let mut beside = vec![":bed:benchLibraries"];
    if flink {
        beside.push(":bed:flinkLibraries");
    }
    if !tools::bed(&log)? || !log.run(&mut tools::gradle(&beside))? {
        return Err("the bed was not laid: see build/logs/bed.log".to_owned());
    }
    Ok(())
}
