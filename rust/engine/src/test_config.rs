//! A configuration for unit tests that need one and do not look into it.

use std::collections::BTreeMap;

use frazil_core::config::SinkConfig;

/// Makes a sound configuration, of a connector `orders` that writes `db.orders`, with `changes`.
pub(crate) fn sound_config(changes: &[(&str, &str)]) -> SinkConfig {
    let sound = [
        ("name", "orders"),
        ("topics", "orders"),
        ("iceberg.catalog.type", "sql"),
        ("iceberg.catalog.uri", "sqlite:/nowhere/catalog.db"),
        ("iceberg.catalog.warehouse", "file:///nowhere"),
        ("iceberg.tables", "db.orders"),
    ];
    let all = sound.iter().chain(changes);
    let settings: BTreeMap<String, String> = all
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    SinkConfig::start(&settings).expect("sound").0
}
