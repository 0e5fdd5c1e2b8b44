//! The tasks of this repository: `cargo xtask TASK`, or `./x TASK` on a machine that lacks tools.
//!
//! Nothing here is part of the product, and nothing of the product is used here: what is tested is
//! built and started the way a user would.

mod bench;
mod cases;
mod cdc;
mod chaos;
mod complaints;
mod conformance;
mod covers;
mod demo;
mod e2e;
mod files;
mod fuzz;
mod injections;
mod mutants;
mod parts;
mod promises;
mod results;
mod run;
mod sim;
mod source;
mod tidy;
mod tools;

use std::process::ExitCode;

use lexopt::prelude::{Long, Short, Value, ValueExt};

/// What went wrong, in words for the person who ran the task.
pub(crate) type Failure = String;

const HELP: &str = "\
usage: ./x TASK

  demo [--rest] [--data orders|flights] [--zip]
        Shows a topic become an Iceberg table: real broker, real Connect worker, read by DuckDB.
        --rest: SeaweedFS's REST catalog with vended keys and its S3 store, not SQLite and files.
        --data flights: the flights and weather of New York in 2013, into two tables.
        --zip: install the plugin from the zip, not as the one JAR.
  test [--only PART]... [--all]
        Runs what CI runs: fmt tidy clippy build rust sim java dist failpoints bed conformance
        e2e promises injections complaints cases.
        --all: the mutants and the long runs too, at full size. Words after `--` go to pytest.
  chaos [--scenario NAME] [--minutes M] [--all] [--built] [--note REPORT]
        Kills, stalls, lies and refuses on the real bed (tests/chaos); the results go into
        docs/chaos-results.md. --scenario: a word of the names of the tests. --minutes: faults at
        random for so long. --all: every scenario. --built: with library and plugin as they are.
        --note: only notes the results of a JUnit report. Words after `--` go to pytest.
  cdc [--seeds N] [--from S] [--debezium SECONDS] [--built]
        Random change streams on the real bed, twenty at a time in one worker whose faults they share:
        each table must end as the model of its stream (tests/cdc). --seeds: how many (20), from seed S
        on. --debezium: follows PostgreSQL and MariaDB instead, each for so long with two kills.
        --built: with plugin and bed as they are. Words after `--` go to pytest.
  conformance [--case FILE]... [--only WORD] [--coverage] [--verbose] [--native[=FORMAT]]
              [--peer] [--random N [--seed S]]
        Runs the cases of tests/conformance through the plugin: records in, tables out.
        --case: a file of your own, in the format of tests/conformance/README.md. --only: cases
        with a word in their file or name. --coverage: which source types were tried on which
        column types. --verbose: how long each took. --native: values are bytes that the library
        decodes, of json, avro, protobuf and json-schema in turn, or of the one named. --peer: through
        Apache Iceberg's sink, with the differences written into docs/conformance-peer.md.
        --random: N cases with schemas and values at random in place of those of the repository; the
        same seed makes the same ones.
  bench [SCENARIO]... [--rounds N] [--warm-up N] [--records N] [--json] [--write] [--built]
        Compares a sink that does nothing, Apache Iceberg's and Frazil, each in its own Connect
        worker, in alternating rounds: CPU time per record and more; tables are compared too.
        --rounds: how many count (5), after --warm-up (4). --records: of each round. --json: ends
        with one line of JSON a scenario. --write: the results go into docs/benchmarks.md. --built:
        with plugin and bed as they are. --help: the scenarios, and all options.
        bench --sink: the sinks alone, in one JVM without Kafka. bench --flink: upserts, beside Flink
        with Iceberg's sink for it.
  fuzz [TARGET]... [--minutes M]
        Feeds bytes that libFuzzer makes up to all that reads bytes, M minutes a target (1): json
        json-envelope avro protobuf json-schema framing wire schema. See fuzz/README.md.
  sim [--seeds N] [--from S] [--total STEPS] | --seed S [--trace] | --mutants [RULE]...
        Runs the state machines in a simulated world and checks each step (rust/sim).
        --seed: one run, with --trace line by line. --mutants: switches the rules off one by one,
        and a checker must notice. --help: all its options.
  sim --cdc [--seeds N] [--from S] | --cdc --seed S [--trace] | --cdc --mutants [RULE]...
        Runs random streams of changes of rows, and compares the table with a model after each commit.
  sim --rolling [--workers N] [--topic]
        Restarts workers one after another under load, 1 to 48 of 4 tasks each, in simulated time:
        snapshots, gaps and catalog requests of 20 tables, as in docs/long-runs.md. Fails when a row
        is lost or doubled, or a bar is missed with the control topic.
  injections [--write]
        Checks (or writes) the table of injected faults in docs/exactly-once.md.
  complaints [--write]
        Checks (or writes) the table of complaints about other sinks in docs/complaints.md.
  cases [--write]
        Checks (or writes) the table of cases of change data in docs/cdc-cases.md.
  dist  Builds the plugin: build/dist/*.jar and *.zip.
  bed   Lays the artifacts and the Python environment of the end-to-end tests.
  tidy  Checks sizes, words, error codes and dead files.
  promises [--write]
        Checks (or writes) the table of promises in README.md.
  mutants [--write] [NAME]...
        Takes out the guards of tests/mutants.txt one by one: the test of each must fail.
        --write: the results go into docs/seen-red.md.
";

fn main() -> ExitCode {
    match dispatch() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch() -> Result<bool, Failure> {
    let mut arguments = lexopt::Parser::from_env();
    let task = match next(&mut arguments)? {
        Some(Value(task)) => task.string().map_err(|error| error.to_string())?,
        Some(Long("help") | Short('h')) | None => {
            print!("{HELP}");
            return Ok(true);
        }
        Some(other) => return Err(other.unexpected().to_string()),
    };
    match task.as_str() {
        "test" => test(arguments),
        "demo" => demo(arguments),
        "promises" => promise_table(arguments),
        "chaos" => chaos_runs(arguments),
        "cdc" => change_streams(arguments),
        "conformance" => conformance_cases(arguments),
        "sim" => sim::run(&words(arguments)?, &run::Log::open("sim")?),
        "bench" => bench::run(&words(arguments)?),
        "fuzz" => fuzz_targets(arguments),
        "injections" => covers_table(arguments, injections::write, injections::check),
        "complaints" => covers_table(arguments, complaints::write, complaints::check),
        "cases" => covers_table(arguments, cases::write, cases::check),
        "mutants" => without_guards(arguments),
        "dist" => none(arguments).and_then(|()| tools::dist(&run::Log::open("dist")?)),
        "bed" => none(arguments).and_then(|()| tools::bed(&run::Log::open("bed")?)),
        "tidy" => none(arguments).and_then(|()| Ok(sound(&tidy::check()?))),
        other => Err(format!("there is no task `{other}`\n{HELP}")),
    }
}

fn next(arguments: &mut lexopt::Parser) -> Result<Option<lexopt::Arg<'_>>, Failure> {
    arguments.next().map_err(|error| error.to_string())
}

fn none(mut arguments: lexopt::Parser) -> Result<(), Failure> {
    match next(&mut arguments)? {
        None => Ok(()),
        Some(argument) => Err(argument.unexpected().to_string()),
    }
}

fn text(arguments: &mut lexopt::Parser) -> Result<String, Failure> {
    let value = arguments.value().map_err(|error| error.to_string())?;
    value.string().map_err(|error| error.to_string())
}

/// Returns the number that an option has.
fn number<T: std::str::FromStr>(arguments: &mut lexopt::Parser) -> Result<T, Failure> {
    let word = text(arguments)?;
    word.parse()
        .map_err(|_| format!("`{word}` is no number that is allowed here"))
}

fn test(mut arguments: lexopt::Parser) -> Result<bool, Failure> {
    let mut wanted = parts::Wanted::default();
    while let Some(argument) = next(&mut arguments)? {
        match argument {
            Long("only") => wanted.only.push(text(&mut arguments)?),
            Long("all") => wanted.all = true,
            Value(word) => wanted
                .pytest
                .push(word.string().map_err(|error| error.to_string())?),
            other => return Err(other.unexpected().to_string()),
        }
    }
    parts::run(&wanted)
}

fn conformance_cases(mut arguments: lexopt::Parser) -> Result<bool, Failure> {
    let mut wanted = conformance::Wanted::default();
    while let Some(argument) = next(&mut arguments)? {
        match argument {
            Long("case") => wanted.cases.push(text(&mut arguments)?.into()),
            Long("only") => wanted.only = Some(text(&mut arguments)?),
            Long("coverage") => wanted.coverage = true,
            Long("verbose") => wanted.verbose = true,
            Long("peer") => wanted.peer = true,
            Long("native") => match arguments.optional_value() {
                Some(format) => {
                    let format = format.string().map_err(|error| error.to_string())?;
                    if !conformance::FORMATS.contains(&format.as_str()) {
                        return Err(format!(
                            "--native=FORMAT: {}",
                            conformance::FORMATS.join(" ")
                        ));
                    }
                    wanted.native.push(format);
                }
                None => wanted.native = conformance::FORMATS.map(str::to_owned).into(),
            },
            Long("random") => wanted.random = Some(number(&mut arguments)?),
            Long("seed") => wanted.seed = Some(number(&mut arguments)?),
            other => return Err(other.unexpected().to_string()),
        }
    }
    conformance::run(&wanted)
}

fn fuzz_targets(mut arguments: lexopt::Parser) -> Result<bool, Failure> {
    let mut wanted = fuzz::Wanted::default();
    while let Some(argument) = next(&mut arguments)? {
        match argument {
            Long("minutes") => wanted.minutes = Some(text(&mut arguments)?),
            Value(name) => wanted
                .targets
                .push(name.string().map_err(|error| error.to_string())?),
            other => return Err(other.unexpected().to_string()),
        }
    }
    fuzz::run(&wanted)
}

/// Returns the rest of the command line as it is, for a program that reads it itself.
fn words(mut arguments: lexopt::Parser) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    let raw = arguments.raw_args().map_err(|error| error.to_string())?;
    for word in raw {
        let word = word.into_string();
        words.push(word.map_err(|word| format!("{} is no text", word.display()))?);
    }
    Ok(words)
}

fn demo(mut arguments: lexopt::Parser) -> Result<bool, Failure> {
    let mut options = Vec::new();
    while let Some(argument) = next(&mut arguments)? {
        match argument {
            Long("rest") => options.push("--rest".to_owned()),
            Long("zip") => options.push("--zip".to_owned()),
            Long("jar-only") => options.push("--jar-only".to_owned()),
            Long("data") => options.extend(["--data".to_owned(), text(&mut arguments)?]),
            other => return Err(other.unexpected().to_string()),
        }
    }
    demo::run(&options)
}

fn chaos_runs(mut arguments: lexopt::Parser) -> Result<bool, Failure> {
    let mut wanted = chaos::Wanted::default();
    while let Some(argument) = next(&mut arguments)? {
        match argument {
            Long("all") => wanted.all = true,
            Long("built") => wanted.built = true,
            Long("note") => return chaos::note(&text(&mut arguments)?).map(|()| true),
            Long("scenario") => wanted.scenario = Some(text(&mut arguments)?),
            Long("minutes") => wanted.minutes = Some(text(&mut arguments)?),
            Value(word) => wanted
                .pytest
                .push(word.string().map_err(|error| error.to_string())?),
            other => return Err(other.unexpected().to_string()),
        }
    }
    chaos::run(&wanted)
}

fn change_streams(mut arguments: lexopt::Parser) -> Result<bool, Failure> {
    let mut wanted = cdc::Wanted::default();
    while let Some(argument) = next(&mut arguments)? {
        match argument {
            Long("seeds") => wanted.seeds = Some(number(&mut arguments)?),
            Long("from") => wanted.from = Some(number(&mut arguments)?),
            Long("debezium") => wanted.debezium = Some(number(&mut arguments)?),
            Long("built") => wanted.built = true,
            Value(word) => wanted
                .pytest
                .push(word.string().map_err(|error| error.to_string())?),
            other => return Err(other.unexpected().to_string()),
        }
    }
    cdc::run(&wanted)
}

/// Checks a table of numbered things and their tests, after writing it when that is asked for.
fn covers_table(
    arguments: lexopt::Parser,
    write_table: fn() -> Result<(), Failure>,
    check: fn() -> Result<Vec<String>, Failure>,
) -> Result<bool, Failure> {
    if is_to_write(arguments)? {
        write_table()?;
    }
    Ok(sound(&check()?))
}

fn promise_table(arguments: lexopt::Parser) -> Result<bool, Failure> {
    if is_to_write(arguments)? {
        promises::write()?;
        return Ok(true);
    }
    Ok(sound(&promises::check(&[])?))
}

/// Tells whether `--write`, the only argument there may be, is given.
fn is_to_write(mut arguments: lexopt::Parser) -> Result<bool, Failure> {
    let mut write = false;
    while let Some(argument) = next(&mut arguments)? {
        match argument {
            Long("write") => write = true,
            other => return Err(other.unexpected().to_string()),
        }
    }
    Ok(write)
}

/// Prints the complaints and tells whether there are none.
fn sound(complaints: &[String]) -> bool {
    complaints.iter().for_each(|line| println!("{line}"));
    complaints.is_empty()
}

fn without_guards(mut arguments: lexopt::Parser) -> Result<bool, Failure> {
    let (mut write, mut names) = (false, Vec::new());
    while let Some(argument) = next(&mut arguments)? {
        match argument {
            Long("write") => write = true,
            Value(name) => names.push(name.string().map_err(|error| error.to_string())?),
            other => return Err(other.unexpected().to_string()),
        }
    }
    let results = mutants::run(&names, write, &run::Log::quiet("mutants")?)?;
    Ok(mutants::close(&results))
}
