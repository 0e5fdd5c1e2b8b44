//! Keys about the upkeep of tables.

use super::KeyType::{Boolean, Long};
use super::{Group, Key};

/// Keys about maintenance.
pub(super) const MAINTENANCE: Group = Group {
    title: "Maintenance",
    intro: "Small data files are merged, and files of which many rows are deleted are written again, \
            in the process that commits the table; docs/maintenance.md says when and how. The same is \
            done once by `frazil maintain`.",
    keys: &[
        Key::own(
            "iceberg.maintenance.enabled",
            Boolean,
            "Look after the tables beside the commits. Not for tables that another engine compacts: \
             the two would get into each other's way.",
        )
        .or("false")
        .medium(),
        Key::own(
            "iceberg.table.<name>.maintenance-enabled",
            Boolean,
            "As `iceberg.maintenance.enabled`, for this table.",
        ),
        Key::own(
            "iceberg.maintenance.interval-ms",
            Long,
            "Milliseconds between two looks at a table that was committed since.",
        )
        .or("900000")
        .within(1_000, i32::MAX as i64),
        Key::own(
            "iceberg.table.<name>.maintenance-interval-ms",
            Long,
            "As `iceberg.maintenance.interval-ms`, for this table.",
        )
        .within(1_000, i32::MAX as i64),
    ],
};
