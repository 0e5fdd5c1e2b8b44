//! A Protobuf message as the schema that Confluent's ProtobufConverter makes of it.
//!
//! All that a `.proto` file imports is read too: from the folder of the file, those of Protobuf
//! itself, and the few that a schema registry knows by itself (`KNOWN`).

use std::collections::BTreeMap;
use std::path::Path;

use frazil_core::wire::{LogicalType, SourceKind, SourceSchema};
use prost_reflect::{
    DescriptorPool, FieldDescriptor, Kind, MessageDescriptor, OneofDescriptor, Value,
};
use protox::Compiler;
use protox::file::{
    ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver,
};

/// Files that registries have, as far as schemas need them.
const KNOWN: [(&str, &str); 4] = [
    (
        "confluent/meta.proto",
        r#"syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }"#,
    ),
    (
        "confluent/type/decimal.proto",
        r#"syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"#,
    ),
    (
        "google/type/date.proto",
        r#"syntax = "proto3"; package google.type;
        message Date { int32 year = 1; int32 month = 2; int32 day = 3; }"#,
    ),
    (
        "google/type/timeofday.proto",
        r#"syntax = "proto3"; package google.type;
        message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"#,
    ),
];

/// What the converter is told (`value.converter.…`).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options {
    flatten_unions: bool,
    wrapper_for_nullables: bool,
    optional_for_nullables: bool,
    int_for_enums: bool,
}

impl Options {
    /// Reads them from the connector's configuration.
    pub(super) fn of(settings: &BTreeMap<String, String>) -> Self {
        let is_set = |name: &str| {
            let word = settings.get(&format!("value.converter.{name}"));
            word.is_some_and(|word| word.trim() == "true")
        };
        Options {
            flatten_unions: is_set("flatten.unions"),
            wrapper_for_nullables: is_set("wrapper.for.nullables"),
            optional_for_nullables: is_set("optional.for.nullables"),
            int_for_enums: is_set("int.for.enums"),
        }
    }
}

/// Reads the file at `path`. The record is the message called `message`, else the first of the file.
pub(super) fn parse(
    path: &Path,
    message: Option<&str>,
    options: Options,
) -> Result<SourceSchema, String> {
    let (compiler, name) = compile(path)?;
    let pool = compiler.descriptor_pool();
    let record = record_of(&pool, &name, message)?;
    let walk = Walk {
        options,
        meta: pool.clone(),
    };
    walk.message(&record, &mut Vec::new())
}

/// Where the message of a record stands.
pub(super) struct Place {
    /// Name and text of each file that is imported.
    pub(super) imports: Vec<(String, String)>,
    /// The message's index in its file, after those of the messages around it.
    pub(super) indexes: Vec<u32>,
}

/// Returns where the record's message stands in the file at `path`, and what that imports.
pub(super) fn place(path: &Path, message: Option<&str>) -> Result<Place, String> {
    let (compiler, name) = compile(path)?;
    let record = record_of(&compiler.descriptor_pool(), &name, message)?;
    let mut imports = Vec::new();
    for file in compiler.files().filter(|file| file.name() != name) {
        // What lies nowhere is known to every compiler, and to the decoder.
        let Some(path) = file.path() else { continue };
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        imports.push((file.name().to_owned(), text));
    }
    // In a path each index follows the number of the list that it is in.
    let indexes = record.path().chunks(2).filter_map(|step| step.get(1));
    let indexes = indexes.filter_map(|index| u32::try_from(*index).ok());
    Ok(Place {
        imports,
        indexes: indexes.collect(),
    })
}

/// Compiles the file at `path` and what it imports; the file's name in the result.
fn compile(path: &Path) -> Result<(Compiler, String), String> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or("the file has no name")?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut files = ChainFileResolver::new();
    files.add(IncludeFileResolver::new(folder.to_owned()));
    files.add(GoogleFileResolver::new());
    files.add(Registered);
    let mut compiler = Compiler::with_file_resolver(files);
    compiler
        .include_imports(true)
        .open_files([name])
        .map_err(|error| error.to_string())?;
    Ok((compiler, name.to_owned()))
}

