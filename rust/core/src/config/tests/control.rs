//! Coordination and the control topic.

use super::*;

#[test]
fn coordination_is_what_the_connector_resolved() {
    for (changes, expected) in [
        (&[][..], Coordination::Local),
        (&[("frazil.coordination", "auto")], Coordination::Local),
        (&[("frazil.coordination", "Topic")], Coordination::Topic),
        (
            &[("frazil.internal.coordination", "topic")],
            Coordination::Topic,
        ),
        (
            &[
                ("frazil.coordination", "topic"),
                ("frazil.internal.coordination", "local"),
            ],
            Coordination::Local,
        ),
    ] {
        let config = parse_sound(changes);
        assert_eq!(config.control.coordination, expected, "{changes:?}");
    }
    assert_refused(&[(
        &[("frazil.coordination", "broker")],
        "frazil.coordination",
        "must be one of `auto`, `local`, `topic`, not `broker`",
    )]);
}

#[test]
fn what_coordination_needs_has_its_defaults() {
    let config = parse_sound(&[]);
    assert_eq!(config.role, Role::Task);
    assert_eq!(config.control.topic, "frazil-control");
    assert_eq!(config.control.epoch, 0);
    assert_eq!(config.control.segment_ttl_ms, 3_600_000);
    let config = parse_sound(&[
        ("frazil.internal.role", "channel"),
        ("frazil.control.topic", " team.a_control-1 "),
        ("frazil.internal.epoch", "7"),
        ("frazil.segment.ttl-ms", "60000"),
    ]);
    assert_eq!(config.role, Role::Channel);
    assert_eq!(config.control.topic, "team.a_control-1");
    assert_eq!(config.control.epoch, 7);
    assert_eq!(config.control.segment_ttl_ms, 60_000);
    let admin = parse_sound(&[("frazil.internal.role", "admin")]);
    assert_eq!(admin.role, Role::Admin);
}

#[test]
fn the_control_topic_is_frazils_alone() {
    const TOPIC: &str = "frazil.control.topic";
    let long = "x".repeat(250);
    assert_refused(&[
        (&[(TOPIC, "a b")], TOPIC, "not a name of a topic"),
        (&[(TOPIC, " ")], TOPIC, "not a name of a topic"),
        (&[(TOPIC, "..")], TOPIC, "not a name of a topic"),
        (&[(TOPIC, &long)], TOPIC, "1 to 249 letters"),
        (
            &[(TOPIC, "control-iceberg")],
            TOPIC,
            "the Apache sink's control topic",
        ),
        (
            &[(TOPIC, "b"), ("topics", "a, b")],
            TOPIC,
            "`topics` names this topic too",
        ),
        (
            &[(TOPIC, "b"), ("iceberg.control.topic", "b")],
            TOPIC,
            "`iceberg.control.topic` names this topic too",
        ),
        (
            &[(TOPIC, "b"), ("errors.deadletterqueue.topic.name", "b")],
            TOPIC,
            "`errors.deadletterqueue.topic.name` names",
        ),
    ]);
}

// Promise: keys of the Apache sink's control topic and groups are accepted, without effect, and
// each is reported once
#[test]
fn keys_of_another_control_topic_are_inert() {
    let (config, problems) = SinkConfig::parse(&sound_with(&[
        ("iceberg.control.topic", "control-iceberg"),
        ("iceberg.control.group-id-prefix", "cg-x-"),
        ("iceberg.control.group-id", "cg-x"),
        ("iceberg.connect.group-id", "connect-orders"),
        ("iceberg.kafka.bootstrap.servers", "broker:9092"),
        ("iceberg.kafka.group.id", "mine"),
        ("iceberg.kafka.transactional.id", "mine"),
        ("iceberg.kafka.auto.offset.reset", "earliest"),
    ]));
    assert_eq!(config.unwrap().control.topic, "frazil-control");
    let mut warned: Vec<&str> = Vec::new();
    for problem in &problems {
        assert!(
            problem.message.starts_with("has no effect: "),
            "{problem:?}"
        );
        warned.push(&problem.key);
    }
    assert_eq!(
        warned,
        [
            "iceberg.connect.group-id",
            "iceberg.control.group-id",
            "iceberg.control.group-id-prefix",
            "iceberg.control.topic",
            "iceberg.kafka.auto.offset.reset",
            "iceberg.kafka.group.id",
            "iceberg.kafka.transactional.id",
        ]
    );
}
