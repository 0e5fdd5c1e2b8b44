//! What the bytes of values and keys are, and whether Connect hands them through untouched.

use super::reader::{Reader, shown};
use crate::decode::registered::RegisteredKind;
use crate::wire::FrameParts;

/// The converter that hands bytes through.
pub(super) const BYTES_CONVERTER: &str = "org.apache.kafka.connect.converters.ByteArrayConverter";
/// Where Connect's own transforms live.
const CONNECTS: &str = "org.apache.kafka.connect.transforms.";

/// What bytes of records are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataFormat {
    /// Connect's converter says.
    #[default]
    Connect,
    /// JSON without a schema.
    Json,
    /// JSON with a schema, as Connect's JsonConverter writes it.
    JsonEnvelope,
    /// Bytes that name a schema in a registry.
    Registered(RegisteredKind),
}

impl DataFormat {
    /// Tells whether it needs a schema registry.
    pub fn is_registered(self) -> bool {
        matches!(self, DataFormat::Registered(_))
    }
}

/// The formats of both sides of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Formats {
    /// The format of values.
    pub value: DataFormat,
    /// The format of keys.
    pub key: DataFormat,
}

/// Transforms that look into values or keys, by the end of their class, with what does their work
/// where bytes are decoded natively.
const STRUCTURED: &[(&str, &str)] = &[
    (
        "ReplaceField",
        "`iceberg.tables.columns.include` and `…exclude` leave columns out",
    ),
    (
        "MaskField",
        "`iceberg.tables.columns.exclude` and `…hash` keep values out of tables",
    ),
    (
        "InsertField",
        "`iceberg.tables.metadata-columns` adds topic, partition, offset and timestamp",
    ),
    (
        "Cast",
        "values land in the column types of the table, which you may create beforehand",
    ),
    (
        "TimestampConverter",
        "ISO text lands in timestamp columns as it is",
    ),
    ("Flatten", "nested records land as structs"),
    (
        "HoistField",
        "`iceberg.tables.value-column` gives single values a column",
    ),
    (
        "ExtractField",
        "`iceberg.tables.columns.include` picks fields",
    ),
    (
        "SetSchemaMetadata",
        "leave it out: bytes have no schema to name",
    ),
    (
        "HeaderFrom",
        "`iceberg.tables.route-source` reads fields where they are",
    ),
    (
        "ValueToKey",
        "`iceberg.tables.route-source` reads fields where they are",
    ),
    (
        "ExtractTopic",
        "`iceberg.tables.route-source` reads fields where they are",
    ),
    ("ExtractNewRecordState", "use a converter for such topics"),
    (
        "ByLogicalTableRouter",
        "`iceberg.tables.route-pattern` routes by topic",
    ),
    ("CopyValue", "use a converter for such topics"),
    ("DmsTransform", "use a converter for such topics"),
    ("DebeziumTransform", "use a converter for such topics"),
    ("JsonToMapTransform", "leave it out: the format does that"),
    (
        "KafkaMetadataTransform",
        "`iceberg.tables.metadata-columns` adds topic, partition, offset and timestamp",
    ),
];

/// Transforms that look at topics, timestamps and headers only.
const HARMLESS: &[&str] = &[
    "RegexRouter",
    "TimestampRouter",
    "Filter",
    "InsertHeader",
    "DropHeaders",
];

/// Reads the formats; `parts` says what frames have to hold for all else.
pub(super) fn read(reader: &mut Reader<'_>, parts: FrameParts) -> Formats {
    let formats = Formats {
        value: read_side(reader, "value"),
        key: read_side(reader, "key"),
    };
    if formats.key != DataFormat::Connect && !parts.keys {
        reader.error(
            "frazil.key.format",
            "has no effect: nothing reads keys (a route, a metadata column, `key-row`); leave it \
             out, keys are then not even looked at",
        );
    }
    let bytes = reader.word("value.converter") == Some(BYTES_CONVERTER);
    let alone =
        reader.word("iceberg.tables.value-column").is_none() && reader.word("transforms").is_none();
    if bytes && alone && formats.value == DataFormat::Connect {
        reader.warn(
            "frazil.value.format",
            "the converter hands bytes through, which are no records; say here what they are, such \
             as `json`",
        );
    }
    formats
}

fn read_side(reader: &mut Reader<'_>, side: &str) -> DataFormat {
    let key = format!("frazil.{side}.format");
    let word = reader.word(&key).unwrap_or_default().to_ascii_lowercase();
    let format = match word.as_str() {
        "json" => DataFormat::Json,
        "json-envelope" => DataFormat::JsonEnvelope,
        "avro" => DataFormat::Registered(RegisteredKind::Avro),
        "json-schema" => DataFormat::Registered(RegisteredKind::JsonSchema),
        "protobuf" => DataFormat::Registered(RegisteredKind::Protobuf),
        _ => return DataFormat::Connect,
    };
    let converter = format!("{side}.converter");
    let remedy =
        format!("`{key}={word}` decodes the bytes themselves: set this to `{BYTES_CONVERTER}`");
    match reader.word(&converter) {
        Some(BYTES_CONVERTER) => {}
        Some(other) => {
            let message = format!("{remedy}, not {}", shown(&converter, other));
            reader.error(&converter, message);
        }
        None => reader.error(&converter, format!("{remedy}; the worker's own is another")),
    }
    judge_transforms(reader, side, &key);
    format
}

/// Refuses transforms that would look into bytes.
fn judge_transforms(reader: &mut Reader<'_>, side: &str, format_key: &str) {
    let names = reader.word("transforms").unwrap_or_default().to_owned();
    for name in names
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        let type_key = format!("transforms.{name}.type");
        let Some(class) = reader.word(&type_key).map(str::to_owned) else {
            continue;
        };
        let (base, of_side) = match class.split_once('$') {
            Some((base, inner)) => (base, Some(inner.eq_ignore_ascii_case(side))),
            None => (class.as_str(), None),
        };
        let simple = base.rsplit('.').next().unwrap_or_default();
        let reads_values = of_side.unwrap_or(side == "value") || simple == "ValueToKey";
        if of_side == Some(false) && simple != "ValueToKey" || !reads_values {
            continue;
        }
        let found = STRUCTURED.iter().find(|(known, _)| *known == simple);
        let shown_class = shown(&type_key, &class);
        match found {
            Some((_, instead)) => reader.error(
                &type_key,
                format!(
                    "{shown_class} needs records, and with `{format_key}` it would see bytes; \
                     instead, {instead}"
                ),
            ),
            None if base.starts_with(CONNECTS) && HARMLESS.contains(&simple) => {}
            None if HARMLESS.contains(&simple) => {}
            None => reader.warn(
                &type_key,
                format!(
                    "with `{format_key}` {shown_class} sees bytes; it must not look into the {side}"
                ),
            ),
        }
    }
}
