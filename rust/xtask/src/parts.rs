//! `./x test`: the parts in order, the time of each, and one closing line.

use std::fs;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Failure;
use crate::cases;
use crate::chaos;
use crate::complaints;
use crate::conformance;
use crate::e2e;
use crate::injections;
use crate::mutants;
use crate::promises::{self, Ran};
use crate::results::{self, Counts, TestResult};
use crate::run::{Log, root};
use crate::sim;
use crate::tidy;
use crate::tools;

/// The seconds that CI gives to one run.
const CI_SECONDS: u64 = 5_400;
/// Lines of a failed part's log that are shown.
const TAIL_LINES: usize = 80;

/// What was asked for on the command line.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) only: Vec<String>,
    pub(crate) all: bool,
    pub(crate) pytest: Vec<String>,
}

/// What a part's time is counted as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Tools,
    Build,
    Tests,
}

const PARTS: &[(&str, Phase)] = &[
    ("fmt", Phase::Tests),
    ("tidy", Phase::Tests),
    ("clippy", Phase::Build),
    ("build", Phase::Build),
    ("rust", Phase::Tests),
    ("sim", Phase::Tests),
    ("java", Phase::Tests),
    ("failpoints", Phase::Build),
    ("dist", Phase::Build),
    ("bed", Phase::Tools),
    ("conformance", Phase::Tests),
    ("e2e", Phase::Tests),
    ("promises", Phase::Tests),
    ("injections", Phase::Tests),
    ("complaints", Phase::Tests),
    ("cases", Phase::Tests),
    ("mutants", Phase::Tests),
];

/// Parts that run only when they or all are asked for.
const LONG: &[&str] = &["mutants"];

/// How one part ended.
struct Report {
    name: &'static str,
    phase: Phase,
    good: bool,
    results: Option<Vec<TestResult>>,
    took: Duration,
}

/// Runs the wanted parts and tells whether all is well.
pub(crate) fn run(wanted: &Wanted) -> Result<bool, Failure> {
    for name in &wanted.only {
        if !PARTS.iter().any(|(part, _)| part == name) {
            let known: Vec<_> = PARTS.iter().map(|(part, _)| *part).collect();
            return Err(format!("no part `{name}`: {}", known.join(" ")));
        }
    }
    let chosen = |name: &str| match wanted.only.is_empty() {
        true => wanted.all || !LONG.contains(&name),
        false => wanted.only.iter().any(|o| o == name),
    };
    // The bed is fetched while the compiler works: it waits for the network, mostly.
    let early = (chosen("bed") && chosen("build")).then(|| thread::spawn(lay_bed));
    let mut early = early;
    let mut reports: Vec<Report> = Vec::new();
    for (name, phase) in PARTS.iter().filter(|(name, _)| chosen(name)) {
        let log = part_log(name)?;
        let started = Instant::now();
        let ended = match early.take_if(|_| *name == "bed") {
            Some(bed) => bed.join().map_err(|_| "the bed's thread died".to_owned())?,
            None => part(name, wanted, &log, &reports),
        };
        let (good, results) = ended.or_else(|failure| {
            log.line(&failure)?;
            Ok::<_, Failure>((false, None))
        })?;
        let report = Report {
            name,
            phase: *phase,
            good,
            results,
            took: started.elapsed(),
        };
        tell(&report, &log)?;
        reports.push(report);
    }
    close(&reports)
}

type Ended = Result<(bool, Option<Vec<TestResult>>), Failure>;

fn lay_bed() -> Ended {
    Ok((tools::bed(&Log::quiet("bed")?)?, None))
}

/// Opens the log of a part; the bed's is opened by whoever lays it.
fn part_log(name: &str) -> Result<Log, Failure> {
    match name {
        "e2e" => Log::open(name),
        "bed" => Log::quiet("bed-wait"),
        _ => Log::quiet(name),
    }
}

fn part(name: &str, wanted: &Wanted, log: &Log, done: &[Report]) -> Ended {
    let plain = |good: bool| Ok((good, None));
    let workspace = ["--release", "--workspace"];
    match name {
        "fmt" => plain(log.run(&mut tools::cargo(&["fmt", "--all", "--check"]))?),
        "tidy" => said(log, &tidy::check()?),
        "clippy" => {
            let mut clippy = tools::cargo(&["clippy", "--all-targets"]);
            plain(log.run(clippy.args(workspace).args(["--", "-D", "warnings"]))?)
        }
        "build" => {
            let built = log.run(tools::cargo(&["build"]).args(workspace))?;
            plain(built && log.run(tools::cargo(&["test", "--no-run"]).args(workspace))?)
        }
        "rust" => {
            let mut test = tools::cargo(&["test", "--no-fail-fast"]);
            let good = log.run(test.args(workspace))?;
            Ok((good, Some(results::from_cargo(&log.lines()?))))
        }
        "sim" => plain(sim::check(log)?),
        "java" => java(log),
        "dist" => plain(tools::dist(log)?),
        "failpoints" => plain(chaos::build(log)?),
        "bed" => lay_bed(),
        "conformance" => {
            needs(&["dist", "bed"], done)?;
            let (good, results) = conformance::all(log)?;
            Ok((good, Some(results)))
        }
        "e2e" => {
            needs(&["failpoints", "dist", "bed"], done)?;
            let (good, results) = e2e::run(wanted.all, &wanted.pytest, log)?;
            Ok((good, Some(results)))
        }
        "promises" => said(log, &promises::check(&ran(wanted, done))?),
        "injections" => said(log, &injections::check()?),
        "complaints" => said(log, &complaints::check()?),
        "cases" => said(log, &cases::check()?),
        "mutants" => {
            let results = mutants::run(&[], false, log)?;
            let good = Counts::of(&results).failed == 0;
            Ok((good, Some(results)))
        }
        other => Err(format!("no part `{other}`")),
    }
}

