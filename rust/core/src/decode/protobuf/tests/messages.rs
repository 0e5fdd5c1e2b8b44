//! Messages: vectors of the encoding, what Java's parser and converter make of odd ones, random ones.

use proptest::prelude::*;

use super::*;

const ALL: &str = r#"syntax = "proto3";
    message M { int32 a = 1; string b = 2; repeated int32 c = 4; N d = 3; map<string, int32> e = 5;
        optional int32 f = 6; oneof g { int32 x = 7; string y = 8; N z = 10; } E h = 9;
        repeated N i = 11; map<int32, N> j = 12; }
    message N { int32 a = 1; repeated string s = 2; }
    enum E { ZERO = 0; ONE = 1; }"#;

const EMPTY: &str =
    "(g_0=null, a=Int32(0), b=\"\", c=[], d=null, e={}, f=null, h=\"ZERO\", i=[], j={})";

fn with(field: &str, value: &str) -> String {
    let names = ["g_0", "a", "b", "c", "d", "e", "f", "h", "i", "j"];
    let defaults = [
        "null", "Int32(0)", "\"\"", "[]", "null", "{}", "null", "\"ZERO\"", "[]", "{}",
    ];
    let fields = names.into_iter().zip(defaults);
    let fields: Vec<String> = fields
        .map(|(name, default)| format!("{name}={}", if name == field { value } else { default }))
        .collect();
    format!("({})", fields.join(", "))
}

#[test]
fn the_vectors_of_the_encoding_decode() {
    assert_eq!(with("", ""), EMPTY);
    for (bytes, field, value) in [
        (&b""[..], "", ""),
        // The examples of the encoding guide: 150, "testing", a message, packed numbers.
        (&[0x08, 0x96, 0x01], "a", "Int32(150)"),
        (
            &[0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67],
            "b",
            "\"testing\"",
        ),
        (&[0x1a, 0x03, 0x08, 0x96, 0x01], "d", "(a=Int32(150), s=[])"),
        (
            &[0x22, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05],
            "c",
            "[Int32(3), Int32(270), Int32(86942)]",
        ),
        // A negative number has ten bytes.
        (
            &[
                0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
            ],
            "a",
            "Int32(-2)",
        ),
        // The same list one by one, and with another field in between.
        (
            &[0x20, 0x03, 0x08, 0x00, 0x22, 0x01, 0x04],
            "c",
            "[Int32(3), Int32(4)]",
        ),
        // Of one field the last counts.
        (&[0x08, 0x01, 0x08, 0x02], "a", "Int32(2)"),
        // A message in pieces.
        (
            &[
                0x1a, 0x05, 0x08, 0x01, 0x12, 0x01, 0x61, 0x1a, 0x05, 0x08, 0x02, 0x12, 0x01, 0x62,
            ],
            "d",
            "(a=Int32(2), s=[\"a\", \"b\"])",
        ),
        (
            &[0x2a, 0x05, 0x0a, 0x01, 0x61, 0x10, 0x07],
            "e",
            "{\"a\": Int32(7)}",
        ),
        // An entry without a key, and one without a value.
        (
            &[0x2a, 0x02, 0x10, 0x07, 0x2a, 0x03, 0x0a, 0x01, 0x61],
            "e",
            "{\"\": Int32(7), \"a\": Int32(0)}",
        ),
        (
            &[0x62, 0x02, 0x08, 0x01],
            "j",
            "{Int32(1): (a=Int32(0), s=[])}",
        ),
        (&[0x30, 0x00], "f", "Int32(0)"),
        (&[0x38, 0x00], "g_0", "(x=Int32(0), y=null, z=null)"),
        // Of a oneof the last counts.
        (
            &[0x38, 0x05, 0x42, 0x01, 0x61],
            "g_0",
            "(x=null, y=\"a\", z=null)",
        ),
        (
            &[0x52, 0x00],
            "g_0",
            "(x=null, y=null, z=(a=Int32(0), s=[]))",
        ),
        (&[0x48, 0x01], "h", "\"ONE\""),
        (&[0x48, 0x07], "h", "\"UNKNOWN_ENUM_VALUE_E_7\""),
        (
            &[0x5a, 0x00, 0x5a, 0x02, 0x08, 0x05],
            "i",
            "[(a=Int32(0), s=[]), (a=Int32(5), s=[])]",
        ),
        // Fields that the schema does not know, of each wire type, a group among them.
        (
            &[
                0xa0, 0x06, 0x01, 0xa1, 0x06, 1, 2, 3, 4, 5, 6, 7, 8, 0xa2, 0x06, 0x01, 0xff, 0xa5,
                0x06, 1, 2, 3, 4, 0xa3, 0x06, 0xa8, 0x06, 0x01, 0xa4, 0x06, 0x08, 0x03,
            ],
            "a",
            "Int32(3)",
        ),
    ] {
        assert_eq!(shown(ALL, bytes), with(field, value), "{bytes:?}");
    }
}

