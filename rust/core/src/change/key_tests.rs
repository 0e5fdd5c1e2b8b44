//! Keys as bytes: the same from a record and from a row, different for different keys, and stable when
//! columns are promoted.

use std::collections::BTreeMap;

use arrow_array::{
    BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Int32Array, Int64Array,
    LargeBinaryArray, StringArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    TimestampNanosecondArray,
};
use iceberg::spec::NestedField;
use proptest::prelude::*;

use super::*;

/// A plan of required columns `c1`, `c2`, … of these types.
fn plan(types: &[PrimitiveType]) -> KeyPlan {
    let fields = types.iter().zip(1..).map(|(primitive, id)| {
        let name = format!("c{id}");
        NestedField::required(id, name, Type::Primitive(primitive.clone())).into()
    });
    let schema = Schema::builder().with_fields(fields).build().unwrap();
    let ids = 1..=i32::try_from(types.len()).unwrap();
    KeyPlan::of(&schema, ids).unwrap().unwrap()
}

fn of_cells(plan: &KeyPlan, cells: &[Cell<'_>]) -> Result<Vec<u8>> {
    let mut out = b"before".to_vec();
    let cell = |index: usize| (cells[index], Semantic::Plain);
    plan.encode_cells(cell, &mut Scratch::default(), &mut out)?;
    Ok(out.split_off(6))
}

fn of_row(plan: &KeyPlan, columns: &[ArrayRef]) -> Result<Vec<u8>> {
    let mut out = b"old".to_vec();
    plan.rows(columns)?.encode(0, &mut out)?;
    Ok(out)
}

fn decimal(precision: u32, scale: u32) -> PrimitiveType {
    PrimitiveType::Decimal { precision, scale }
}

#[test]
fn a_small_whole_number_takes_few_bytes() {
    let plan = plan(&[PrimitiveType::Long]);
    for (number, bytes) in [
        (0, &[][..]),
        (1, &[1]),
        (127, &[0x7F]),
        (128, &[0, 0x80]),
        (-1, &[0xFF]),
        (-128, &[0x80]),
        (-129, &[0xFF, 0x7F]),
        (i64::MAX, &[0x7F, 255, 255, 255, 255, 255, 255, 255]),
        (i64::MIN, &[0x80, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        assert_eq!(
            of_cells(&plan, &[Cell::Int64(number)]).unwrap(),
            bytes,
            "{number}"
        );
    }
}

#[test]
fn a_key_is_the_same_from_the_record_and_from_the_row() {
    let uuid = [7; 16];
    let cases: Vec<(PrimitiveType, Cell<'_>, ArrayRef)> = vec![
        (
            PrimitiveType::Int,
            Cell::Int16(-3),
            Arc::new(Int32Array::from(vec![-3])),
        ),
        (
            PrimitiveType::Long,
            Cell::Int32(9),
            Arc::new(Int64Array::from(vec![9])),
        ),
        (
            PrimitiveType::Long,
            Cell::String("17"),
            Arc::new(Int64Array::from(vec![17])),
        ),
        (
            PrimitiveType::Boolean,
            Cell::Bool(true),
            Arc::new(BooleanArray::from(vec![true])),
        ),
        (
            PrimitiveType::String,
            Cell::String("ÿ "),
            Arc::new(StringArray::from(vec!["ÿ "])),
        ),
        (
            PrimitiveType::String,
            Cell::Int64(5),
            Arc::new(StringArray::from(vec!["5"])),
        ),
        (
            PrimitiveType::Binary,
            Cell::Bytes(&[0, 255]),
            Arc::new(LargeBinaryArray::from(vec![&[0_u8, 255][..]])),
        ),
        (
            PrimitiveType::Fixed(2),
            Cell::Bytes(&[1, 2]),
            Arc::new(FixedSizeBinaryArray::try_from_iter([[1_u8, 2]].into_iter()).unwrap()),
        ),
        (
            PrimitiveType::Uuid,
            Cell::String("07070707-0707-0707-0707-070707070707"),
            Arc::new(FixedSizeBinaryArray::try_from_iter([uuid].into_iter()).unwrap()),
        ),
        (
            PrimitiveType::Date,
            Cell::Date { days: -5 },
            Arc::new(Date32Array::from(vec![-5])),
        ),
        (
            PrimitiveType::Time,
            Cell::Time { ms: 1_500 },
            Arc::new(Time64MicrosecondArray::from(vec![1_500_000])),
        ),
        (
            PrimitiveType::Timestamptz,
            Cell::Timestamp { ms: 12 },
            Arc::new(TimestampMicrosecondArray::from(vec![12_000]).with_timezone("+00:00")),
        ),
        (
            PrimitiveType::TimestampNs,
            Cell::Timestamp { ms: 12 },
            Arc::new(TimestampNanosecondArray::from(vec![12_000_000])),
        ),
        (
            decimal(9, 2),
            Cell::Decimal {
                unscaled: &[15],
                scale: 1,
            },
            Arc::new(
                Decimal128Array::from(vec![150])
                    .with_precision_and_scale(9, 2)
                    .unwrap(),
            ),
        ),
    ];
    for (primitive, cell, array) in &cases {
        let alone = plan(std::slice::from_ref(primitive));
        let of_cell = of_cells(&alone, &[*cell]).unwrap();
        assert_eq!(
            of_cell,
            of_row(&alone, std::slice::from_ref(array)).unwrap(),
            "{primitive}"
        );
        // Before another column, where its length counts.
        let pair = plan(&[primitive.clone(), PrimitiveType::String]);
        let tail: ArrayRef = Arc::new(StringArray::from(vec!["t"]));
        let of_cell = of_cells(&pair, &[*cell, Cell::String("t")]).unwrap();
        assert_eq!(
            of_cell,
            of_row(&pair, &[array.clone(), tail]).unwrap(),
            "{primitive}"
        );
    }
}

#[test]
fn a_text_without_a_schema_is_read_as_the_column_says() {
    let encoded = |primitive, text| {
        let plan = plan(&[primitive]);
        let mut out = Vec::new();
        let cell = |_| (Cell::String(text), Semantic::Schemaless);
        plan.encode_cells(cell, &mut Scratch::default(), &mut out)
            .map(|()| out)
            .map_err(|error| error.code())
    };
    assert_eq!(encoded(PrimitiveType::Long, "17"), Ok(vec![17]));
    assert_eq!(encoded(PrimitiveType::Long, "x"), Err("VALUE_MALFORMED"));
    assert_eq!(encoded(PrimitiveType::String, "17"), Ok(b"17".to_vec()));
    assert_eq!(encoded(PrimitiveType::Binary, "AP8="), Ok(vec![0, 255]));
    assert_eq!(encoded(PrimitiveType::Fixed(2), "AP8="), Ok(vec![0, 255]));
    assert_eq!(
        encoded(PrimitiveType::Fixed(3), "AP8="),
        Err("VALUE_WRONG_LENGTH")
    );
    assert_eq!(encoded(PrimitiveType::Binary, "?"), Err("VALUE_MALFORMED"));
    let uuid = "07070707-0707-0707-0707-070707070707";
    assert_eq!(encoded(PrimitiveType::Uuid, uuid), Ok(vec![7; 16]));
    assert_eq!(encoded(PrimitiveType::Date, "1970-01-01"), Ok(vec![]));
}

// Promise: promoting a column of a key keeps the bytes of every key, so the index of the table stays
// good
#[test]
fn a_promoted_column_keeps_its_keys() {
    let long = |plan: &KeyPlan| of_cells(plan, &[Cell::Int32(70_000)]).unwrap();
    let (int, promoted) = (plan(&[PrimitiveType::Int]), plan(&[PrimitiveType::Long]));
    assert_eq!(long(&int), long(&promoted));
    assert_eq!(int.fingerprint(), promoted.fingerprint());
    let number = Cell::Decimal {
        unscaled: &[12, 34],
        scale: 2,
    };
    let (narrow, wide) = (plan(&[decimal(9, 2)]), plan(&[decimal(38, 2)]));
    assert_eq!(
        of_cells(&narrow, &[number]).unwrap(),
        of_cells(&wide, &[number]).unwrap()
    );
    assert_eq!(narrow.fingerprint(), wide.fingerprint());
    let date = plan(&[PrimitiveType::Date]);
    for later in [PrimitiveType::Timestamp, PrimitiveType::TimestampNs] {
        let later = plan(&[later]);
        assert_eq!(date.fingerprint(), later.fingerprint());
        let day = Cell::Date { days: 20_000 };
        assert_eq!(
            of_cells(&date, &[day]).unwrap(),
            of_cells(&later, &[day]).unwrap()
        );
        // Files from before still hold days.
        let days: ArrayRef = Arc::new(Date32Array::from(vec![20_000]));
        assert_eq!(
            of_row(&later, &[days]).unwrap(),
            of_cells(&later, &[day]).unwrap()
        );
    }
    let ints: ArrayRef = Arc::new(Int32Array::from(vec![70_000]));
    assert_eq!(of_row(&promoted, &[ints]).unwrap(), long(&int));
}

#[test]
fn other_columns_scales_and_classes_have_another_fingerprint() {
    let mut seen = BTreeMap::new();
    for types in [
        vec![PrimitiveType::Long],
        vec![PrimitiveType::String],
        vec![PrimitiveType::Binary],
        vec![PrimitiveType::Fixed(4)],
        vec![PrimitiveType::Fixed(5)],
        vec![decimal(9, 2)],
        vec![decimal(9, 3)],
        vec![PrimitiveType::Boolean],
        vec![PrimitiveType::Time],
        vec![PrimitiveType::Timestamp],
        vec![PrimitiveType::Uuid],
        vec![PrimitiveType::Long, PrimitiveType::Long],
    ] {
        let plan = plan(&types);
        assert_eq!(seen.insert(plan.fingerprint().to_owned(), types), None);
    }
    assert!(seen.contains_key("1:integer 2:integer"));
}

// Promise: a record without a value for a column of the key is refused with the column's name
// Case: 12
#[test]
fn null_keys_are_refused_by_column() {
    let plan = plan(&[PrimitiveType::Long, PrimitiveType::String]);
    let error = of_cells(&plan, &[Cell::Int64(1), Cell::Null]).unwrap_err();
    assert_eq!(error.code(), "CHANGE_KEY_NULL");
    assert_eq!(error.context(), [("column", "c2".to_owned())]);
    let columns: [ArrayRef; 2] = [
        Arc::new(Int64Array::from(vec![1])),
        Arc::new(StringArray::from(vec![None::<&str>])),
    ];
    assert_eq!(
        of_row(&plan, &columns).unwrap_err().code(),
        "CHANGE_KEY_NULL"
    );
}

// Promise: columns of floats cannot be keys (NaN, -0.0); the configuration is refused
// Case: 12
#[test]
fn floats_cannot_be_keys() {
    for primitive in [PrimitiveType::Float, PrimitiveType::Double] {
        let field = NestedField::required(1, "ratio", Type::Primitive(primitive)).into();
        let schema = Schema::builder().with_fields([field]).build().unwrap();
        let error = KeyPlan::of(&schema, [1]).unwrap_err();
        assert_eq!(error.code(), "CHANGE_KEY_UNSUPPORTED");
        assert!(error.message().contains("`ratio`"), "{error}");
    }
    let schema = Schema::builder().build().unwrap();
    assert!(KeyPlan::of(&schema, []).unwrap().is_none());
}

// Promise: texts are equal as keys when their bytes are: empty, trailing blanks, NFC and NFD differ
// Case: 12
#[test]
fn texts_are_compared_by_their_bytes() {
    let plan = plan(&[PrimitiveType::String, PrimitiveType::String]);
    let texts = ["", " ", "a", "a ", "A", "\u{e9}", "e\u{301}", "a\0"];
    let mut seen = BTreeMap::new();
    for first in texts {
        for second in texts {
            let key = of_cells(&plan, &[Cell::String(first), Cell::String(second)]).unwrap();
            assert_eq!(seen.insert(key, (first, second)), None);
        }
    }
}

#[test]
fn a_key_that_does_not_fit_leaves_nothing_behind() {
    let plan = plan(&[PrimitiveType::String, PrimitiveType::Int]);
    let mut out = vec![9];
    let cells = [Cell::String("x"), Cell::Int64(1 << 40)];
    let cell = |index: usize| (cells[index], Semantic::Plain);
    let error = plan.encode_cells(cell, &mut Scratch::default(), &mut out);
    assert_eq!(error.unwrap_err().code(), "VALUE_OUT_OF_RANGE");
    assert_eq!(out, [9]);
    let long = "x".repeat(KEY_BYTES_MAX + 1);
    let cells = [Cell::String(&long), Cell::Int64(1)];
    assert_eq!(
        of_cells(&plan, &cells).unwrap_err().code(),
        "CHANGE_KEY_TOO_LONG"
    );
}

#[test]
fn arrays_of_other_types_are_not_taken() {
    let plan = plan(&[PrimitiveType::Int]);
    let longs: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    assert!(plan.rows(std::slice::from_ref(&longs)).is_err());
    assert!(plan.rows(&[]).is_err());
}

/// Text, number, bytes: three values of a key.
type Parts = (String, i64, Vec<u8>);

fn parts() -> impl Strategy<Value = Parts> {
    let text = prop_oneof!["[ab\u{0}]{0,3}", "x{120,140}"];
    let number = prop_oneof![-2_i64..300, any::<i64>()];
    (text, number, proptest::collection::vec(0_u8..3, 0..4))
}

proptest! {
    #[test]
    fn two_keys_have_the_same_bytes_only_when_they_are_equal(first in parts(), second in parts()) {
        let plan = plan(&[PrimitiveType::String, PrimitiveType::Long, PrimitiveType::Binary]);
        let encode = |parts: &Parts| {
            let cells = [Cell::String(&parts.0), Cell::Int64(parts.1), Cell::Bytes(&parts.2)];
            of_cells(&plan, &cells).unwrap()
        };
        prop_assert_eq!(encode(&first) == encode(&second), first == second);
        let columns: [ArrayRef; 3] = [
            Arc::new(StringArray::from(vec![first.0.as_str()])),
            Arc::new(Int64Array::from(vec![first.1])),
            Arc::new(LargeBinaryArray::from(vec![first.2.as_slice()])),
        ];
        prop_assert_eq!(encode(&first), of_row(&plan, &columns).unwrap());
    }
}
