use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float64Array,
    Int32Array, Int64Array, LargeBinaryArray, RecordBatch, StringArray, StructArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, TimestampNanosecondArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field as ArrowField, Fields};
use iceberg::spec::{
    Literal, NestedField, PartitionSpec, PrimitiveType, Schema, Struct, StructType, Transform, Type,
};
use proptest::prelude::*;

use super::*;

fn schema(fields: Vec<(&str, Type)>) -> Arc<Schema> {
    let fields = (1..)
        .zip(fields)
        .map(|(id, (name, kind))| Arc::new(NestedField::optional(id, name, kind)));
    Arc::new(Schema::builder().with_fields(fields).build().unwrap())
}

fn spec(schema: &Arc<Schema>, terms: &[(&str, Transform)]) -> PartitionSpec {
    terms
        .iter()
        .enumerate()
        .fold(
            PartitionSpec::builder(schema.clone()),
            |builder, (n, (column, transform))| {
                builder
                    .add_partition_field(*column, format!("p{n}"), *transform)
                    .unwrap()
            },
        )
        .build()
        .unwrap()
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap()
}

/// Returns the partition value of each row of a one-column table.
#[track_caller]
fn values(kind: PrimitiveType, transform: Transform, array: ArrayRef) -> Vec<Option<Literal>> {
    let schema = schema(vec![("c", Type::Primitive(kind))]);
    let partitioner = Partitioner::new(&spec(&schema, &[("c", transform)]), &schema).unwrap();
    let rows = array.len();
    let mut found = vec![None; rows];
    for (key, rows) in partitioner.split(&batch(vec![("c", array)])).unwrap() {
        for row in rows {
            found[row as usize] = key.values().fields()[0].clone();
        }
    }
    found
}

fn ints(values: &[i32]) -> Vec<Option<Literal>> {
    values
        .iter()
        .map(|value| Some(Literal::int(*value)))
        .collect()
}

#[test]
fn temporal_transforms_floor_before_the_epoch() {
    let micros = [
        0,
        -1,
        1_512_151_975_038_194,
        -3_600_000_001,
        1_709_164_800_000_000,
    ];
    let column = || Arc::new(TimestampMicrosecondArray::from(micros.to_vec())) as ArrayRef;
    let of = |transform| values(PrimitiveType::Timestamp, transform, column());
    assert_eq!(of(Transform::Year), ints(&[0, -1, 47, -1, 54]));
    assert_eq!(of(Transform::Month), ints(&[0, -1, 575, -1, 649]));
    assert_eq!(of(Transform::Day), ints(&[0, -1, 17_501, -1, 19_782]));
    assert_eq!(of(Transform::Hour), ints(&[0, -1, 420_042, -2, 474_768]));
    let dates = Arc::new(Date32Array::from(vec![0, -1, -365, -366, 17_501]));
    assert_eq!(
        values(PrimitiveType::Date, Transform::Year, dates.clone()),
        ints(&[0, -1, -1, -2, 47])
    );
    assert_eq!(
        values(PrimitiveType::Date, Transform::Month, dates),
        ints(&[0, -1, -12, -13, 575])
    );
    let nanos = Arc::new(TimestampNanosecondArray::from(vec![
        0,
        -1,
        86_400_000_000_000,
    ]));
    assert_eq!(
        values(PrimitiveType::TimestampNs, Transform::Day, nanos),
        ints(&[0, -1, 1])
    );
}

#[test]
fn buckets_of_every_type_agree_with_the_specification() {
    let n = 1 << 30;
    let expect = |hash: i32| ints(&[(hash & i32::MAX) % n]);
    let of = |kind, array: ArrayRef| values(kind, Transform::Bucket(n as u32), array);
    use PrimitiveType as T;
    assert_eq!(
        of(T::Int, Arc::new(Int32Array::from(vec![34]))),
        expect(2_017_239_379)
    );
    assert_eq!(
        of(T::Long, Arc::new(Int64Array::from(vec![34]))),
        expect(2_017_239_379)
    );
    let price = Decimal128Array::from(vec![1420])
        .with_precision_and_scale(9, 2)
        .unwrap();
    let decimal = T::Decimal {
        precision: 9,
        scale: 2,
    };
    assert_eq!(of(decimal, Arc::new(price)), expect(-500_754_589));
    assert_eq!(
        of(T::Date, Arc::new(Date32Array::from(vec![17_486]))),
        expect(-653_330_422)
    );
    let time = Time64MicrosecondArray::from(vec![81_068_000_000]);
    assert_eq!(of(T::Time, Arc::new(time)), expect(-662_762_989));
    let stamp = TimestampMicrosecondArray::from(vec![1_510_871_468_000_000]);
    assert_eq!(of(T::Timestamp, Arc::new(stamp)), expect(-2_047_944_441));
    let text = StringArray::from(vec!["iceberg"]);
    assert_eq!(of(T::String, Arc::new(text)), expect(1_210_000_089));
    let uuid = 0xf79c_3e09_677c_4bbd_a479_3f34_9cb7_85e7u128.to_be_bytes();
    let uuid = FixedSizeBinaryArray::try_from_iter([uuid].into_iter()).unwrap();
    assert_eq!(of(T::Uuid, Arc::new(uuid)), expect(1_488_055_340));
    let fixed = FixedSizeBinaryArray::try_from_iter([[0u8, 1, 2, 3]].into_iter()).unwrap();
    assert_eq!(of(T::Fixed(4), Arc::new(fixed)), expect(-188_683_207));
    let binary = LargeBinaryArray::from_vec(vec![&[0u8, 1, 2, 3]]);
    assert_eq!(of(T::Binary, Arc::new(binary)), expect(-188_683_207));
}

