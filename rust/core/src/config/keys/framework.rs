//! Keys of Connect itself. Connect checks them; Frazil only reads some.

use super::KeyType::{Boolean, Int, List, Long, String};
use super::{Group, Key};

/// Connect's keys.
pub(super) const FRAMEWORK: Group = Group {
    title: "Kafka Connect",
    intro: "Keys of Kafka Connect, see its documentation. Keys that begin with neither `iceberg.` \
            nor `frazil.` are never refused here.",
    keys: &[
        Key::framework("name", String, "The connector's name.").high(),
        Key::framework(
            "connector.class",
            String,
            "`io.frazil.connect.FrazilSinkConnector`.",
        )
        .high(),
        Key::framework("tasks.max", Int, "The number of tasks.")
            .or("1")
            .within(1, i32::MAX as i64)
            .high(),
        Key::framework("topics", List, "The topics to read.").high(),
        Key::framework("topics.regex", String, "The topics to read, as a pattern.").high(),
        Key::framework("key.converter", String, "How record keys are read.").high(),
        Key::framework("key.converter.*", String, "Settings of that converter."),
        Key::framework("value.converter", String, "How record values are read.").high(),
        Key::framework("value.converter.*", String, "Settings of that converter."),
        Key::framework("header.converter", String, "How headers are read."),
        Key::framework("header.converter.*", String, "Settings of that converter."),
        Key::framework("transforms", List, "Transforms before the sink.").medium(),
        Key::framework("transforms.*", String, "Settings of the transforms."),
        Key::framework("predicates", List, "Conditions of the transforms."),
        Key::framework("predicates.*", String, "Settings of the conditions."),
        Key::framework(
            "errors.tolerance",
            String,
            "`none`: a record that does not fit stops the task. `all`: it goes to the dead letter \
             queue.",
        )
        .or("none")
        .one_of(&["none", "all"], "")
        .medium(),
        Key::framework(
            "errors.deadletterqueue.topic.name",
            String,
            "The dead letter queue. `errors.tolerance=all` needs it, or `frazil.errors.drop=true`.",
        )
        .medium(),
        Key::framework(
            "errors.deadletterqueue.*",
            String,
            "Settings of that queue.",
        ),
        Key::framework("errors.log.enable", Boolean, "Log records that do not fit.").or("false"),
        Key::framework(
            "errors.log.include.messages",
            Boolean,
            "Log their topic, partition and offset too.",
        )
        .or("false"),
        Key::framework(
            "errors.retry.timeout",
            Long,
            "How long to retry transforms.",
        )
        .or("0"),
        Key::framework(
            "errors.retry.delay.max.ms",
            Long,
            "The longest pause between retries.",
        )
        .or("60000"),
        Key::framework(
            "config.action.reload",
            String,
            "What happens when a config provider has new values.",
        )
        .or("restart"),
        Key::framework("consumer.override.*", String, "Settings of the consumer."),
        Key::framework("producer.override.*", String, "Settings of producers."),
        Key::framework("admin.override.*", String, "Settings of admin clients."),
    ],
};