fn record_of(
    pool: &DescriptorPool,
    file: &str,
    message: Option<&str>,
) -> Result<MessageDescriptor, String> {
    let file = pool.get_file_by_name(file).ok_or("the file is empty")?;
    let found = match message {
        None => file.messages().next(),
        Some(wanted) => pool.all_messages().find(|message| {
            *message.parent_file().name() == *file.name()
                && (message.full_name() == wanted || message.name() == wanted)
        }),
    };
    found.ok_or_else(|| match message {
        None => "the file has no message".to_owned(),
        Some(name) => format!("the file has no message `{name}`"),
    })
}

/// The files of [`KNOWN`].
struct Registered;

impl FileResolver for Registered {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match KNOWN.iter().find(|(known, _)| *known == name) {
            Some((_, source)) => File::from_source(name, source),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

struct Walk {
    options: Options,
    meta: DescriptorPool,
}

impl Walk {
    /// `around` are the messages that this one is in.
    fn message(
        &self,
        message: &MessageDescriptor,
        around: &mut Vec<String>,
    ) -> Result<SourceSchema, String> {
        let full_name = message.full_name().to_owned();
        // Where a message contains itself, Java hands over text (docs/types.md).
        if around.contains(&full_name) {
            return Ok(SourceSchema::scalar(SourceKind::String));
        }
        around.push(full_name);
        let mut fields = Vec::new();
        if !self.options.flatten_unions {
            for (index, oneof) in real_oneofs(message).enumerate() {
                let name = format!("{}_{index}", oneof.name());
                fields.push((name, self.oneof(&oneof, around)?));
            }
        }
        // In the order of their numbers they are only in the descriptor.
        let mut all: Vec<FieldDescriptor> = message.fields().collect();
        all.sort_by_key(|field| position(message, field));
        for field in all {
            let oneof = field.containing_oneof();
            let is_alone = oneof.is_none_or(|oneof| oneof.is_synthetic());
            if is_alone || self.options.flatten_unions {
                fields.push((field.name().to_owned(), self.field(&field, around)?));
            }
        }
        around.pop();
        let fields = fields
            .iter()
            .map(|(name, schema)| (name.as_str(), schema.clone()));
        Ok(SourceSchema::structure(fields).named(message.name()))
    }

    fn oneof(
        &self,
        oneof: &OneofDescriptor,
        around: &mut Vec<String>,
    ) -> Result<SourceSchema, String> {
        let mut fields = Vec::new();
        for field in oneof.fields() {
            fields.push((
                field.name().to_owned(),
                self.field(&field, around)?.optional(),
            ));
        }
        let fields = fields
            .iter()
            .map(|(name, schema)| (name.as_str(), schema.clone()));
        let name = format!("io.confluent.connect.protobuf.Union.{}", oneof.name());
        Ok(SourceSchema::structure(fields).named(&name).optional())
    }

    fn field(
        &self,
        field: &FieldDescriptor,
        around: &mut Vec<String>,
    ) -> Result<SourceSchema, String> {
        if field.is_map() {
            let Kind::Message(entry) = field.kind() else {
                return Err(format!("field `{}` is a map without entries", field.name()));
            };
            let key = self.one(&entry.map_entry_key_field(), around)?;
            let value = self.one(&entry.map_entry_value_field(), around)?;
            let map = SourceSchema::map(key, value);
            return Ok(match self.options.wrapper_for_nullables {
                true => map,
                false => map.optional(),
            });
        }
        let one = self.one(field, around)?;
        match field.is_list() {
            true => Ok(SourceSchema::array(one.optional()).optional()),
            false => Ok(one),
        }
    }