#[test]
fn truncation_is_by_floor_code_point_and_byte() {
    let width = Transform::Truncate(10);
    use PrimitiveType as T;
    let numbers = Arc::new(Int32Array::from(vec![0, 1, 9, 10, -1, -10, -11, i32::MIN]));
    assert_eq!(
        values(T::Int, width, numbers),
        ints(&[0, 0, 0, 10, -10, -10, -20, i32::MIN.wrapping_sub(2)])
    );
    let longs = Arc::new(Int64Array::from(vec![-1, 19]));
    let expected = [-10, 10].map(|value| Some(Literal::long(value)));
    assert_eq!(values(T::Long, width, longs), expected);
    let prices = Decimal128Array::from(vec![1234, 1065, -5]);
    let prices = Arc::new(prices.with_precision_and_scale(9, 2).unwrap());
    let expected = [1200, 1050, -50].map(|value| Some(Literal::decimal(value)));
    let decimal = T::Decimal {
        precision: 9,
        scale: 2,
    };
    assert_eq!(values(decimal, Transform::Truncate(50), prices), expected);
    let texts = Arc::new(StringArray::from(vec![
        "iceberg",
        "ic",
        "",
        "🧊🧊🧊🧊",
        "日本語です",
    ]));
    let expected = ["ice", "ic", "", "🧊🧊🧊", "日本語"].map(|text| Some(Literal::string(text)));
    assert_eq!(values(T::String, Transform::Truncate(3), texts), expected);
    let bytes = Arc::new(LargeBinaryArray::from_vec(vec![&[1, 2, 3, 4], &[1]]));
    let expected = [vec![1, 2, 3], vec![1]].map(|bytes| Some(Literal::binary(bytes)));
    assert_eq!(values(T::Binary, Transform::Truncate(3), bytes), expected);
}

#[test]
fn identity_keeps_every_type() {
    use PrimitiveType as T;
    let identity = Transform::Identity;
    let uuid = 0xf79c_3e09_677c_4bbd_a479_3f34_9cb7_85e7u128;
    let uuids = FixedSizeBinaryArray::try_from_iter([uuid.to_be_bytes()].into_iter()).unwrap();
    assert_eq!(
        values(T::Uuid, identity, Arc::new(uuids)),
        [Some(Literal::Primitive(
            iceberg::spec::PrimitiveLiteral::UInt128(uuid)
        ))]
    );
    let flags = BooleanArray::from(vec![Some(true), None, Some(false)]);
    assert_eq!(
        values(T::Boolean, identity, Arc::new(flags)),
        [Some(Literal::bool(true)), None, Some(Literal::bool(false))]
    );
    let doubles = Float64Array::from(vec![f64::NAN, 0.0, -0.0, -f64::NAN]);
    let schema = schema(vec![("c", Type::Primitive(T::Double))]);
    let partitioner = Partitioner::new(&spec(&schema, &[("c", identity)]), &schema).unwrap();
    let groups = partitioner
        .split(&batch(vec![("c", Arc::new(doubles))]))
        .unwrap();
    let rows: Vec<_> = groups.into_iter().map(|(_, rows)| rows).collect();
    assert_eq!(rows, [vec![0, 3], vec![1], vec![2]]);
    assert_eq!(
        values(
            T::Int,
            Transform::Void,
            Arc::new(Int32Array::from(vec![1, 2]))
        ),
        [None, None]
    );
}

#[test]
fn a_source_inside_a_struct_is_null_where_the_struct_is() {
    let inner = Type::Struct(StructType::new(vec![Arc::new(NestedField::optional(
        2,
        "city",
        Type::Primitive(PrimitiveType::String),
    ))]));
    let schema = Arc::new(
        Schema::builder()
            .with_fields([Arc::new(NestedField::optional(1, "address", inner))])
            .build()
            .unwrap(),
    );
    let partitioner = Partitioner::new(
        &spec(&schema, &[("address.city", Transform::Identity)]),
        &schema,
    )
    .unwrap();
    let fields = Fields::from(vec![ArrowField::new("city", DataType::Utf8, true)]);
    let cities: ArrayRef = Arc::new(StringArray::from(vec![Some("Bern"), Some("hidden"), None]));
    let nulls = NullBuffer::from(vec![true, false, true]);
    let address = StructArray::new(fields, vec![cities], Some(nulls));
    let groups = partitioner
        .split(&batch(vec![("address", Arc::new(address))]))
        .unwrap();
    let key = |value: Option<&str>| Struct::from_iter([value.map(Literal::string)]);
    let found: Vec<_> = groups
        .iter()
        .map(|(key, rows)| (key.values().clone(), rows.clone()))
        .collect();
    assert_eq!(
        found,
        [(key(Some("Bern")), vec![0]), (key(None), vec![1, 2])]
    );
    assert_eq!(partitioner.path(&groups[0].0), "p0=Bern");
    assert_eq!(partitioner.path(&groups[1].0), "p0=null");
}