#[test]
fn numbers_keep_sign_and_range() {
    let text = r#"syntax = "proto3"; message M { uint32 a = 1; uint64 b = 2; sint64 c = 3;
        fixed32 d = 4; sfixed64 e = 5; fixed64 f = 6; bool g = 7; sint32 h = 8; }"#;
    let max = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let bytes = |tag: u8, value: &[u8]| [&[tag], value].concat();
    let zero = "a=Int64(0), b=Int64(0), c=Int64(0), d=Int64(0), e=Int64(0), f=Int64(0), \
                g=Bool(false), h=Int32(0)";
    let with = |from: &str, to: &str| format!("({})", zero.replace(from, to));
    assert_eq!(
        shown(text, &bytes(0x08, &max)),
        with("a=Int64(0)", "a=Int64(4294967295)")
    );
    assert_eq!(
        shown(text, &[0x18, 0x01]),
        with("c=Int64(0)", "c=Int64(-1)")
    );
    assert_eq!(
        shown(text, &bytes(0x25, &[0xff; 4])),
        with("d=Int64(0)", "d=Int64(4294967295)")
    );
    assert_eq!(
        shown(text, &bytes(0x29, &[0xff; 8])),
        with("e=Int64(0)", "e=Int64(-1)")
    );
    assert_eq!(
        shown(text, &[0x38, 0x02]),
        with("g=Bool(false)", "g=Bool(true)")
    );
    // What would have another sign, or be cut, is refused.
    let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    for bytes in [
        bytes(0x10, &most),
        bytes(0x31, &[0xff; 8]),
        bytes(0x08, &[0xff, 0xff, 0xff, 0xff, 0x1f]),
        bytes(0x40, &[0xff, 0xff, 0xff, 0xff, 0x7f]),
    ] {
        assert_eq!(
            refusal(text, &bytes).code(),
            "VALUE_OUT_OF_RANGE",
            "{bytes:?}"
        );
    }
}

#[test]
fn messages_that_stand_for_a_value_are_it() {
    let text = r#"syntax = "proto3"; import "google/protobuf/timestamp.proto";
        import "google/type/date.proto"; import "google/type/timeofday.proto";
        import "confluent/type/decimal.proto"; import "google/protobuf/wrappers.proto";
        message M { google.protobuf.Timestamp t = 1; google.type.Date d = 2;
        google.type.TimeOfDay o = 3; confluent.type.Decimal n = 4 [(confluent.field_meta) =
        {params: [{key: "scale", value: "2"}]}]; google.protobuf.UInt32Value w = 5; }"#;
    let first = |bytes: &[u8]| shown(text, bytes);
    let none = "t=null, d=null, o=null, n=null, w=null";
    let with = |from: &str, to: &str| format!("({})", none.replace(from, to));
    assert_eq!(first(&[]), format!("({none})"));
    assert_eq!(
        first(&[0x0a, 0x04, 0x08, 0x01, 0x10, 0x07]),
        with("t=null", "t=Int64(1000000007)")
    );
    assert_eq!(first(&[0x0a, 0x00]), with("t=null", "t=Int64(0)"));
    assert_eq!(
        first(&[0x12, 0x07, 0x08, 0xb2, 0x0f, 0x10, 0x01, 0x18, 0x02]),
        with("d=null", "d=Date { days: 1 }")
    );
    assert_eq!(
        first(&[0x1a, 0x04, 0x10, 0x01, 0x20, 0x05]),
        with("o=null", "o=Int64(60000000005)")
    );
    // 1.23 as it is; 5 and 1.230 get two digits behind the point.
    let decimal = |bytes: &[u8]| first(&[&[0x22, bytes.len() as u8], bytes].concat());
    assert!(decimal(&[0x0a, 0x01, 0x7b, 0x18, 0x02]).contains("unscaled: [123], scale: 2"));
    assert!(decimal(&[0x0a, 0x01, 0x05]).contains("1, 244], scale: 2"));
    assert!(decimal(&[0x0a, 0x02, 0x04, 0xce, 0x18, 0x03]).contains("123], scale: 2"));
    assert_eq!(
        first(&[0x2a, 0x02, 0x08, 0x07]),
        with("w=null", "w=Int64(7)")
    );
    for (bytes, code, path) in [
        (
            &[0x22, 0x05, 0x0a, 0x01, 0x7b, 0x18, 0x03][..],
            "VALUE_PRECISION_LOSS",
            "n",
        ),
        (&[0x22, 0x00], "DECODE_MALFORMED", "n"),
        (
            &[0x12, 0x06, 0x08, 0x01, 0x10, 0x02, 0x18, 0x1e],
            "DECODE_MALFORMED",
            "d",
        ),
        (&[0x1a, 0x02, 0x08, 0x18], "DECODE_MALFORMED", "o"),
        (
            &[0x0a, 0x06, 0x10, 0x80, 0x94, 0xeb, 0xdc, 0x03],
            "DECODE_MALFORMED",
            "t",
        ),
        // The year 1.
        (
            &[
                0x0a, 0x0b, 0x08, 0x80, 0x92, 0xb8, 0xc3, 0x98, 0xfe, 0xff, 0xff, 0xff, 0x01,
            ],
            "VALUE_OUT_OF_RANGE",
            "t",
        ),
    ] {
        let refused = refusal(text, bytes);
        assert_eq!(
            (refused.code(), refused.path().as_str()),
            (code, path),
            "{bytes:?}"
        );
    }
}

