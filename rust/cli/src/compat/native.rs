//! A schema as Frazil's own decoders make it, for a connector that decodes the bytes itself.

use std::collections::BTreeMap;
use std::path::Path;

use frazil_core::SinkError;
use frazil_core::decode::avro::AvroDecoder;
use frazil_core::decode::json_schema::JsonSchemaDecoder;
use frazil_core::decode::protobuf::ProtobufDecoder;
use frazil_core::decode::registered::RegisteredKind;
use frazil_core::wire::SourceSchema;

use super::protobuf;

/// The key that says what the bytes of values are.
const FORMAT_KEY: &str = "frazil.value.format";

/// Returns which decoder reads the values, when they have a schema in a registry and Frazil decodes
/// them.
pub(super) fn kind(settings: &BTreeMap<String, String>) -> Option<RegisteredKind> {
    let word = settings.get(FORMAT_KEY)?.trim().to_ascii_lowercase();
    match word.as_str() {
        "avro" => Some(RegisteredKind::Avro),
        "json-schema" => Some(RegisteredKind::JsonSchema),
        "protobuf" => Some(RegisteredKind::Protobuf),
        _ => None,
    }
}

/// Reads the schema in `text`, which is the file at `path`.
pub(super) fn read(
    kind: RegisteredKind,
    path: &Path,
    text: &str,
    message: Option<&str>,
) -> Result<SourceSchema, String> {
    let (extension, word) = match kind {
        RegisteredKind::Avro => ("avsc", "avro"),
        RegisteredKind::JsonSchema => ("json", "json-schema"),
        RegisteredKind::Protobuf => ("proto", "protobuf"),
    };
    if path.extension().and_then(|name| name.to_str()) != Some(extension) {
        return Err(format!(
            "the connector has `{FORMAT_KEY}={word}`: the name must end in .{extension}"
        ));
    }
    let schema = match kind {
        RegisteredKind::Avro => AvroDecoder::new(text, &[]).map(|read| read.schema().clone()),
        RegisteredKind::JsonSchema => {
            JsonSchemaDecoder::new(text, &[]).map(|read| read.schema().clone())
        }
        RegisteredKind::Protobuf => {
            let place = protobuf::place(path, message)?;
            let imports: Vec<(&str, &str)> = place
                .imports
                .iter()
                .map(|(name, text)| (name.as_str(), text.as_str()))
                .collect();
            ProtobufDecoder::new(text, &imports, &place.indexes).map(|read| read.schema().clone())
        }
    };
    let schema = schema.map_err(|error: SinkError| error.report())?;
    Ok(schema.as_ref().clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat::tests::shown;

    // Promise: `frazil compat` takes a schema for what Frazil's own decoder makes of it where the
    // connector decodes the bytes itself: what the decoder refuses is refused beforehand
    #[test]
    fn a_schema_is_what_the_decoder_makes_of_it() {
        let avro = r#"{"type":"record","name":"R","fields":[
            {"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}}]}"#;
        let read_avro = |text| read(RegisteredKind::Avro, Path::new("r.avsc"), text, None);
        let decoded = shown(&read_avro(avro).unwrap());
        let converted = shown(&super::super::avro::parse(avro).unwrap());
        assert_eq!(converted, "{at: int64}");
        assert_ne!(decoded, converted, "the decoder keeps the unit");
        let itself = r##"{"type":"object","properties":{"n":{"$ref":"#"}}}"##;
        let error = read(
            RegisteredKind::JsonSchema,
            Path::new("r.json"),
            itself,
            None,
        )
        .unwrap_err();
        assert!(error.contains("SCHEMA_TOO_DEEP"), "{error}");
        let wrong = read(RegisteredKind::Avro, Path::new("r.json"), avro, None).unwrap_err();
        assert!(wrong.contains(".avsc"), "{wrong}");
    }

    #[test]
    fn a_message_inside_of_another_is_found_with_its_imports() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let part = r#"syntax = "proto3"; package p; message Part { string sku = 1; }"#;
        std::fs::write(at("part.proto"), part).unwrap();
        let text = r#"syntax = "proto3"; package p; import "part.proto";
            import "google/protobuf/timestamp.proto";
            message First { int32 i = 1; }
            message Order { message No { bool b = 1; } message Line { Part part = 1;
                google.protobuf.Timestamp at = 2; } }"#;
        std::fs::write(at("order.proto"), text).unwrap();
        let read = |message| {
            let path = at("order.proto");
            let schema = read(RegisteredKind::Protobuf, &path, text, message);
            shown(&schema.unwrap())
        };
        assert_eq!(read(None), "{i: int32?}");
        let line = read(Some("Line"));
        assert!(line.starts_with("{part: {sku: string?}?, at: "), "{line}");
    }

    #[test]
    fn only_formats_of_a_registry_have_such_a_schema() {
        let with = |word: &str| kind(&[(FORMAT_KEY.to_owned(), word.to_owned())].into());
        assert_eq!(with(" Avro "), Some(RegisteredKind::Avro));
        assert_eq!((with("json"), with("connect")), (None, None));
        assert_eq!(kind(&BTreeMap::new()), None);
    }
}
