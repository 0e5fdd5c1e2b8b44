//! The upkeep of tables.

use super::*;

#[test]
fn maintenance_is_asked_for_by_all_tables_or_by_one() {
    let of = |keys: &[(&str, &str)]| parse_sound(keys).tables[0].maintenance_ms;
    assert_eq!(of(&[]), None);
    let enabled = ("iceberg.maintenance.enabled", "true");
    let own = "iceberg.table.db.orders.maintenance-enabled";
    assert_eq!(of(&[enabled]), Some(900_000));
    assert_eq!(of(&[enabled, (own, "false")]), None);
    let often = ("iceberg.maintenance.interval-ms", "5000");
    assert_eq!(of(&[(own, "true"), often]), Some(5_000));
    let seldom = ("iceberg.table.db.orders.maintenance-interval-ms", "7000");
    assert_eq!(of(&[enabled, often, seldom]), Some(7_000));
    assert_refused(&[(
        &[enabled, ("iceberg.maintenance.interval-ms", "999")],
        "iceberg.maintenance.interval-ms",
        "1000",
    )]);
}
