use sha2::{Digest, Sha256};

use super::*;
use crate::config::HashSalt;
use crate::convert::scalar::write_text;
use crate::convert::value::Value;
use crate::schema::types::{CreateOptions, table_schema};
use crate::wire::LogicalType;
use crate::wire::testing::{FrameBuilder, Row, Value as Sent};

const SALT: &str = "a salt that nobody guesses";

fn hash(value: impl AsRef<[u8]>) -> String {
    let mut hasher = Sha256::new();
    hasher.update(SALT);
    hasher.update(value);
    let digest = hasher.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn rules(include: &[&str], exclude: &[&str], hashed: &[&str]) -> ColumnRules {
    let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    let config = ColumnConfig {
        include: owned(include),
        exclude: owned(exclude),
        hash: owned(hashed),
        salt: HashSalt::new(SALT),
    };
    ColumnRules::new(&config, &[], false).expect("there are rules")
}

/// Returns the names of the columns of a table made from the masked frame, and each row as JSON.
fn seen(rules: &mut ColumnRules, frame: &FrameBuilder, rows: u32) -> (Vec<String>, Vec<String>) {
    let bytes = frame.encode();
    let frame = Frame::decode(&bytes, &frame.schemas()).unwrap();
    let rows: Vec<u32> = (0..rows).collect();
    let masked = rules.mask(&frame, &rows).unwrap();
    assert_eq!(masked.keep(&rows), rows);
    let frame = masked.frame(&frame);
    let schema = table_schema(frame.value(0), &CreateOptions::default()).unwrap();
    let columns = schema.as_struct().fields().iter();
    let columns = columns.map(|field| format!("{} {}", field.name, field.field_type));
    let rows = rows.iter().map(|row| {
        let mut text = String::new();
        write_text(Value::Nested(frame.value(*row as usize)), &mut text).unwrap();
        text
    });
    (columns.collect(), rows.collect())
}

fn person() -> SourceSchema {
    let text = || SourceSchema::scalar(SourceKind::String).optional();
    let phone = SourceSchema::structure([("kind", text()), ("number", text())]);
    SourceSchema::structure([
        ("id", SourceSchema::scalar(SourceKind::Int64)),
        ("email", text()),
        (
            "born",
            SourceSchema::logical_type(LogicalType::Date).optional(),
        ),
        (
            "home",
            SourceSchema::structure([("city", text()), ("street", text())]).optional(),
        ),
        ("phones", SourceSchema::array(phone).optional()),
        (
            "notes",
            SourceSchema::map(SourceSchema::scalar(SourceKind::String), text()).optional(),
        ),
    ])
}

fn ada() -> Sent {
    let phone = |kind: &str, number: &str| Sent::Struct(vec![Sent::text(kind), Sent::text(number)]);
    Sent::Struct(vec![
        Sent::Int64(7),
        Sent::text("ada@example.org"),
        Sent::Date(-1),
        Sent::Struct(vec![Sent::text("London"), Sent::text("St James's Square")]),
        Sent::Array(vec![phone("work", "1"), phone("home", "22")]),
        Sent::Map(vec![(Sent::text("a"), Sent::text("secret"))]),
    ])
}

fn nobody() -> Sent {
    Sent::Struct(vec![
        Sent::Int64(8),
        Sent::Null,
        Sent::Null,
        Sent::Null,
        Sent::Null,
        Sent::Null,
    ])
}

fn people() -> FrameBuilder {
    FrameBuilder::with_value_schema(3, person())
        .row(Row::new("t", 0, 0).value(ada()))
        .row(Row::new("t", 0, 1).value(nobody()))
}

// Promise: excluded fields are in no column, included ones alone are, inside of structs, lists and
// maps too
#[test]
fn fields_are_left_out_at_any_depth() {
    let mut rules = rules(
        &["id", "home.city", "phones"],
        &["phones.element.number"],
        &[],
    );
    let (columns, rows) = seen(&mut rules, &people(), 2);
    let names: Vec<&str> = columns
        .iter()
        .filter_map(|column| column.split(' ').next())
        .collect();
    assert_eq!(names, ["id", "home", "phones"]);
    assert_eq!(
        rows,
        [
            r#"{"id":7,"home":{"city":"London"},"phones":[{"kind":"work"},{"kind":"home"}]}"#,
            r#"{"id":8,"home":null,"phones":null}"#,
        ]
    );
}

// Promise: a hashed field is the SHA-256 of salt and value as hexadecimal text, at any depth; null
// stays null
#[test]
fn fields_are_hashed_at_any_depth() {
    let mut rules = rules(
        &[],
        &["home"],
        &[
            "id",
            "email",
            "born",
            "phones.element.number",
            "notes.value",
        ],
    );
    let (columns, rows) = seen(&mut rules, &people(), 2);
    assert_eq!(columns[..3], ["id string", "email string", "born string"]);
    let expected = format!(
        r#"{{"id":"{}","email":"{}","born":"{}","phones":[{{"kind":"work","number":"{}"}},{{"kind":"home","number":"{}"}}],"notes":{{"a":"{}"}}}}"#,
        hash("7"),
        hash("ada@example.org"),
        hash("1969-12-31"),
        hash("1"),
        hash("22"),
        hash("secret"),
    );
    let none = format!(
        r#"{{"id":"{}","email":null,"born":null,"phones":null,"notes":null}}"#,
        hash("8")
    );
    assert_eq!(rows, [expected, none]);
}

#[test]
fn a_whole_struct_is_hashed_as_its_text() {
    let mut rules = rules(&["home"], &[], &["home"]);
    let (columns, rows) = seen(&mut rules, &people(), 2);
    assert_eq!(columns, ["home string"]);
    let text = r#"{"city":"London","street":"St James's Square"}"#;
    assert_eq!(
        rows,
        [
            format!(r#"{{"home":"{}"}}"#, hash(text)),
            r#"{"home":null}"#.to_owned(),
        ]
    );
}

#[test]
fn records_without_a_schema_follow_the_same_rules() {
    let value = |email: Sent| {
        let phone = Sent::object([("kind", Sent::text("work")), ("number", Sent::text("1"))]);
        Sent::object([
            ("id", Sent::Int64(7)),
            ("email", email),
            (
                "home",
                Sent::object([("city", Sent::text("London")), ("street", Sent::text("x"))]),
            ),
            ("phones", Sent::Array(vec![phone, Sent::Null])),
            ("raw", Sent::Bytes(vec![0, 255])),
        ])
    };
    let frame = FrameBuilder::schemaless()
        .with_headers()
        .row(Row::new("t", 0, 0).value(value(Sent::text("ada@example.org"))))
        .row(Row::new("t", 0, 1).value(value(Sent::Null)));
    let mut rules = rules(
        &[],
        &["home.street", "phones.element.kind"],
        &["email", "phones.element.number", "raw", "home.city"],
    );
    let (_, rows) = seen(&mut rules, &frame, 2);
    let expected = |email: &str| {
        format!(
            r#"{{"id":7,"email":{email},"home":{{"city":"{}"}},"phones":[{{"number":"{}"}},null],"raw":"{}"}}"#,
            hash("London"),
            hash("1"),
            hash([0, 255]),
        )
    };
    let email = format!(r#""{}""#, hash("ada@example.org"));
    assert_eq!(rows, [expected(&email), expected("null")]);
}

// Promise: the same value has the same hash whatever its type says, with and without a schema
#[test]
fn equal_values_have_equal_hashes() {
    let typed = |schema: SourceSchema, value: Sent| {
        let schema = SourceSchema::structure([("v", schema)]);
        FrameBuilder::with_value_schema(1, schema)
            .row(Row::new("t", 0, 0).value(Sent::Struct(vec![value])))
    };
    let loose = |value: Sent| {
        FrameBuilder::schemaless().row(Row::new("t", 0, 0).value(Sent::object([("v", value)])))
    };
    let micro = SourceSchema::scalar(SourceKind::Int64).named("io.debezium.time.MicroTimestamp");
    for (frame, text) in [
        (
            typed(SourceSchema::scalar(SourceKind::Int32), Sent::Int32(5)),
            "5",
        ),
        (
            typed(SourceSchema::scalar(SourceKind::Int64), Sent::Int64(5)),
            "5",
        ),
        (loose(Sent::Int64(5)), "5"),
        (loose(Sent::text("5")), "5"),
        (loose(Sent::Bool(true)), "true"),
        (loose(Sent::Decimal(-1250, 2)), "-12.50"),
        (
            typed(micro, Sent::Int64(1_500_000)),
            "1970-01-01T00:00:01.500",
        ),
        (loose(Sent::text("")), ""),
    ] {
        let (columns, rows) = seen(&mut rules(&[], &[], &["v"]), &frame, 1);
        assert_eq!(columns, ["v string"]);
        let found = rows[0].strip_prefix(r#"{"v":""#).unwrap();
        let found = found.strip_suffix(r#""}"#).unwrap();
        let expected = hash(text);
        assert!(found == expected, "{text}: {found}");
        assert_eq!(found.len(), 64);
    }
}

#[test]
fn names_match_whatever_their_case_when_asked() {
    let config = ColumnConfig {
        exclude: vec!["EMAIL".to_owned(), "Home.CITY".to_owned()],
        ..ColumnConfig::default()
    };
    let mut exact = ColumnRules::new(&config, &[], false).unwrap();
    assert_eq!(seen(&mut exact, &people(), 1).0.len(), 6);
    let mut folded = ColumnRules::new(&config, &[], true).unwrap();
    let (columns, rows) = seen(&mut folded, &people(), 1);
    assert_eq!(columns.len(), 5);
    assert!(
        !rows[0].contains("London") && !rows[0].contains("ada"),
        "{rows:?}"
    );
    assert!(ColumnRules::new(&ColumnConfig::default(), &[], true).is_none());
}

#[test]
fn records_that_cannot_be_judged_are_refused() {
    let text = || SourceSchema::scalar(SourceKind::String);
    let map = SourceSchema::map(text(), text());
    let entries = Sent::Map(vec![(Sent::text("email"), Sent::text("x"))]);
    let map = FrameBuilder::with_value_schema(1, map).row(Row::new("t", 0, 0).value(entries));
    let home = Sent::object([("city", Sent::text("London"))]);
    let loose = Sent::object([("id", Sent::Int64(1)), ("home", home)]);
    let loose = FrameBuilder::schemaless().row(Row::new("t", 0, 0).value(loose));
    for (frame, include, code) in [
        (&map, "email", "COLUMN_RULES_UNSUPPORTED"),
        (&people(), "nothing", "COLUMN_RULES_LEAVE_NOTHING"),
        (&loose, "nothing", "COLUMN_RULES_LEAVE_NOTHING"),
        (&loose, "home.zip", "COLUMN_RULES_LEAVE_NOTHING"),
    ] {
        let bytes = frame.encode();
        let frame = Frame::decode(&bytes, &frame.schemas()).unwrap();
        let masked = rules(&[include], &[], &[]).mask(&frame, &[0]).unwrap();
        let refused: Vec<_> = masked.refused_of(&[0]).collect();
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].1.code(), code);
        assert_eq!(masked.keep(&[0]), [0; 0]);
    }
}

// Promise: what a record itself has empty or null is nothing that rules have left out: it lands
#[test]
fn a_record_that_is_empty_anyway_lands() {
    let object = |name: &str, value: Sent| Sent::object([(name, value)]);
    for (value, left) in [
        (Sent::Map(vec![]), "{}"),
        (object("home", Sent::Null), r#"{"home":null}"#),
        (object("home", Sent::Map(vec![])), r#"{"home":{}}"#),
        (
            object("home", object("zip", Sent::Null)),
            r#"{"home":{"zip":null}}"#,
        ),
    ] {
        let frame = FrameBuilder::schemaless().row(Row::new("t", 0, 0).value(value));
        let bytes = frame.encode();
        let frame = Frame::decode(&bytes, &frame.schemas()).unwrap();
        let masked = rules(&["home.zip"], &[], &[]).mask(&frame, &[0]).unwrap();
        assert_eq!(masked.keep(&[0]), [0], "{left}");
        let mut text = String::new();
        write_text(Value::Nested(masked.frame(&frame).value(0)), &mut text).unwrap();
        assert_eq!(text, left);
    }
}

#[test]
fn a_value_without_a_text_refuses_its_row_alone_and_names_its_field() {
    let time = SourceSchema::scalar(SourceKind::Int64).named("io.debezium.time.MicroTime");
    let element = SourceSchema::structure([("at", time.optional())]);
    let schema = SourceSchema::structure([("all", SourceSchema::array(element))]);
    let row = |offset: i64, micros: i64| {
        let element = Sent::Struct(vec![Sent::Int64(micros)]);
        Row::new("t", 0, offset).value(Sent::Struct(vec![Sent::Array(vec![
            Sent::Struct(vec![Sent::Null]),
            element,
        ])]))
    };
    let frame = FrameBuilder::with_value_schema(1, schema)
        .row(row(0, 5))
        .row(row(1, 90_000_000_000))
        .row(row(2, 6));
    let bytes = frame.encode();
    let frame = Frame::decode(&bytes, &frame.schemas()).unwrap();
    let masked = rules(&[], &[], &["all.element.at"])
        .mask(&frame, &[0, 1, 2])
        .unwrap();
    assert_eq!(masked.keep(&[0, 1, 2]), [0, 2]);
    let refused: Vec<_> = masked.refused_of(&[0, 1, 2]).collect();
    let report = refused[0].1.report();
    assert_eq!(refused[0].1.code(), "VALUE_OUT_OF_RANGE");
    assert!(report.contains("`all.element.at`"), "{report}");
    assert!(!report.contains("90000000000"), "{report}");
}

#[test]
fn a_salt_is_never_shown() {
    let config = ColumnConfig {
        salt: HashSalt::new(SALT),
        ..ColumnConfig::default()
    };
    assert!(!format!("{config:?}").contains(SALT));
    assert!(!format!("{:?}", rules(&[], &[], &["v"])).contains(SALT));
}
