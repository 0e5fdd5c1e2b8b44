//! What Frazil counts for operators: names, units and meanings.
//!
//! The one list. The Java table, `docs/metrics.md` and the check of `monitoring/` are made from it.
//! A [`Family`] becomes one MBean for each value of its keys, `io.frazil.connect:type=<family>,…`, and
//! a [`Metric`] one attribute. The names are a contract with dashboards and alerts: a metric may be
//! added, and one that is there keeps its name and meaning.

mod families;
#[cfg(test)]
mod generated;

use crate::wire::write::Writer;

pub use families::{ConnectorMetric, TableMetric, TaskMetric, WorkerMetric};

/// The version of the layout of snapshots.
pub const SNAPSHOT_VERSION: u8 = 1;
/// The value of what is not known yet, such as the age of the last commit before the first.
pub const UNKNOWN: i64 = i64::MIN;
/// Tables of one connector and process that have metrics of their own. Those of all others are added
/// up under [`OTHER_TABLES`].
pub const TABLES_MAX: usize = 256;
/// Stands for the tables beyond [`TABLES_MAX`]: no table, for that has a namespace before a dot.
pub const OTHER_TABLES: &str = "others";
/// The key of the rejections of all codes together: no code, for those are in capitals.
pub const ALL_CODES: &str = "all";

/// How a metric moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Counts up from the start of what its MBean stands for.
    Total,
    /// Counts up, in milliseconds; nanoseconds are counted.
    Time,
    /// The state of now.
    Gauge,
    /// Milliseconds since a moment; the moment is counted, so that the age is right whenever it is read.
    /// Not a number while there was no such moment.
    Since,
}

impl Kind {
    /// Returns the name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Total => "total",
            Kind::Time => "time",
            Kind::Gauge => "gauge",
            Kind::Since => "since",
        }
    }
}

/// One attribute of an MBean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The attribute.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// What is counted.
    pub unit: &'static str,
    /// What it says, one sentence or two.
    pub doc: &'static str,
}

/// The MBeans of one type.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// The `type` of the name.
    pub name: &'static str,
    /// The keys of the name that follow the type.
    pub keys: &'static [&'static str],
    /// What one MBean stands for.
    pub doc: &'static str,
    /// Its attributes, in the order of their values in a snapshot.
    pub metrics: &'static [Metric],
}

/// A metric that is counted in Rust.
pub trait Named: Copy {
    /// The family that it belongs to.
    const FAMILY: &'static Family;

    /// Returns its place in the family.
    fn index(self) -> usize;
}

/// All families, in the order of their numbers in a snapshot.
pub const FAMILIES: [&Family; 5] = [
    WorkerMetric::FAMILY,
    ConnectorMetric::FAMILY,
    TaskMetric::FAMILY,
    TableMetric::FAMILY,
    families::REJECTIONS,
];

/// The values of one MBean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bean {
    /// Which family.
    pub family: &'static Family,
    /// The values of its keys.
    pub keys: Vec<String>,
    /// The values of its metrics.
    pub values: Vec<i64>,
}

/// Encodes the beans of a snapshot (`docs/wire-format.md`, "Metrics").
pub fn encode(beans: &[Bean]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.u8(SNAPSHOT_VERSION);
    writer.length(beans.len());
    for bean in beans {
        let number = FAMILIES.iter().position(|one| one.name == bean.family.name);
        writer.length(number.unwrap_or(FAMILIES.len()));
        bean.keys.iter().for_each(|key| writer.text(key));
        bean.values.iter().for_each(|value| writer.i64(*value));
    }
    writer.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_say_how_they_move() {
        for family in FAMILIES {
            let mut names: Vec<&str> = family.metrics.iter().map(|one| one.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), family.metrics.len(), "{}", family.name);
            for metric in family.metrics {
                let Metric {
                    name, kind, unit, ..
                } = *metric;
                let small = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                assert!(name.chars().all(small), "{name}");
                let total = matches!(kind, Kind::Total | Kind::Time);
                assert_eq!(total, name.ends_with("-total"), "{name}");
                let timed = matches!(kind, Kind::Time | Kind::Since);
                assert!(!timed || unit == "ms", "{name}");
                assert!(!metric.doc.is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn a_snapshot_has_the_number_keys_and_values_of_each_bean() {
        let bean = Bean {
            family: TaskMetric::FAMILY,
            keys: vec!["c".to_owned(), "3".to_owned()],
            values: vec![7, UNKNOWN],
        };
        let mut expected = vec![SNAPSHOT_VERSION, 1, 0, 0, 0, 2, 0, 0, 0];
        expected.extend([1, 0, 0, 0, b'c', 1, 0, 0, 0, b'3']);
        expected.extend(7i64.to_le_bytes());
        expected.extend(i64::MIN.to_le_bytes());
        assert_eq!(encode(&[bean]), expected);
    }
}
