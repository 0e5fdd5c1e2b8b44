//! Settings of Connect and of its consumer that change what this sink receives or promises.

use super::reader::{Reader, shown};

const CONSUMER: &str = "consumer.override.";
const OFFSET_RESET: &str = "consumer.override.auto.offset.reset";
const GROUP: &str = "consumer.override.group.id";
const JSON_CONVERTER: &str = "org.apache.kafka.connect.json.JsonConverter";
const DEAD_LETTERS: &str = "errors.deadletterqueue.topic.name";
const DEAD_LETTER_HEADERS: &str = "errors.deadletterqueue.context.headers.enable";

/// Judges the settings of Connect together with ours.
pub(super) fn judge(reader: &mut Reader<'_>) {
    judge_consumer(reader);
    judge_offset_reset(reader);
    judge_group(reader);
    for side in ["key", "value"] {
        judge_converter(reader, side);
    }
    judge_dead_letters(reader);
}

/// Refuses consumer settings under which records would be lost or could not be read.
fn judge_consumer(reader: &mut Reader<'_>) {
    for (name, value) in reader.below(CONSUMER) {
        let key = format!("{CONSUMER}{name}");
        let value = value.trim();
        match name.as_str() {
            "enable.auto.commit" if value.eq_ignore_ascii_case("true") => reader.error(
                &key,
                "must not be `true`: the consumer would commit offsets of records that are in no \
                 table yet",
            ),
            "key.deserializer" | "value.deserializer"
                if value != "org.apache.kafka.common.serialization.ByteArrayDeserializer" =>
            {
                reader.error(
                    &key,
                    "drop it: Connect hands bytes to the converter; name another converter instead",
                );
            }
            "group.instance.id" if reader.number("tasks.max").is_some_and(|tasks| tasks > 1) => {
                reader.error(
                    &key,
                    "drop it, or set `tasks.max=1`: tasks of one instance id fence each other",
                );
            }
            _ => {}
        }
    }
}

fn judge_offset_reset(reader: &mut Reader<'_>) {
    let Some(word) = reader.word(OFFSET_RESET) else {
        return;
    };
    match word.to_ascii_lowercase().as_str() {
        "earliest" => {}
        "none" => reader.warn(
            OFFSET_RESET,
            "a task fails on a partition for which the consumer group has no offset, so also on \
             the first start",
        ),
        "latest" => reader.warn(
            OFFSET_RESET,
            "records from before the first start are not read; without this key Connect begins \
             with the earliest",
        ),
        other if other.starts_with("by_duration:") => reader.warn(
            OFFSET_RESET,
            "records from before that duration are not read; without this key Connect begins with \
             the earliest",
        ),
        _ => {
            let message = format!(
                "must be `earliest`, `latest` or `none`, not {}",
                shown(OFFSET_RESET, word)
            );
            reader.error(OFFSET_RESET, message);
        }
    }
}

/// Says which group counts when the configuration names another one.
fn judge_group(reader: &mut Reader<'_>) {
    const APACHES: &str = "iceberg.connect.group-id";
    let (Some(named), Some(connector)) = (reader.word(APACHES), reader.word("name")) else {
        return;
    };
    let group = match reader.word(GROUP) {
        Some(group) => group.to_owned(),
        None => format!("connect-{connector}"),
    };
    if named != group {
        let message = format!(
            "the consumer group is {}, and this key does not change it; `{GROUP}` does",
            shown(GROUP, &group)
        );
        reader.warn(APACHES, message);
    }
}

/// Warns of a converter that puts the schema's default where a record says null: what it replaced
/// cannot be seen here any more.
fn judge_converter(reader: &mut Reader<'_>, side: &str) {
    let converter = format!("{side}.converter");
    let option = format!("{converter}.replace.null.with.default");
    let is = |reader: &Reader<'_>, key: &str, word: &str| {
        reader
            .word(key)
            .is_some_and(|value| value.eq_ignore_ascii_case(word))
    };
    let by_default = reader.word(&converter) == Some(JSON_CONVERTER)
        && !is(reader, &format!("{converter}.schemas.enable"), "false")
        && !is(reader, &option, "false");
    if by_default || is(reader, &option, "true") {
        reader.warn(
            &option,
            "the converter replaces an explicit null by the schema's default before the sink sees \
             it; set this to `false` to keep nulls",
        );
    }
}

fn judge_dead_letters(reader: &mut Reader<'_>) {
    let Some(queue) = reader.word(DEAD_LETTERS) else {
        return;
    };
    let topics = reader.word("topics").unwrap_or_default();
    if topics.split(',').any(|topic| topic.trim() == queue) {
        reader.error(
            DEAD_LETTERS,
            "is one of `topics`: a record that does not fit would come back for ever",
        );
    }
    let headers = reader.truth(DEAD_LETTER_HEADERS).unwrap_or(false);
    if !headers {
        reader.warn(
            DEAD_LETTER_HEADERS,
            "set it to `true`: without headers nobody can see why a record is in the queue",
        );
    }
}
