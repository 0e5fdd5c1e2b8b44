use sha2::{Digest, Sha256};

use super::*;
use crate::config::HashSalt;
use crate::convert::ColumnRules;
use crate::convert::scalar::write_text;
use crate::convert::value::Value;
use crate::schema::metadata::resolved;
use crate::schema::semantic::Semantic;
use crate::wire::testing::{FrameBuilder, Row, Value as Sent};
use crate::wire::{Cell, Frame, SourceKind, SourceSchema};

const SALT: &str = "a salt that nobody guesses";

fn hash(value: &str) -> String {
    let digest = Sha256::digest(format!("{SALT}{value}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn config(exclude: &[&str], hash: &[&str]) -> ColumnConfig {
    let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    ColumnConfig {
        include: Vec::new(),
        exclude: owned(exclude),
        hash: owned(hash),
        salt: HashSalt::new(SALT),
    }
}

fn key_field(path: &str, name: &str) -> MetadataColumn {
    MetadataColumn::new(MetadataSource::KeyField(path.to_owned()), name)
}

fn key() -> MetadataColumn {
    MetadataColumn::new(MetadataSource::Key, "_key")
}

fn headers() -> MetadataColumn {
    MetadataColumn::new(MetadataSource::Headers, "_headers")
}

fn shown(cell: Cell<'_>) -> String {
    let mut text = String::new();
    match Value::read(cell, Semantic::Schemaless).unwrap() {
        Some(value) => write_text(value, &mut text).unwrap(),
        None => text.push_str("null"),
    }
    text
}

/// What is left of the key and the headers of the first row, and the types of `columns`.
fn left(
    config: &ColumnConfig,
    columns: &[MetadataColumn],
    frame: &FrameBuilder,
) -> (String, String, Vec<String>) {
    let bytes = frame.encode();
    let frame = Frame::decode(&bytes, &frame.schemas()).unwrap();
    let mut rules = ColumnRules::new(config, columns, false).unwrap();
    let masked = rules.mask(&frame, &[0]).unwrap();
    let refused: Vec<_> = masked.refused_of(&[0]).collect();
    assert!(refused.is_empty(), "{refused:?}");
    let frame = masked.frame(&frame);
    let headers = frame.headers(0).map_or(Cell::Null, Cell::Map);
    let (columns, _) = resolved(columns, &frame, 0);
    let types = columns
        .iter()
        .filter_map(|column| column.field_type.clone());
    let types = types.map(|shown| shown.to_string()).collect();
    (shown(frame.key(0)), shown(headers), types)
}

fn row() -> Row {
    let value = Sent::object([("id", Sent::Int64(1)), ("email", Sent::text("ada@x.org"))]);
    Row::new("t", 0, 0).value(value)
}

/// The same key, with a schema and without one.
fn keyed() -> [FrameBuilder; 2] {
    let text = || SourceSchema::scalar(SourceKind::String).optional();
    let user = SourceSchema::structure([("mail", text()), ("name", text())]);
    let schema = SourceSchema::structure([("email", text()), ("user", user), ("a.b", text())]);
    let texts = ["ada@x.org", "m", "n", "dotted"].map(Sent::text);
    let [email, mail, name, dotted] = texts;
    let fields = vec![
        email.clone(),
        Sent::Struct(vec![mail.clone(), name.clone()]),
        dotted.clone(),
    ];
    let user = Sent::object([("mail", mail), ("name", name)]);
    let map = Sent::object([("email", email), ("user", user), ("a.b", dotted)]);
    [
        FrameBuilder::schemaless()
            .key_schema(7, schema)
            .row(row().key(Sent::Struct(fields))),
        FrameBuilder::schemaless().row(row().key(map)),
    ]
}

// Promise: what column rules leave out or hash is not in a key that becomes a column either
#[test]
fn keys_show_nothing_that_is_masked() {
    for frame in keyed() {
        let of_key =
            |exclude: &[&str], hashed: &[&str]| left(&config(exclude, hashed), &[key()], &frame).0;
        assert_eq!(
            of_key(&["email", "user.name", "a.b"], &[]),
            r#"{"user":{"mail":"m"}}"#
        );
        assert_eq!(
            of_key(&["_key.user", "_key.a.b"], &["_key.email"]),
            format!(r#"{{"email":"{}"}}"#, hash("ada@x.org"))
        );
        let nothing = of_key(&["email", "user", "a.b"], &[]);
        assert!(["null", "{}"].contains(&nothing.as_str()), "{nothing}");
        let whole = of_key(&[], &["_key"]);
        let text = r#"{"email":"ada@x.org","user":{"mail":"m","name":"n"},"a.b":"dotted"}"#;
        assert_eq!(whole, hash(text));
    }
}

// Promise: a rule that names a key column holds for it, and so does one that names the key's field
#[test]
fn key_columns_are_hashed_by_their_names_and_by_their_paths() {
    let columns = [
        key_field("email", "email"),
        key_field("user.mail", "mail"),
        key_field("a.b", "ab"),
    ];
    for frame in keyed() {
        for hashed in [["email", "mail", "ab"], ["email", "user.mail", "a.b"]] {
            let (key, _, types) = left(&config(&[], &hashed), &columns, &frame);
            let expected = format!(
                r#"{{"email":"{}","user":{{"mail":"{}","name":"n"}},"a.b":"{}"}}"#,
                hash("ada@x.org"),
                hash("m"),
                hash("dotted")
            );
            assert_eq!(key, expected);
            assert_eq!(types, ["string", "string", "string"]);
        }
    }
}

#[test]
fn a_key_that_is_one_value_is_hashed_whole() {
    let schemas = [SourceKind::Bytes, SourceKind::String];
    for (kind, value) in schemas
        .into_iter()
        .zip([Sent::Bytes(b"k".to_vec()), Sent::text("k")])
    {
        let with = FrameBuilder::schemaless().key_schema(7, SourceSchema::scalar(kind));
        for frame in [with, FrameBuilder::schemaless()] {
            let frame = frame.row(row().key(value.clone()));
            let (key, _, types) = left(&config(&[], &["_key"]), &[key()], &frame);
            assert_eq!(key, hash("k"));
            assert_eq!(types, ["string"]);
        }
    }
    let nobody = FrameBuilder::schemaless().row(row());
    assert_eq!(left(&config(&[], &["_key"]), &[key()], &nobody).0, "null");
}

// Promise: what column rules leave out or hash is in no header that becomes a column
#[test]
fn headers_show_nothing_that_is_masked() {
    let user = Sent::object([("mail", Sent::text("m")), ("name", Sent::text("n"))]);
    let frame = FrameBuilder::schemaless().with_headers().row(
        row()
            .header("email", Sent::text("ada@x.org"))
            .header("trace.id", Sent::text("t"))
            .header("email", Sent::Bytes(b"raw".to_vec()))
            .header("user", user),
    );
    let of_headers =
        |exclude: &[&str], hashed: &[&str]| left(&config(exclude, hashed), &[headers()], &frame).1;
    assert_eq!(
        of_headers(&["email", "user.name"], &["trace.id"]),
        format!(r#"{{"trace.id":"{}","user":{{"mail":"m"}}}}"#, hash("t"))
    );
    assert_eq!(
        of_headers(&["_headers.user", "_headers.trace.id"], &["_headers.email"]),
        format!(
            r#"{{"email":"{}","email":"{}"}}"#,
            hash("ada@x.org"),
            hash("raw")
        )
    );
}

#[test]
fn what_no_column_shows_is_not_touched() {
    let [frame, _] = keyed();
    let frame = frame.with_headers();
    let (key, _, _) = left(&config(&["email"], &[]), &[headers()], &frame);
    assert!(key.contains("ada@x.org"), "{key}");
}
