//! What Confluent's converter makes of Avro schemas, read in its `AvroData`, and what is refused.

use super::*;
use crate::schema::types::{TypeRules, type_of};

fn connect(schema: &str) -> SourceSchema {
    SourceSchema::clone(decoder(schema).schema())
}

/// The type of a new column for values of the schema.
fn column(schema: &str) -> String {
    let rules = TypeRules {
        force_optional: false,
        is_v3: true,
    };
    type_of(&connect(schema), rules).unwrap().to_string()
}

// Promise: Avro's logical types land in the columns that they mean, also those that Confluent's converter drops.
#[test]
fn logical_types_keep_their_meaning() {
    for (base, logical, expected) in [
        ("int", "date", "date"),
        ("int", "time-millis", "time"),
        ("long", "time-micros", "time"),
        ("long", "timestamp-millis", "timestamptz"),
        ("long", "timestamp-micros", "timestamptz"),
        ("long", "timestamp-nanos", "timestamptz_ns"),
        ("long", "local-timestamp-millis", "timestamp"),
        ("long", "local-timestamp-micros", "timestamp"),
        ("long", "local-timestamp-nanos", "timestamp_ns"),
        ("string", "uuid", "uuid"),
        ("string", "other", "string"),
        ("int", "timestamp-millis", "int"),
        ("long", "date", "long"),
    ] {
        let schema = format!(r#"{{"type":"{base}","logicalType":"{logical}"}}"#);
        assert_eq!(column(&schema), expected, "{schema}");
    }
    assert_eq!(
        column(r#"{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}"#),
        "decimal(9, 2)"
    );
    assert_eq!(
        column(r#"{"type":"fixed","name":"f","size":4,"logicalType":"decimal","precision":9}"#),
        "decimal(9, 0)"
    );
    assert_eq!(
        column(r#"{"type":"fixed","name":"f","size":16,"logicalType":"uuid"}"#),
        "uuid"
    );
    assert_eq!(column(r#"{"type":"fixed","name":"f","size":3}"#), "binary");
}

#[test]
fn annotations_are_those_of_the_converter() {
    let schema = connect(
        r#"{"type":"record","name":"Row","namespace":"shop","doc":"An order.","fields":[
            {"name":"id","type":"long","doc":"The number."},
            {"name":"small","type":{"type":"int","connect.type":"int8"},"default":3},
            {"name":"name","type":["null",{"type":"string","avro.java.string":"String"}],"default":null},
            {"name":"day","type":{"type":"int","connect.version":1,
                "connect.name":"io.debezium.time.Date"}},
            {"name":"price","type":{"type":"bytes","scale":2,"precision":64,"connect.version":1,
                "connect.parameters":{"scale":"2"},"logicalType":"decimal",
                "connect.name":"org.apache.kafka.connect.data.Decimal"}},
            {"name":"color","type":{"type":"enum","name":"Color","symbols":["RED","BLUE"],"default":"RED"}},
            {"name":"raw","type":{"type":"fixed","name":"Raw","size":2}},
            {"name":"note","type":{"type":"string","connect.default":"x","connect.doc":"A note."}},
            {"name":"tags","type":"string","connect.parameters":{"p":"q"}}
        ]}"#,
    );
    assert_eq!(schema.name.as_deref(), Some("shop.Row"));
    let parameter = |schema: &SourceSchema, name: &str| schema.parameters.get(name).cloned();
    let own = |name: &str| parameter(&schema, &format!("io.confluent.connect.avro.{name}"));
    assert_eq!(own("record.doc").as_deref(), Some("An order."));
    assert_eq!(own("field.doc.id").as_deref(), Some("The number."));
    assert_eq!(field_of(&schema, "id").kind(), SourceKind::Int64);

    let small = field_of(&schema, "small");
    assert_eq!((small.kind(), small.has_default), (SourceKind::Int8, true));
    assert_eq!(small.default.as_deref(), Some("3"));
    let flag = "io.confluent.connect.avro.field.default";
    assert_eq!(parameter(&small, flag).as_deref(), Some("true"));

    let name = field_of(&schema, "name");
    assert_eq!((name.optional, name.has_default), (true, false));
    assert_eq!(
        parameter(&name, "avro.java.string").as_deref(),
        Some("String")
    );

    let day = field_of(&schema, "day");
    assert_eq!(day.name.as_deref(), Some("io.debezium.time.Date"));
    assert_eq!(day.version, Some(1));

    let price = field_of(&schema, "price");
    assert_eq!(price.logical(), Some(LogicalType::Decimal { scale: 2 }));
    assert_eq!(parameter(&price, "connect.decimal.precision"), None);

    let color = field_of(&schema, "color");
    assert_eq!(color.kind(), SourceKind::String);
    assert_eq!(color.name.as_deref(), Some("shop.Color"));
    let enumeration = "io.confluent.connect.avro.Enum";
    assert_eq!(
        parameter(&color, enumeration).as_deref(),
        Some("shop.Color")
    );
    let blue = parameter(&color, &format!("{enumeration}.BLUE"));
    assert_eq!(blue.as_deref(), Some("BLUE"));
    let default = "io.confluent.connect.avro.enum.default.Color";
    assert_eq!(parameter(&color, default).as_deref(), Some("RED"));

    let raw = field_of(&schema, "raw");
    assert_eq!(raw.name.as_deref(), Some("shop.Raw"));
    assert_eq!(parameter(&raw, "connect.fixed.size").as_deref(), Some("2"));

    let note = field_of(&schema, "note");
    assert_eq!(
        (note.has_default, note.doc.as_deref()),
        (true, Some("A note."))
    );
    let tags = field_of(&schema, "tags");
    assert_eq!(parameter(&tags, "p").as_deref(), Some("q"));
}

#[test]
fn a_name_makes_a_logical_type_also_without_one_of_avro() {
    let schema = connect(
        r#"{"type":"long","connect.version":1,"connect.name":"org.apache.kafka.connect.data.Timestamp"}"#,
    );
    assert!(is_timestamp(&schema));
    let decimal = r#"{"type":"bytes","connect.name":"org.apache.kafka.connect.data.Decimal",
        "connect.parameters":{"scale":"3"}}"#;
    let expected = Some(LogicalType::Decimal { scale: 3 });
    assert_eq!(connect(decimal).logical(), expected);
    assert_eq!(
        shown(decimal, &[0x02, 0x07]),
        "Decimal { unscaled: [7], scale: 3 }"
    );
}

#[test]
fn unions_are_structs_of_optional_members() {
    let schema = connect(
        r#"["null","int",{"type":"record","name":"a.b.Rec","fields":[]},
            {"type":"enum","name":"En","symbols":["X"]},{"type":"array","items":"long"}]"#,
    );
    assert_eq!(
        schema.name.as_deref(),
        Some("io.confluent.connect.avro.Union")
    );
    assert!(schema.optional);
    let fields: Vec<&str> = schema.fields().iter().map(|f| f.name.as_str()).collect();
    assert_eq!(fields, ["int", "Rec", "En", "array"]);
    assert!(schema.fields().iter().all(|field| field.schema.optional));
    assert!(!connect(r#"["int","string"]"#).optional);
    // One type, with and without null.
    assert_eq!(connect(r#"["string"]"#).kind(), SourceKind::String);
    assert!(connect(r#"["string","null"]"#).optional);
}

#[test]
fn names_resolve_in_their_namespaces_and_in_references() {
    let schema = connect(
        r#"{"type":"record","name":"a.Outer","fields":[
            {"name":"x","type":{"type":"fixed","name":"F","size":1}},
            {"name":"y","type":"F"},
            {"name":"z","type":{"type":"record","name":"b.In","aliases":["c.Old"],"fields":[
                {"name":"f","type":"a.F"}]}},
            {"name":"w","type":"b.In"}]}"#,
    );
    let f = |field: &str| field_of(&schema, field).name.clone();
    assert_eq!(f("x").as_deref(), Some("a.F"));
    assert_eq!(f("y"), f("x"));
    assert_eq!(f("w").as_deref(), Some("b.In"));

    let address =
        r#"{"type":"record","name":"shop.Address","fields":[{"name":"zip","type":"string"}]}"#;
    let person =
        r#"{"type":"record","name":"shop.Person","fields":[{"name":"home","type":"Address"}]}"#;
    let mut decoder = AvroDecoder::new(person, &[address]).unwrap();
    let (columns, refused) = decode(&mut decoder, &[&[0x02, 0x39]]);
    assert_eq!(refused, [None]);
    assert_eq!(
        show(columns.column().unwrap().cell(0)),
        "(home=(zip=\"9\"))"
    );
    assert!(AvroDecoder::new(person, &[]).is_err());
}

// Promise: An Avro schema that has no columns is refused with a code, for each record that names it.
#[test]
fn schemas_without_columns_are_refused() {
    let recursive = r#"{"type":"record","name":"Node","fields":[
        {"name":"next","type":["null","Node"]}]}"#;
    let mut deep = "\"int\"".to_owned();
    for _ in 0..40 {
        deep = format!(r#"{{"type":"array","items":{deep}}}"#);
    }
    let mut deepest = "\"int\"".to_owned();
    for _ in 0..70 {
        deepest = format!("[{deepest}]");
    }
    // Each level doubles the fields of the one before.
    let mut doubling =
        r#"{"type":"record","name":"R0","fields":[{"name":"a","type":"int"}]}"#.to_owned();
    for level in 1..16 {
        doubling = format!(
            r#"{{"type":"record","name":"R{level}","fields":[{{"name":"a","type":{doubling}}},
            {{"name":"b","type":"R{}"}}]}}"#,
            level - 1
        );
    }
    for (schema, code) in [
        ("{", "SCHEMA_INVALID"),
        ("7", "SCHEMA_INVALID"),
        (r#""Unknown""#, "SCHEMA_INVALID"),
        (r#"{"type":"record","name":"r"}"#, "SCHEMA_INVALID"),
        (r#"{"type":"record","fields":[]}"#, "SCHEMA_INVALID"),
        (
            r#"{"type":"record","name":"int","fields":[]}"#,
            "SCHEMA_INVALID",
        ),
        (
            r#"{"type":"record","name":"r","aliases":7,"fields":[]}"#,
            "SCHEMA_INVALID",
        ),
        (
            r#"{"type":"record","name":"r","fields":[{"name":"a","type":"int"},
            {"name":"a","type":"int"}]}"#,
            "SCHEMA_INVALID",
        ),
        (
            r#"{"type":"enum","name":"e","symbols":[]}"#,
            "SCHEMA_INVALID",
        ),
        (
            r#"{"type":"enum","name":"e","symbols":["A","A"]}"#,
            "SCHEMA_INVALID",
        ),
        (r#"{"type":"fixed","name":"f"}"#, "SCHEMA_INVALID"),
        (r#"{"type":"fixed","name":"f","size":-1}"#, "SCHEMA_INVALID"),
        (
            r#"{"type":"fixed","name":"f","size":99999999999}"#,
            "SCHEMA_INVALID",
        ),
        (r#"{"type":"array"}"#, "SCHEMA_INVALID"),
        ("[]", "SCHEMA_INVALID"),
        (r#"["int","int"]"#, "SCHEMA_INVALID"),
        (r#"["int",["string","null"]]"#, "SCHEMA_INVALID"),
        (r#"{"type":"int","connect.type":"int64"}"#, "SCHEMA_INVALID"),
        (
            r#"{"type":"bytes","logicalType":"decimal","scale":"2"}"#,
            "SCHEMA_INVALID",
        ),
        (
            r#"{"type":"bytes","connect.name":"org.apache.kafka.connect.data.Decimal"}"#,
            "SCHEMA_INVALID",
        ),
        (
            r#"{"type":"long","logicalType":"timestamp-millis","connect.name":"x"}"#,
            "SCHEMA_INVALID",
        ),
        (r#""null""#, "SCHEMA_TYPE_UNSUPPORTED"),
        (
            r#"{"type":"fixed","name":"d","size":12,"logicalType":"duration"}"#,
            "SCHEMA_TYPE_UNSUPPORTED",
        ),
        (
            r#"["null",{"type":"fixed","name":"a.x","size":1},{"type":"fixed","name":"b.x","size":1}]"#,
            "SCHEMA_NAME_DUPLICATE",
        ),
        (recursive, "SCHEMA_TOO_DEEP"),
        (&deepest, "SCHEMA_TOO_DEEP"),
        (&doubling, "SCHEMA_TOO_LARGE"),
    ] {
        let error = AvroDecoder::new(schema, &[]).unwrap_err();
        assert_eq!(error.code(), code, "{schema}: {}", error.report());
    }
    assert!(AvroDecoder::new(&deep, &[]).is_ok());
}
