//! The rules against a model that works on values instead of bytes.

use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::*;
use crate::config::HashSalt;
use crate::convert::scalar::write_text;
use crate::convert::value::Value;
use crate::schema::semantic::Semantic;
use crate::wire::testing::{FrameBuilder, Row, Value as Sent};

const SALT: &str = "a salt that nobody guesses";

fn hash(value: impl AsRef<[u8]>) -> String {
    let mut hasher = Sha256::new();
    hasher.update(SALT);
    hasher.update(value);
    let digest = hasher.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The rules once more, on values instead of bytes: what is left of `value` at `path`; `is_left`
/// becomes true when it is more than the shells of what was left out.
fn left_of(config: &ColumnConfig, path: &str, value: &Sent, is_left: &mut bool) -> Option<Sent> {
    let below = |rule: &String| rule.starts_with(&format!("{path}."));
    let above = |rule: &String| path == *rule || path.starts_with(&format!("{rule}."));
    if config.exclude.iter().any(|rule| rule == path) {
        return None;
    }
    let included = config.include.is_empty() || config.include.iter().any(above);
    if !included && !config.include.iter().any(below) {
        return None;
    }
    if config.hash.iter().any(|rule| rule == path) {
        *is_left = true;
        let text = match value {
            Sent::Null => return Some(Sent::Null),
            Sent::String(text) => hash(text),
            Sent::Bytes(bytes) => hash(bytes),
            nested => hash(rendered(nested)),
        };
        return Some(Sent::String(text));
    }
    let mut rules = [&config.include, &config.exclude, &config.hash]
        .into_iter()
        .flatten();
    if !rules.any(below) {
        *is_left = true;
        return Some(value.clone());
    }
    match value {
        Sent::Map(entries) => Some(Sent::Map(inside(config, path, entries, is_left))),
        Sent::Array(elements) => {
            *is_left |= elements.is_empty();
            let path = format!("{path}.element");
            let left = elements
                .iter()
                .filter_map(|value| left_of(config, &path, value, is_left));
            Some(Sent::Array(left.collect()))
        }
        scalar => {
            let stays = included || matches!(scalar, Sent::Null);
            *is_left |= stays;
            stays.then(|| scalar.clone())
        }
    }
}

fn inside(
    config: &ColumnConfig,
    path: &str,
    entries: &[(Sent, Sent)],
    is_left: &mut bool,
) -> Vec<(Sent, Sent)> {
    *is_left |= entries.is_empty();
    let left = entries.iter().filter_map(|(key, value)| {
        let Sent::String(name) = key else {
            panic!("all keys are texts here");
        };
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        Some((key.clone(), left_of(config, &path, value, is_left)?))
    });
    left.collect()
}

/// Writes a value as a `string` column would have it.
fn rendered(value: &Sent) -> String {
    let frame = FrameBuilder::schemaless().row(Row::new("t", 0, 0).value(value.clone()));
    let bytes = frame.encode();
    let frame = Frame::decode(&bytes, &frame.schemas()).unwrap();
    let mut text = String::new();
    let value = Value::read(frame.value(0), Semantic::Schemaless);
    write_text(value.unwrap().unwrap(), &mut text).unwrap();
    text
}

fn any_value() -> impl Strategy<Value = Sent> {
    let leaf = prop_oneof![
        Just(Sent::Null),
        any::<i64>().prop_map(Sent::Int64),
        any::<bool>().prop_map(Sent::Bool),
        "[a-z]{0,5}".prop_map(Sent::String),
        prop::collection::vec(any::<u8>(), 0..4).prop_map(Sent::Bytes),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Sent::Array),
            any_map(inner),
        ]
    })
}

fn any_map(value: impl Strategy<Value = Sent>) -> impl Strategy<Value = Sent> {
    let entries = prop::collection::btree_map("[abc]", value, 0..4);
    entries.prop_map(|entries| {
        let entries = entries.into_iter();
        Sent::Map(
            entries
                .map(|(name, value)| (Sent::String(name), value))
                .collect(),
        )
    })
}

fn any_paths() -> impl Strategy<Value = Vec<String>> {
    let step = prop_oneof![3 => "[abc]", 1 => Just("element".to_owned())];
    let path = prop::collection::vec(step, 1..4).prop_map(|steps| steps.join("."));
    prop::collection::vec(path, 0..3)
}

proptest! {
    #[test]
    fn whatever_the_rules_the_bytes_are_left_as_the_values_would_be(
        values in prop::collection::vec(any_map(any_value()), 1..4),
        include in any_paths(),
        exclude in any_paths(),
        hash in any_paths(),
    ) {
        let salt = HashSalt::new(SALT);
        let config = ColumnConfig { include, exclude, hash, salt };
        let Some(mut rules) = ColumnRules::new(&config, &[], false) else {
            return Ok(());
        };
        let rows = values.iter().zip(0..);
        let rows = rows.map(|(value, offset)| Row::new("t", 0, offset).value(value.clone()));
        let frame = FrameBuilder::schemaless().rows(rows);
        let bytes = frame.encode();
        let frame = Frame::decode(&bytes, &frame.schemas()).unwrap();
        let all: Vec<u32> = (0..).take(values.len()).collect();
        let masked = rules.mask(&frame, &all).unwrap();
        let kept = masked.keep(&all);
        let frame = masked.frame(&frame);
        for (row, value) in all.iter().zip(&values) {
            let Sent::Map(entries) = value else {
                panic!("all records are maps here");
            };
            let mut is_left = false;
            let expected = inside(&config, "", entries, &mut is_left);
            prop_assert_eq!(kept.contains(row), is_left);
            if is_left {
                let mut found = String::new();
                write_text(Value::Nested(frame.value(*row as usize)), &mut found).unwrap();
                prop_assert_eq!(found, rendered(&Sent::Map(expected)));
            }
        }
    }
}
