//! The files made from the list of metrics. A test fails when they differ from it; `UPDATE_EXPECT=1`
//! rewrites them instead.

use std::collections::BTreeSet;
use std::fmt::Write;

use expect_test::expect_file;

use super::{FAMILIES, Metric};

const INTRO: &str = "# Metrics

<!-- Generated from rust/core/src/metrics by `UPDATE_EXPECT=1 cargo test -p frazil-core generated`; \
do not edit. -->

Each worker has MBeans in the domain `io.frazil.connect` of its platform MBean server, on every version \
of Kafka Connect, beside Connect's own in `kafka.connect`. They are read like those: JConsole, \
Jolokia, the JMX exporter of Prometheus. `monitoring/` has rules for that exporter, alerts and a \
dashboard. The names are a contract: a metric may be added, and one that is there keeps its name and \
meaning.

An MBean is there from the start of its task to its end, a failed start included; one of a table \
or connector while any task of it runs in the worker. 256 tables of a connector have metrics of their \
own, in the order in which they were met; those of all others are added up as table `others`, where \
gauges other than rows and lags are those of the table that changed last. A name \
that JMX would misread is in quotes.

Reading costs nothing that counts: the native side is asked once a second at most, for all metrics of a \
task at once, by the task itself and, when that is stuck, by whoever reads.

| kind | what it is |
|---|---|
| total | A number (long) that counts up from the start of what its MBean stands for. |
| time | The same, in milliseconds. |
| gauge | A number (long): the state of now. |
| since | A number (double): milliseconds since a moment, as of when it is read; NaN while there was none. |
";

const EVENTS: &str = "
## One line per commit

The logger `io.frazil.connect.events` has one JSON object per commit, at level INFO, written by a task of \
the worker that committed. Give it an appender of its own where there is no JMX. It has no \
values of records and no secrets. A field may be added, and one that is there keeps its name and meaning.

| field | meaning |
|---|---|
| `event` | `commit` |
| `at_ms` | When the commit was known to be in the table, in milliseconds since 1970. |
| `connector`, `table`, `branch` | What was committed to, and by which connector. |
| `snapshot_id` | The snapshot. |
| `segments` | Segments of tasks in it. |
| `ranges` | Offset ranges of source partitions in it. |
| `rows` | Rows, or changes. |
| `files`, `bytes` | Data files added, and the bytes of all files added. |
| `deletes` | Rows deleted by position. |
| `valid_through_ms` | The timestamp up to which the table has every record; null when it is not known. |
| `attempts` | How many attempts it took. |
| `ms` | Milliseconds from begin to answer, `all`, and of its parts: `load` the table, `check` \
manifests, `build` the commit, `submit` it, `pause` between attempts. |
";

fn tsv() -> String {
    let mut text = String::from(
        "# Generated from rust/core/src/metrics by `UPDATE_EXPECT=1 cargo test -p frazil-core \
         generated`; do not edit.\n# family\tkeys\tmetric\tkind\tmeaning\n",
    );
    for family in FAMILIES {
        for metric in family.metrics {
            writeln!(
                text,
                "{}\t{}\t{}\t{}\t{}",
                family.name,
                family.keys.join(","),
                metric.name,
                metric.kind.name(),
                metric.doc.replace('`', ""),
            )
            .unwrap();
        }
    }
    text
}

fn markdown() -> String {
    let mut text = INTRO.to_owned();
    for family in FAMILIES {
        let keys: Vec<String> = family
            .keys
            .iter()
            .map(|key| format!(",{key}=<{key}>"))
            .collect();
        write!(
            text,
            "\n## {0}\n\n`io.frazil.connect:type={0}{1}`. {2}\n\n\
             | name | kind | unit | meaning |\n|---|---|---|---|\n",
            family.name,
            keys.concat(),
            family.doc,
        )
        .unwrap();
        for metric in family.metrics {
            writeln!(
                text,
                "| `{}` | {} | {} | {} |",
                metric.name,
                metric.kind.name(),
                metric.unit,
                metric.doc,
            )
            .unwrap();
        }
    }
    text + EVENTS
}

#[test]
fn generated_java_table_is_current() {
    expect_file!["../../../../java/src/main/resources/io/frazil/connect/metrics.tsv"]
        .assert_eq(&tsv());
}

#[test]
fn generated_documentation_is_current() {
    expect_file!["../../../../docs/metrics.md"].assert_eq(&markdown());
}

/// Returns what the rules of `monitoring/jmx-exporter.yml` call all metrics.
fn exported() -> BTreeSet<String> {
    let names = FAMILIES.iter().flat_map(|family| {
        let short = family.name.trim_start_matches("sink-");
        let short = short.trim_end_matches("-metrics");
        let of_family = move |metric: &Metric| format!("frazil_{short}_{}", metric.name);
        family.metrics.iter().map(of_family)
    });
    names.map(|name| name.replace('-', "_")).collect()
}

/// Returns the names in `text` that are those of metrics.
fn used(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("frazil_"));
    ours.map(str::to_owned).collect()
}

#[test]
fn alerts_and_dashboard_name_only_metrics_that_exist() {
    let exported = exported();
    for text in [
        include_str!("../../../../monitoring/alerts.yml"),
        include_str!("../../../../monitoring/dashboard.json"),
    ] {
        let used = used(text);
        assert!(used.len() > 10);
        let unknown: Vec<&String> = used.difference(&exported).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
    let rules = used(include_str!("../../../../monitoring/jmx-exporter.yml"));
    let families = FAMILIES.len();
    assert_eq!(rules.len(), families, "a name of each family: {rules:?}");
}