fn said(log: &Log, complaints: &[String]) -> Ended {
    for complaint in complaints {
        log.line(complaint)?;
    }
    Ok((complaints.is_empty(), None))
}

fn java(log: &Log) -> Ended {
    let reports = root().join("java/build");
    for old in results::junit_reports(&reports) {
        fs::remove_file(&old).map_err(|error| format!("cannot remove an old report: {error}"))?;
    }
    let good = log.run(&mut tools::gradle(&["test"]))?;
    Ok((good, Some(results::from_junit_folder(&reports)?)))
}

/// Fails when a part that another one builds on has failed.
fn needs(parts: &[&str], done: &[Report]) -> Result<(), Failure> {
    match done
        .iter()
        .find(|report| parts.contains(&report.name) && !report.good)
    {
        Some(report) => Err(format!("not run: {} failed", report.name)),
        None => Ok(()),
    }
}

/// Returns what the parts that ran tell about promises.
fn ran<'a>(wanted: &Wanted, done: &'a [Report]) -> Vec<Ran<'a>> {
    let endings = [("rust", ".rs"), ("java", ".java"), ("e2e", ".py")];
    let mut ran = Vec::new();
    for (part, ending) in endings {
        // Words for pytest choose tests, so that others rightly did not run.
        if part == "e2e" && !wanted.pytest.is_empty() {
            continue;
        }
        let report = done.iter().find(|report| report.name == part);
        if let Some(results) = report.and_then(|report| report.results.as_deref()) {
            ran.push(Ran {
                ending,
                results,
                long: wanted.all,
            });
        }
    }
    ran
}

fn tell(report: &Report, log: &Log) -> Result<(), Failure> {
    let seconds = report.took.as_secs_f64();
    let verdict = if report.good { "ok" } else { "FAILED" };
    let counted = report.results.as_ref().map_or(String::new(), |results| {
        let counts = Counts::of(results);
        let skipped = match counts.skipped {
            0 => String::new(),
            skipped => format!(", {skipped} left out"),
        };
        format!("  {} good, {} bad{skipped}", counts.passed, counts.failed)
    });
    println!("part {:9} {seconds:7.1} s  {verdict}{counted}", report.name);
    if !report.good {
        let log = match report.name {
            "bed" => root().join("build/logs/bed.log"),
            _ => log.path().to_path_buf(),
        };
        let text = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        println!("---- the end of {}", log.display());
        for line in lines
            .get(lines.len().saturating_sub(TAIL_LINES)..)
            .unwrap_or_default()
        {
            println!("{line}");
        }
        println!("----");
    }
    Ok(())
}

/// Prints the times and the closing line.
fn close(reports: &[Report]) -> Result<bool, Failure> {
    let mut counts = Counts::default();
    for report in reports {
        let mut own = report
            .results
            .as_deref()
            .map_or(Counts::default(), Counts::of);
        // A part that failed without a failed test (a compile error, say) counts as one.
        if !report.good && own.failed == 0 {
            own.failed = 1;
        }
        counts.add(own);
    }
    let spent = |phase: Phase| -> u64 {
        let parts = reports.iter().filter(|report| report.phase == phase);
        parts.map(|report| report.took.as_secs()).sum()
    };
    let (mut tools, build, tests) = (
        spent(Phase::Tools),
        spent(Phase::Build),
        spent(Phase::Tests),
    );
    let mut reserve = String::new();
    if let Some(elapsed) = since_start_of_ci() {
        // What came before the first part: finding tools and building this program.
        tools = elapsed.saturating_sub(build + tests);
        let left = CI_SECONDS.saturating_sub(elapsed);
        reserve = format!(", reserve {left} s of {CI_SECONDS} s");
    }
    println!("time: tools {tools} s, build {build} s, tests {tests} s{reserve}");
    println!("{} passed, {} failed", counts.passed, counts.failed);
    Ok(counts.failed == 0 && reports.iter().all(|report| report.good))
}

/// Returns the seconds since `.ci/run` began, if it runs us.
fn since_start_of_ci() -> Option<u64> {
    let started: u64 = std::env::var("FRAZIL_CI_STARTED").ok()?.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    now.checked_sub(started)
}