    /// Returns the schema of a single value.
    fn one(
        &self,
        field: &FieldDescriptor,
        around: &mut Vec<String>,
    ) -> Result<SourceSchema, String> {
        let scalar = SourceSchema::scalar;
        let made = match field.kind() {
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
                match self.parameter(field, "connect.type").as_deref() {
                    Some("int8") => scalar(SourceKind::Int8),
                    Some("int16") => scalar(SourceKind::Int16),
                    _ => scalar(SourceKind::Int32),
                }
            }
            Kind::Uint32
            | Kind::Fixed32
            | Kind::Int64
            | Kind::Uint64
            | Kind::Sint64
            | Kind::Fixed64
            | Kind::Sfixed64 => scalar(SourceKind::Int64),
            Kind::Float => scalar(SourceKind::Float32),
            Kind::Double => scalar(SourceKind::Float64),
            Kind::Bool => scalar(SourceKind::Boolean),
            Kind::String => scalar(SourceKind::String),
            Kind::Bytes => scalar(SourceKind::Bytes),
            Kind::Enum(_) if self.options.int_for_enums => {
                return Ok(scalar(SourceKind::Int32).optional());
            }
            Kind::Enum(of) => return Ok(scalar(SourceKind::String).named(of.name()).optional()),
            Kind::Message(message) => {
                return Ok(self.nested(field, &message, around)?.optional());
            }
        };
        let told = self.options.optional_for_nullables;
        let is_optional = match (self.options.wrapper_for_nullables, told) {
            (true, false) => false,
            (_, true) => field.field_descriptor_proto().proto3_optional(),
            (false, false) => true,
        };
        Ok(match is_optional {
            true => made.optional(),
            false => made,
        })
    }

    fn nested(
        &self,
        field: &FieldDescriptor,
        message: &MessageDescriptor,
        around: &mut Vec<String>,
    ) -> Result<SourceSchema, String> {
        let scalar = SourceSchema::scalar;
        Ok(match message.full_name() {
            "confluent.type.Decimal" => {
                let scale = self.parameter(field, "scale");
                let scale = scale.and_then(|scale| scale.parse().ok()).unwrap_or(0);
                let decimal = SourceSchema::logical_type(LogicalType::Decimal { scale });
                match self.parameter(field, "precision") {
                    Some(digits) => decimal.with_parameter("connect.decimal.precision", &digits),
                    None => decimal,
                }
            }
            "google.type.Date" => SourceSchema::logical_type(LogicalType::Date),
            "google.type.TimeOfDay" => SourceSchema::logical_type(LogicalType::Time),
            "google.protobuf.Timestamp" => SourceSchema::logical_type(LogicalType::Timestamp),
            name => {
                let wrapped = wrapped(name).filter(|_| self.options.wrapper_for_nullables);
                match wrapped {
                    Some(kind) => scalar(kind),
                    None => self.message(message, around)?,
                }
            }
        })
    }

    /// Returns what `confluent.field_meta` says of a field.
    fn parameter(&self, field: &FieldDescriptor, name: &str) -> Option<String> {
        let extension = self.meta.get_extension_by_name("confluent.field_meta")?;
        let options = field.options();
        if !options.has_extension(&extension) {
            return None;
        }
        let meta = options.get_extension(&extension);
        let params = meta.as_message()?.get_field_by_name("params")?;
        let key = prost_reflect::MapKey::String(name.to_owned());
        match params.as_map()?.get(&key)? {
            Value::String(text) => Some(text.clone()),
            _ => None,
        }
    }
}

fn wrapped(name: &str) -> Option<SourceKind> {
    Some(match name.strip_prefix("google.protobuf.")? {
        "DoubleValue" => SourceKind::Float64,
        "FloatValue" => SourceKind::Float32,
        "Int64Value" | "UInt64Value" | "UInt32Value" => SourceKind::Int64,
        "Int32Value" => SourceKind::Int32,
        "BoolValue" => SourceKind::Boolean,
        "StringValue" => SourceKind::String,
        "BytesValue" => SourceKind::Bytes,
        _ => return None,
    })
}

/// Returns the oneofs that the file has; those behind `optional` are no more than a flag.
fn real_oneofs(message: &MessageDescriptor) -> impl Iterator<Item = OneofDescriptor> + use<> {
    let oneofs: Vec<OneofDescriptor> = message.oneofs().collect();
    oneofs.into_iter().filter(|oneof| !oneof.is_synthetic())
}

/// Returns where a field stands in its message.
fn position(message: &MessageDescriptor, field: &FieldDescriptor) -> usize {
    let declared = &message.descriptor_proto().field;
    let mut names = declared.iter().map(|field| field.name());
    names
        .position(|name| name == field.name())
        .unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat::tests::shown;

    const ORDER: &str = r#"
        syntax = "proto3";
        package shop;
        import "google/protobuf/timestamp.proto";
        import "google/protobuf/wrappers.proto";
        import "google/type/date.proto";
        import "confluent/meta.proto";
        import "confluent/type/decimal.proto";
        message Order {
          int64 id = 5;
          int32 small = 2 [(confluent.field_meta).params = {key: "connect.type", value: "int16"}];
          uint32 count = 3;
          fixed64 big = 4;
          float f = 1;
          bool b = 6;
          bytes raw = 7;
          optional string note = 8;
          Kind kind = 9;
          google.protobuf.Timestamp at = 10;
          google.type.Date day = 11;
          confluent.type.Decimal price = 12 [(confluent.field_meta) = {
            params: [{key: "scale", value: "2"}, {key: "precision", value: "9"}]}];
          repeated Line lines = 13;
          map<string, int32> tags = 14;
          google.protobuf.Int32Value perhaps = 15;
          oneof way { string ship = 16; int32 pick_up = 17; }
          Node node = 18;
          enum Kind { NONE = 0; }
          message Line { string sku = 1; double n = 2; }
        }
        message Node { string name = 1; repeated Node inner = 2; }
    "#;

    fn read(text: &str, message: Option<&str>, options: Options) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("order.proto");
        std::fs::write(&path, text).unwrap();
        parse(&path, message, options).map(|schema| shown(&schema))
    }

