//! Random schemas and values, written by a second encoder that follows the specification.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::wire::Cell;

#[derive(Debug, Clone)]
enum Ty {
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Enum(usize),
    Array(Box<Ty>),
    Map(Box<Ty>),
    Record(Vec<Ty>),
    /// With null, which is first or second.
    Maybe(Box<Ty>, bool),
    /// Null, an int, a string and one more.
    Union(Box<Ty>),
}

#[derive(Debug, Clone)]
enum Val {
    Null,
    Boolean(bool),
    Int(i32),
    Long(i64),
    Float(f32),
    Double(f64),
    Bytes(Vec<u8>),
    /// Without a length in front.
    Fixed(Vec<u8>),
    Text(String),
    Symbol(usize),
    List(Vec<Val>),
    Entries(Vec<(String, Val)>),
    Fields(Vec<Val>),
    Member(usize, Box<Val>),
}

fn any_type() -> impl Strategy<Value = Ty> {
    let leaf = prop_oneof![
        Just(Ty::Boolean),
        Just(Ty::Int),
        Just(Ty::Long),
        Just(Ty::Float),
        Just(Ty::Double),
        Just(Ty::Bytes),
        Just(Ty::Text),
        (0..5_usize).prop_map(Ty::Fixed),
        (1..4_usize).prop_map(Ty::Enum),
    ];
    leaf.prop_recursive(4, 20, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| Ty::Array(Box::new(inner))),
            inner.clone().prop_map(|inner| Ty::Map(Box::new(inner))),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Ty::Record),
            (inner.clone(), any::<bool>()).prop_map(|(inner, first)| match inner {
                Ty::Maybe(..) | Ty::Union(_) => inner,
                inner => Ty::Maybe(Box::new(inner), first),
            }),
            inner.prop_map(|inner| match inner {
                Ty::Maybe(..) | Ty::Union(_) | Ty::Int | Ty::Text => inner,
                inner => Ty::Union(Box::new(inner)),
            }),
        ]
    })
}

