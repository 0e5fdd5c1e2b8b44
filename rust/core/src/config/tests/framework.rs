//! Settings of Connect and of its consumer that matter here.

use super::*;

const RESET: &str = "consumer.override.auto.offset.reset";

// Promise: consumer settings that would lose records or break the converter are refused by key
#[test]
fn consumer_settings_that_break_the_sink_are_refused() {
    const AUTO_COMMIT: &str = "consumer.override.enable.auto.commit";
    const DESERIALIZER: &str = "consumer.override.value.deserializer";
    const INSTANCE: &str = "consumer.override.group.instance.id";
    assert_refused(&[
        (&[(AUTO_COMMIT, "true")], AUTO_COMMIT, "in no table yet"),
        (
            &[(
                DESERIALIZER,
                "org.apache.kafka.common.serialization.StringDeserializer",
            )],
            DESERIALIZER,
            "name another converter",
        ),
        (
            &[(INSTANCE, "a"), ("tasks.max", "2")],
            INSTANCE,
            "`tasks.max=1`",
        ),
        (&[(RESET, "newest")], RESET, "must be `earliest`"),
        (
            &[
                ("errors.tolerance", "all"),
                ("errors.deadletterqueue.topic.name", "orders"),
                ("errors.deadletterqueue.context.headers.enable", "true"),
            ],
            "errors.deadletterqueue.topic.name",
            "one of `topics`",
        ),
    ]);
    for changes in [
        &[(AUTO_COMMIT, "false")][..],
        &[(INSTANCE, "a")],
        &[(RESET, "earliest")],
        &[(
            DESERIALIZER,
            "org.apache.kafka.common.serialization.ByteArrayDeserializer",
        )],
        &[("consumer.override.max.poll.records", "5000")],
    ] {
        assert_eq!(SinkConfig::parse(&sound_with(changes)).1, [], "{changes:?}");
    }
}

// Promise: a converter that replaces nulls, an offset reset that skips records and a group that is not
// the consumer's are warned of at `validate`
#[test]
fn what_surprises_is_warned_of() {
    const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";
    const NULLS: &str = "value.converter.replace.null.with.default";
    const GROUP: &str = "iceberg.connect.group-id";
    assert_warned(&[
        (&[("value.converter", JSON)], NULLS, "explicit null"),
        (
            &[
                ("key.converter", JSON),
                ("key.converter.schemas.enable", "true"),
            ],
            "key.converter.replace.null.with.default",
            "explicit null",
        ),
        (
            &[("value.converter", "com.example.Own"), (NULLS, "true")],
            NULLS,
            "explicit null",
        ),
        (&[(RESET, "latest")], RESET, "before the first start"),
        (
            &[(RESET, "by_duration:PT1H")],
            RESET,
            "before that duration",
        ),
        (&[(RESET, "none")], RESET, "no offset"),
        (
            &[
                ("errors.tolerance", "all"),
                ("errors.deadletterqueue.topic.name", "dead"),
            ],
            "errors.deadletterqueue.context.headers.enable",
            "why a record is in the queue",
        ),
    ]);
    for changes in [
        &[("value.converter", JSON), (NULLS, "false")][..],
        &[
            ("value.converter", JSON),
            ("value.converter.schemas.enable", "false"),
        ],
        &[("value.converter", "com.example.Own")],
    ] {
        assert_eq!(SinkConfig::parse(&sound_with(changes)).1, [], "{changes:?}");
    }
    let group = |changes: &[(&str, &str)]| {
        let problems = SinkConfig::parse(&sound_with(changes)).1;
        let shown: Vec<String> = problems
            .into_iter()
            .map(|problem| problem.message)
            .collect();
        shown.join(" ")
    };
    assert!(group(&[(GROUP, "other")]).contains("the consumer group is `connect-orders`"));
    let own = [(GROUP, "own"), ("consumer.override.group.id", "own")];
    assert!(!group(&own).contains("the consumer group is `"));
}
