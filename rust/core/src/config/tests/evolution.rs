//! How tables follow their records, and what becomes of those they cannot follow.

use super::*;

#[test]
fn the_mode_of_evolution_is_the_nearest_that_is_set() {
    let tables = ("iceberg.tables", "db.a, db.b");
    let modes = |pairs: &[(&str, &str)]| {
        let mut all = vec![tables];
        all.extend_from_slice(pairs);
        let config = parse_sound(&all);
        config
            .tables
            .iter()
            .map(|table| table.evolution.mode)
            .collect::<Vec<_>>()
    };
    let (off, add, full) = (
        EvolutionMode::Off,
        EvolutionMode::AddOnly,
        EvolutionMode::Full,
    );
    let (mode, truth) = (
        "iceberg.tables.evolve-schema-mode",
        "iceberg.tables.evolve-schema-enabled",
    );
    let (own_mode, own_truth) = (
        "iceberg.table.db.b.evolve-schema-mode",
        "iceberg.table.db.b.evolve-schema-enabled",
    );
    assert_eq!(modes(&[]), [off, off]);
    assert_eq!(modes(&[(truth, "true")]), [full, full]);
    assert_eq!(modes(&[(mode, "Add-Only")]), [add, add]);
    assert_eq!(modes(&[(mode, "add-only"), (truth, "true")]), [add, add]);
    assert_eq!(modes(&[(truth, "true"), (own_mode, "off")]), [full, off]);
    assert_eq!(
        modes(&[(mode, "add-only"), (own_truth, "true")]),
        [add, full]
    );
    assert_eq!(modes(&[(own_truth, "true")]), [off, full]);
    for pairs in [
        [tables, (mode, "full"), (truth, "false")],
        [tables, (mode, "off"), (truth, "true")],
        [tables, (own_mode, "off"), (own_truth, "true")],
    ] {
        let (_, problems) = SinkConfig::parse(&sound_with(&pairs));
        assert!(
            problems.iter().any(|problem| problem.key == pairs[1].0
                && problem.message.contains("contradicts")),
            "{problems:?}"
        );
    }
}

#[test]
fn what_breaks_has_a_policy_for_each_table() {
    let config = parse_sound(&[
        ("iceberg.tables", "db.a, db.b"),
        ("iceberg.tables.breaking-change-policy", "block-table"),
        ("iceberg.table.db.b.breaking-change-policy", "FAIL"),
        ("iceberg.tables.evolve-schema-max-columns-per-commit", "7"),
        ("iceberg.tables.evolve-schema-max-columns", "70"),
    ]);
    let [a, b] = config.tables.as_slice() else {
        panic!("two tables");
    };
    let policies = (a.evolution.breaking, b.evolution.breaking);
    assert_eq!(policies, (BreakingPolicy::BlockTable, BreakingPolicy::Fail));
    assert_eq!(
        (a.evolution.columns_per_commit, a.evolution.columns_max),
        (7, 70)
    );
}