/// The schema as JSON; each name is used once.
fn json(ty: &Ty, names: &mut usize) -> String {
    *names += 1;
    let name = format!("N{names}");
    match ty {
        Ty::Boolean => "\"boolean\"".into(),
        Ty::Int => "\"int\"".into(),
        Ty::Long => "\"long\"".into(),
        Ty::Float => "\"float\"".into(),
        Ty::Double => "\"double\"".into(),
        Ty::Bytes => "\"bytes\"".into(),
        Ty::Text => "\"string\"".into(),
        Ty::Fixed(size) => format!(r#"{{"type":"fixed","name":"{name}","size":{size}}}"#),
        Ty::Enum(count) => {
            let symbols: Vec<String> = (0..*count).map(|s| format!("\"S{s}\"")).collect();
            let symbols = symbols.join(",");
            format!(r#"{{"type":"enum","name":"{name}","symbols":[{symbols}]}}"#)
        }
        Ty::Array(items) => format!(r#"{{"type":"array","items":{}}}"#, json(items, names)),
        Ty::Map(values) => format!(r#"{{"type":"map","values":{}}}"#, json(values, names)),
        Ty::Record(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .enumerate()
                .map(|(i, ty)| format!(r#"{{"name":"f{i}","type":{}}}"#, json(ty, names)))
                .collect();
            let fields = fields.join(",");
            format!(r#"{{"type":"record","name":"{name}","fields":[{fields}]}}"#)
        }
        Ty::Maybe(inner, true) => format!(r#"["null",{}]"#, json(inner, names)),
        Ty::Maybe(inner, false) => format!(r#"[{},"null"]"#, json(inner, names)),
        Ty::Union(inner) => format!(r#"["int","null",{},"string"]"#, json(inner, names)),
    }
}

fn value_of(ty: &Ty) -> BoxedStrategy<Val> {
    match ty {
        Ty::Boolean => any::<bool>().prop_map(Val::Boolean).boxed(),
        Ty::Int => any::<i32>().prop_map(Val::Int).boxed(),
        Ty::Long => any::<i64>().prop_map(Val::Long).boxed(),
        Ty::Float => any::<f32>().prop_map(Val::Float).boxed(),
        Ty::Double => any::<f64>().prop_map(Val::Double).boxed(),
        Ty::Bytes => prop::collection::vec(any::<u8>(), 0..9)
            .prop_map(Val::Bytes)
            .boxed(),
        Ty::Text => "[a-zé€ ]{0,8}".prop_map(Val::Text).boxed(),
        Ty::Fixed(size) => prop::collection::vec(any::<u8>(), *size)
            .prop_map(Val::Fixed)
            .boxed(),
        Ty::Enum(count) => (0..*count).prop_map(Val::Symbol).boxed(),
        Ty::Array(items) => prop::collection::vec(value_of(items), 0..4)
            .prop_map(Val::List)
            .boxed(),
        Ty::Map(values) => prop::collection::btree_map("[a-c]{0,2}", value_of(values), 0..4)
            .prop_map(|entries| Val::Entries(entries.into_iter().collect()))
            .boxed(),
        Ty::Record(fields) => fields
            .iter()
            .map(value_of)
            .collect::<Vec<_>>()
            .prop_map(Val::Fields)
            .boxed(),
        Ty::Maybe(inner, null_first) => {
            let member = usize::from(*null_first);
            let value = value_of(inner);
            prop_oneof![
                1 => Just(Val::Member(1 - member, Box::new(Val::Null))),
                3 => value.prop_map(move |value| Val::Member(member, Box::new(value))),
            ]
            .boxed()
        }
        Ty::Union(inner) => {
            let of = |index: usize, value: BoxedStrategy<Val>| {
                value.prop_map(move |value| Val::Member(index, Box::new(value)))
            };
            prop_oneof![
                of(0, value_of(&Ty::Int)),
                of(1, Just(Val::Null).boxed()),
                of(2, value_of(inner)),
                of(3, value_of(&Ty::Text)),
            ]
            .boxed()
        }
    }
}

fn long(value: i64, out: &mut Vec<u8>) {
    let mut value = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn counted(bytes: &[u8], out: &mut Vec<u8>) {
    long(bytes.len() as i64, out);
    out.extend_from_slice(bytes);
}

/// Writes items one block each, alternately with and without the block's length in bytes.
fn blocks(items: impl Iterator<Item = Vec<u8>>, out: &mut Vec<u8>) {
    for (index, item) in items.enumerate() {
        if index % 2 == 0 {
            long(1, out);
        } else {
            long(-1, out);
            long(item.len() as i64, out);
        }
        out.extend_from_slice(&item);
    }
    long(0, out);
}

fn write(value: &Val, out: &mut Vec<u8>) {
    let whole = |value: &Val| {
        let mut bytes = Vec::new();
        write(value, &mut bytes);
        bytes
    };
    match value {
        Val::Null => {}
        Val::Boolean(value) => out.push(u8::from(*value)),
        Val::Int(value) => long(i64::from(*value), out),
        Val::Long(value) => long(*value, out),
        Val::Float(value) => out.extend_from_slice(&value.to_le_bytes()),
        Val::Double(value) => out.extend_from_slice(&value.to_le_bytes()),
        Val::Bytes(bytes) => counted(bytes, out),
        Val::Fixed(bytes) => out.extend_from_slice(bytes),
        Val::Text(text) => counted(text.as_bytes(), out),
        Val::Symbol(index) => long(*index as i64, out),
        Val::List(items) => blocks(items.iter().map(whole), out),
        Val::Entries(entries) => blocks(
            entries.iter().map(|(key, value)| {
                let mut bytes = Vec::new();
                counted(key.as_bytes(), &mut bytes);
                write(value, &mut bytes);
                bytes
            }),
            out,
        ),
        Val::Fields(fields) => fields.iter().for_each(|field| write(field, out)),
        Val::Member(index, value) => {
            long(*index as i64, out);
            write(value, out);
        }
    }
}

/// Compares what was decoded with what was written.
fn same(cell: Cell<'_>, ty: &Ty, value: &Val) -> bool {
    match (ty, value, cell) {
        (_, Val::Null, cell) => cell.is_null(),
        (Ty::Boolean, Val::Boolean(value), Cell::Bool(cell)) => *value == cell,
        (Ty::Int, Val::Int(value), Cell::Int32(cell)) => *value == cell,
        (Ty::Long, Val::Long(value), Cell::Int64(cell)) => *value == cell,
        (Ty::Float, Val::Float(value), Cell::Float32(cell)) => value.to_bits() == cell.to_bits(),
        (Ty::Double, Val::Double(value), Cell::Float64(cell)) => value.to_bits() == cell.to_bits(),
        (Ty::Bytes | Ty::Fixed(_), Val::Bytes(value) | Val::Fixed(value), Cell::Bytes(cell)) => {
            value == cell
        }
        (Ty::Text, Val::Text(value), Cell::String(cell)) => value == cell,
        (Ty::Enum(_), Val::Symbol(index), Cell::String(cell)) => format!("S{index}") == cell,
        (Ty::Array(items), Val::List(values), Cell::Array(list)) => {
            let mut pairs = values.iter().zip(list.iter());
            values.len() == list.len() && pairs.all(|(value, cell)| same(cell, items, value))
        }
        (Ty::Map(values), Val::Entries(entries), Cell::Map(map)) => {
            let mut pairs = entries.iter().zip(map.entries());
            entries.len() == map.len()
                && pairs.all(|((key, value), entry)| {
                    matches!(entry.key, Cell::String(cell) if cell == key)
                        && same(entry.value, values, value)
                })
        }
        (Ty::Record(types), Val::Fields(values), Cell::Struct(record)) => {
            let mut pairs = types.iter().zip(values).enumerate();
            pairs.all(|(index, (ty, value))| same(record.field(index), ty, value))
        }
        (Ty::Maybe(inner, _), Val::Member(_, value), cell) => same(cell, inner, value),
        (Ty::Union(_), Val::Member(1, _), cell) => cell.is_null(),
        (Ty::Union(inner), Val::Member(index, value), Cell::Struct(record)) => {
            let (field, ty) = match index {
                0 => (0, &Ty::Int),
                2 => (1, &**inner),
                _ => (2, &Ty::Text),
            };
            let others = (0..3).filter(|other| *other != field);
            others
                .into_iter()
                .all(|other| record.field(other).is_null())
                && same(record.field(field), ty, value)
        }
        _ => false,
    }
}

// Promise: Any Avro schema and value: what is decoded is what was written.
#[test]
fn what_is_decoded_is_what_was_written() {
    let rows = |ty: Ty| {
        let values = prop::collection::vec(value_of(&ty), 1..5);
        (Just(ty), values)
    };
    let mut runner = TestRunner::new(Config::default());
    let test = |(ty, values): (Ty, Vec<Val>)| {
        let schema = json(&ty, &mut 0);
        let mut decoder = decoder(&schema);
        let bytes: Vec<Vec<u8>> = values
            .iter()
            .map(|value| {
                let mut bytes = Vec::new();
                write(value, &mut bytes);
                bytes
            })
            .collect();
        let bytes: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        let (columns, refused) = decode(&mut decoder, &bytes);
        let column = columns.column().unwrap();
        for (row, value) in values.iter().enumerate() {
            prop_assert_eq!(&refused[row], &None, "{}", schema);
            prop_assert!(same(column.cell(row), &ty, value), "{} {:?}", schema, value);
        }
        Ok(())
    };
    runner.run(&any_type().prop_flat_map(rows), test).unwrap();
}