    // Promise: `frazil compat` reads a Protobuf message as Confluent's converter does, imports,
    // oneofs, well-known types and messages that contain themselves included
    #[test]
    fn every_kind_of_field_is_what_the_converter_makes_of_it() {
        let read_with = |options| read(ORDER, None, options).unwrap();
        assert_eq!(
            read_with(Options::default()),
            "{way_0: {ship: string?, pick_up: int32?}?, id: int64?, small: int16?, count: int64?, \
             big: int64?, f: float32?, b: boolean?, raw: bytes?, note: string?, kind: string?, \
             at: timestamp?, day: date?, price: decimal?, lines: array<{sku: string?, n: float64?}?>?, \
             tags: map<int32?>?, perhaps: {value: int32?}?, \
             node: {name: string?, inner: array<string?>?}?}"
        );
        let flat = read_with(Options {
            flatten_unions: true,
            wrapper_for_nullables: true,
            int_for_enums: true,
            ..Options::default()
        });
        assert!(
            flat.starts_with("{id: int64, small: int16, count: int64, big: int64, f: float32,"),
            "{flat}"
        );
        assert!(flat.contains("kind: int32?"), "{flat}");
        assert!(
            flat.contains("perhaps: int32?, ship: string, pick_up: int32,"),
            "{flat}"
        );
        let told = read_with(Options {
            optional_for_nullables: true,
            ..Options::default()
        });
        assert!(told.contains("raw: bytes, note: string?,"), "{told}");
    }

    #[test]
    fn a_message_is_found_by_its_name() {
        for name in ["Line", "shop.Order.Line"] {
            let line = read(ORDER, Some(name), Options::default()).unwrap();
            assert_eq!(line, "{sku: string?, n: float64?}");
        }
        let error = read(ORDER, Some("Nobody"), Options::default()).unwrap_err();
        assert!(error.contains("`Nobody`"), "{error}");
        // What is imported is none of the file's.
        assert!(read(ORDER, Some("Timestamp"), Options::default()).is_err());
    }

    #[test]
    fn what_is_no_schema_says_why() {
        for (text, part) in [
            ("syntax = \"proto3\";", "no message"),
            ("message {", "expected"),
            (
                "syntax = \"proto3\"; import \"nowhere.proto\";",
                "nowhere.proto",
            ),
            (
                "syntax = \"proto3\"; message M { Missing m = 1; }",
                "Missing",
            ),
        ] {
            let error = read(text, None, Options::default()).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_converter_is_asked_by_its_keys() {
        let settings = [("value.converter.flatten.unions", "true")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let options = Options::of(&settings.into());
        assert!(options.flatten_unions && !options.wrapper_for_nullables);
    }
}