#[test]
fn proto2_tells_fields_that_are_not_there() {
    let text = r#"syntax = "proto2"; message M { optional int32 a = 1; required string b = 2;
        optional E e = 3; } enum E { ONE = 1; TWO = 2; }"#;
    assert_eq!(shown(text, &[0x12, 0x00]), "(a=null, b=\"\", e=null)");
    assert_eq!(
        shown(text, &[0x12, 0x00, 0x18, 0x02]),
        "(a=null, b=\"\", e=\"TWO\")"
    );
    assert_eq!(refusal(text, &[0x08, 0x01]).path(), "b");
    assert_eq!(refusal(text, &[0x12, 0x00, 0x18, 0x03]).path(), "e");
}

// Promise: Protobuf bytes that do not follow their schema are an error of their record, with the field and the byte.
#[test]
fn broken_messages_are_refused() {
    for (bytes, path) in [
        (&[0x08][..], "a"),
        (&[0x09, 1, 2, 3, 4, 5, 6, 7, 8], "a"),
        (&[0x12, 0x02, 0x61], "b"),
        (&[0x12, 0x01, 0xff], "b"),
        (&[0x1a, 0x02, 0x0a, 0x00], "d.a"),
        (&[0x22, 0x02, 0x01, 0x80], "c"),
        (&[0x2a, 0x02, 0x08, 0x01], "e"),
        (
            &[0x2a, 0x03, 0x0a, 0x01, 0x61, 0x2a, 0x03, 0x0a, 0x01, 0x61],
            "",
        ),
        (&[0x52, 0x00, 0x52, 0x00], "z"),
        (&[0x00], ""),
        (&[0x07], ""),
        (&[0x0f, 0x00], ""),
        (&[0xa3, 0x06, 0x08, 0x01], ""),
        (&[0xa4, 0x06], ""),
        (&[0xa3, 0x06, 0xac, 0x06], ""),
    ] {
        let refused = refusal(ALL, bytes);
        assert_eq!(refused.code(), "DECODE_MALFORMED", "{bytes:?}");
        assert_eq!(refused.path(), path, "{bytes:?}");
        assert!(refused.byte().is_some_and(|at| at <= bytes.len()));
    }
    assert_eq!(refusal(ALL, &[0x1a, 0x02, 0x12, 0x05]).byte(), Some(4));
    // Many pieces of one message cost the square of their bytes.
    let pieces = [0x1a, 0x02, 0x08, 0x01].repeat(100);
    assert_eq!(refusal(ALL, &pieces).code(), "DECODE_MALFORMED");
}