#[test]
fn specs_that_cannot_be_computed_are_refused() {
    let refuse = |kind: PrimitiveType, transform| {
        let reason = values::supported(transform, &kind);
        assert!(reason.is_err(), "{transform:?} of {kind}");
    };
    refuse(PrimitiveType::TimestampNs, Transform::Bucket(4));
    refuse(PrimitiveType::TimestamptzNs, Transform::Bucket(4));
    refuse(PrimitiveType::Double, Transform::Bucket(4));
    refuse(PrimitiveType::Boolean, Transform::Truncate(4));
    refuse(PrimitiveType::Int, Transform::Bucket(0));
    refuse(PrimitiveType::Int, Transform::Truncate(u32::MAX));
    refuse(PrimitiveType::String, Transform::Day);
    refuse(PrimitiveType::Date, Transform::Hour);
    refuse(PrimitiveType::Int, Transform::Unknown);
    let far = Arc::new(TimestampMicrosecondArray::from(vec![i64::MAX]));
    let schema = schema(vec![("c", Type::Primitive(PrimitiveType::Timestamp))]);
    let partitioner = Partitioner::new(&spec(&schema, &[("c", Transform::Hour)]), &schema).unwrap();
    let error = partitioner.split(&batch(vec![("c", far)])).unwrap_err();
    assert_eq!(error.code(), "PARTITION_VALUE_OUT_OF_RANGE");
    let wrong = Arc::new(Int32Array::from(vec![1]));
    let error = partitioner.split(&batch(vec![("c", wrong)])).unwrap_err();
    assert_eq!(error.code(), "INTERNAL");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every row is in exactly one group, rows keep their order, and two rows share a group
    /// exactly when their partition values are equal.
    #[test]
    fn a_split_is_a_partition_of_the_rows(
        rows in prop::collection::vec((any::<Option<i64>>(), "[a-cé🧊]{0,3}", -400i32..400), 0..200),
    ) {
        let schema = schema(vec![
            ("n", Type::Primitive(PrimitiveType::Long)),
            ("s", Type::Primitive(PrimitiveType::String)),
            ("d", Type::Primitive(PrimitiveType::Date)),
        ]);
        let spec = spec(&schema, &[
            ("n", Transform::Bucket(3)),
            ("s", Transform::Truncate(1)),
            ("d", Transform::Month),
        ]);
        let partitioner = Partitioner::new(&spec, &schema).unwrap();
        let batch = batch(vec![
            ("n", Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.0))) as ArrayRef),
            ("s", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.1)))),
            ("d", Arc::new(Date32Array::from_iter_values(rows.iter().map(|row| row.2)))),
        ]);
        let groups = partitioner.split(&batch).unwrap();
        let mut seen = vec![false; rows.len()];
        for (key, indices) in &groups {
            prop_assert!(indices.is_sorted());
            for row in indices {
                let (n, s, d) = &rows[*row as usize];
                let expected = Struct::from_iter([
                    n.map(|n| Literal::int((murmur3(&n.to_le_bytes()) & i32::MAX) % 3)),
                    Some(Literal::string(s.chars().take(1).collect::<String>())),
                    Some(Literal::int(months(*d))),
                ]);
                prop_assert_eq!(key.values(), &expected);
                prop_assert!(!std::mem::replace(&mut seen[*row as usize], true));
            }
        }
        prop_assert!(seen.into_iter().all(|seen| seen));
        let keys: std::collections::BTreeSet<_> =
            groups.iter().map(|(key, _)| format!("{key:?}")).collect();
        prop_assert_eq!(keys.len(), groups.len());
    }

    #[test]
    fn any_value_gives_a_safe_path(value in any::<String>()) {
        let schema = schema(vec![("../x", Type::Primitive(PrimitiveType::String))]);
        let spec = spec(&schema, &[("../x", Transform::Identity)]);
        let partitioner = Partitioner::new(&spec, &schema).unwrap();
        let column = Arc::new(StringArray::from(vec![value.as_str()]));
        let groups = partitioner.split(&batch(vec![("../x", column)])).unwrap();
        let path = partitioner.path(&groups[0].0);
        prop_assert!(path.starts_with("p0="));
        prop_assert!(path.len() <= 500);
        prop_assert!(path.bytes().all(|byte| byte.is_ascii_graphic() && !b"/\\?#".contains(&byte)));
    }
}

/// Counts months by stepping through the calendar, apart from the formula under test.
fn months(days: i32) -> i32 {
    let date = chrono::NaiveDate::from_ymd_opt(1970, 1, 1).unwrap()
        + chrono::Duration::days(i64::from(days));
    use chrono::Datelike;
    (date.year() - 1970) * 12 + date.month() as i32 - 1
}
