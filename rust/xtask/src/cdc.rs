//! `./x cdc`: builds the plugin, lays the bed and sends random change streams through a worker
//! (`tests/cdc/test_streams.py`), or follows databases for as long as is asked for.

use std::process::Command;

use crate::Failure;
use crate::run::{Log, root};
use crate::tools;

/// What was asked for on the command line.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// How many streams, twenty at a time.
    pub(crate) seeds: Option<u32>,
    /// The first seed.
    pub(crate) from: Option<u32>,
    /// Follows databases with Debezium, for so many seconds each, in place of random streams.
    pub(crate) debezium: Option<u32>,
    /// Takes plugin and bed as they are.
    pub(crate) built: bool,
    /// Words for pytest.
    pub(crate) pytest: Vec<String>,
}

/// Runs what was asked for and tells whether every table ended as its source.
pub(crate) fn run(wanted: &Wanted) -> Result<bool, Failure> {
    if wanted.debezium.is_some() && (wanted.seeds.is_some() || wanted.from.is_some()) {
        return Err("--debezium follows databases, which have no seeds".to_owned());
    }
    if !wanted.built {
        println!("building the plugin (build/logs/dist.log)");
        if !tools::dist(&Log::quiet("dist")?)? {
            return Err("the plugin was not built: see build/logs/dist.log".to_owned());
        }
        println!("laying the bed (build/logs/bed.log)");
        if !tools::bed(&Log::quiet("bed")?)? {
            return Err("the bed was not laid: see build/logs/bed.log".to_owned());
        }
    }
    let mut command = Command::new(tools::python());
    command
        .args(words(wanted))
        .envs(variables(wanted))
        // Progress must show while it is made, also through the pipe.
        .env("PYTHONUNBUFFERED", "1");
    command.arg(format!(
        "--junitxml={}",
        root().join("build/cdc.xml").display()
    ));
    Log::open("cdc")?.run(&mut command)
}

fn words(wanted: &Wanted) -> Vec<String> {
    let tests = match wanted.debezium {
        Some(_) => "tests/cdc/test_debezium.py",
        None => "tests/cdc/test_streams.py",
    };
    // With what a test prints: how the streams were made, and which faults they had.
    let mut words = ["-m", "pytest", "-v", "-rP", "-c", "tests/pytest.ini"].to_vec();
    words.extend(["--rootdir=tests", "--all", tests]);
    let given = wanted.pytest.iter().map(String::as_str);
    words.into_iter().chain(given).map(str::to_owned).collect()
}

fn variables(wanted: &Wanted) -> Vec<(&'static str, String)> {
    let given = [
        ("FRAZIL_CDC_SEEDS", wanted.seeds),
        ("FRAZIL_CDC_FROM", wanted.from),
        ("FRAZIL_CDC_SECONDS", wanted.debezium),
    ];
    let set = given.into_iter();
    set.filter_map(|(name, number)| Some((name, number?.to_string())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_choose_the_streams_and_seconds_the_databases() {
        let streams = Wanted {
            seeds: Some(200),
            from: Some(40),
            pytest: vec!["-x".to_owned()],
            ..Wanted::default()
        };
        assert!(
            words(&streams).ends_with(&["tests/cdc/test_streams.py".to_owned(), "-x".to_owned()])
        );
        assert_eq!(
            variables(&streams),
            [
                ("FRAZIL_CDC_SEEDS", "200".to_owned()),
                ("FRAZIL_CDC_FROM", "40".to_owned())
            ]
        );
        let databases = Wanted {
            debezium: Some(300),
            ..Wanted::default()
        };
        assert!(words(&databases).contains(&"tests/cdc/test_debezium.py".to_owned()));
        assert_eq!(
            variables(&databases),
            [("FRAZIL_CDC_SECONDS", "300".to_owned())]
        );
        assert!(
            run(&Wanted {
                from: Some(1),
                ..databases
            })
            .is_err()
        );
    }
}