#[derive(Debug, Clone, Default)]
struct Written {
    a: i32,
    b: String,
    c: Vec<i32>,
    d: Option<(i32, Vec<String>)>,
    e: std::collections::BTreeMap<String, i32>,
    f: Option<i32>,
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn number(field: u64, value: i32, out: &mut Vec<u8>) {
    varint(field << 3, out);
    varint(i64::from(value).cast_unsigned(), out);
}

fn counted(field: u64, bytes: &[u8], out: &mut Vec<u8>) {
    varint(field << 3 | 2, out);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn write(value: &Written, packed: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, number_of) in &value.e {
        let mut entry = Vec::new();
        counted(1, key.as_bytes(), &mut entry);
        number(2, *number_of, &mut entry);
        counted(5, &entry, &mut out);
    }
    match packed {
        true => {
            let mut all = Vec::new();
            value
                .c
                .iter()
                .for_each(|c| varint(i64::from(*c).cast_unsigned(), &mut all));
            counted(4, &all, &mut out);
        }
        false => value.c.iter().for_each(|c| number(4, *c, &mut out)),
    }
    if let Some(f) = value.f {
        number(6, f, &mut out);
    }
    number(1, value.a, &mut out);
    counted(2, value.b.as_bytes(), &mut out);
    if let Some((a, s)) = &value.d {
        let mut inner = Vec::new();
        s.iter().for_each(|s| counted(2, s.as_bytes(), &mut inner));
        number(1, *a, &mut inner);
        counted(3, &inner, &mut out);
    }
    out
}

fn expected(value: &Written) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    let ints = |values: &[i32]| list(values.iter().map(|c| format!("Int32({c})")).collect());
    let texts = |values: &[String]| list(values.iter().map(|s| format!("{s:?}")).collect());
    let d = value
        .d
        .as_ref()
        .map(|(a, s)| format!("(a=Int32({a}), s={})", texts(s)));
    let e: Vec<String> = value
        .e
        .iter()
        .map(|(k, v)| format!("{k:?}: Int32({v})"))
        .collect();
    let f = value.f.map(|f| format!("Int32({f})"));
    let or_null = |value: Option<String>| value.unwrap_or("null".into());
    format!(
        "(g_0=null, a=Int32({}), b={:?}, c={}, d={}, e={{{}}}, f={}, h=\"ZERO\", i=[], j={{}})",
        value.a,
        value.b,
        ints(&value.c),
        or_null(d),
        e.join(", "),
        or_null(f)
    )
}

fn any_written() -> impl Strategy<Value = Written> {
    let text = || "[a-zé€]{0,6}";
    (
        any::<i32>(),
        text(),
        prop::collection::vec(any::<i32>(), 0..5),
        prop::option::of((any::<i32>(), prop::collection::vec(text(), 0..3))),
        prop::collection::btree_map(text(), any::<i32>(), 0..4),
        prop::option::of(any::<i32>()),
    )
        .prop_map(|(a, b, c, d, e, f)| Written { a, b, c, d, e, f })
}

proptest! {
    // Promise: Any Protobuf message: what is decoded is what was written, whatever the order of the fields.
    #[test]
    fn what_is_decoded_is_what_was_written(value in any_written(), packed in any::<bool>()) {
        prop_assert_eq!(shown(ALL, &write(&value, packed)), expected(&value));
    }

    // Promise: Any bytes given as Protobuf become a row or an error of their record: no panic, bounded memory.
    #[test]
    fn any_bytes_become_a_row_or_are_refused(
        rows in prop::collection::vec(prop::collection::vec(
            prop_oneof![2 => 0..16_u8, 1 => prop::sample::select(vec![
                0x08, 0x12, 0x1a, 0x20, 0x22, 0x2a, 0x52, 0x5a, 0x62_u8]), 1 => any::<u8>()], 0..48), 1..8),
    ) {
        let mut decoder = decoder(ALL);
        let values: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        let (columns, refused) = decode(&mut decoder, &values);
        let column = columns.column().unwrap();
        prop_assert_eq!(column.rows(), rows.len());
        for (row, refused) in refused.iter().enumerate() {
            prop_assert_eq!(column.is_null(row), refused.is_some());
        }
    }

    #[test]
    fn any_text_is_a_schema_or_is_refused(text in r#"(message|enum|M|[{};=<>,"'/*\[\]()]|oneof|map|int32| |[0-9]){0,24}"#) {
        if let Err(error) = ProtobufDecoder::new(&text, &[], &[0]) {
            prop_assert!(error.code().starts_with("SCHEMA_"), "{}", error.code());
        }
    }
}
