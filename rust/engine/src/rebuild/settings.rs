//! The settings of the session that a log is replayed through: those of the connector, for one table.

use std::collections::BTreeMap;

/// What is kept beside the keys of tables and of the catalog.
const KEPT: &[&str] = &[
    "name",
    "topics",
    "topics.regex",
    "frazil.writer.id",
    "frazil.kafka.cluster.id",
    "frazil.memory.max.bytes",
    "frazil.writers.max-open",
    "frazil.mapping-version",
    "frazil.engines",
    "frazil.state.location",
    "frazil.state.max-bytes",
];
/// Keys for all tables that are about records of the topic, or about other tables.
const LEFT: &[&str] = &[
    "iceberg.tables.route",
    "iceberg.tables.dynamic",
    "iceberg.tables.value-column",
    "iceberg.tables.default-dedup-window-rows",
];

/// Returns the settings for `table` alone, whose offsets were reset `epoch` times.
pub(super) fn of(
    settings: &BTreeMap<String, String>,
    table: &str,
    epoch: u64,
) -> BTreeMap<String, String> {
    let own = format!("iceberg.table.{table}.");
    let is_kept = |key: &str| {
        let is_of_all =
            key.starts_with("iceberg.tables.") && !LEFT.iter().any(|left| key.starts_with(left));
        let of_table = key.strip_prefix(&own);
        KEPT.contains(&key)
            || is_of_all
            || of_table.is_some_and(|own| !own.starts_with("route"))
            || key.starts_with("iceberg.catalog")
            || key.starts_with("iceberg.hadoop")
    };
    let kept = settings.iter().filter(|(key, _)| is_kept(key));
    let mut kept: BTreeMap<String, String> = kept
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let bytes = "org.apache.kafka.connect.converters.ByteArrayConverter";
    for (key, value) in [
        ("iceberg.tables", table),
        ("tasks.max", "1"),
        ("frazil.coordination", "local"),
        ("errors.tolerance", "none"),
        ("iceberg.control.commit.interval-ms", "10000"),
        // Keys stand in the log as the JSON that they are.
        ("key.converter", bytes),
        ("frazil.key.format", "json"),
        ("frazil.internal.epoch", &epoch.to_string()),
    ] {
        kept.insert(key.to_owned(), value.to_owned());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_table_and_the_catalog_are_kept() {
        let settings = [
            ("name", "c"),
            ("iceberg.tables", "db.a,db.b"),
            ("iceberg.tables.route-field", "x"),
            ("iceberg.tables.default-mode", "cdc"),
            ("iceberg.table.db.a.id-columns", "id"),
            ("iceberg.table.db.a.route-regex", "a"),
            ("iceberg.table.db.b.mode", "append"),
            ("iceberg.catalog.uri", "u"),
            ("transforms", "t"),
            ("frazil.value.format", "json"),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let made = of(&settings.into(), "db.a", 3);
        let keys: Vec<&str> = made.keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            [
                "errors.tolerance",
                "frazil.coordination",
                "frazil.internal.epoch",
                "frazil.key.format",
                "iceberg.catalog.uri",
                "iceberg.control.commit.interval-ms",
                "iceberg.table.db.a.id-columns",
                "iceberg.tables",
                "iceberg.tables.default-mode",
                "key.converter",
                "name",
                "tasks.max",
            ]
        );
        assert_eq!(
            (&*made["iceberg.tables"], &*made["frazil.internal.epoch"]),
            ("db.a", "3")
        );
    }
}
