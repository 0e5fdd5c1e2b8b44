use arrow_array::types::{Int32Type, Int64Type};
use arrow_buffer::OffsetBuffer;
use arrow_schema::Schema as ArrowSchema;
use frazil_core::schema::arrow::arrow_schema;
use iceberg::spec::{ListType, MapType, NestedField, PrimitiveType as P, Schema, StructType};

use super::*;

fn optional(id: i32, name: &str, kind: impl Into<Type>) -> NestedField {
    NestedField::optional(id, name, kind.into())
}

fn structure(fields: Vec<NestedField>) -> Type {
    Type::Struct(StructType::new(fields.into_iter().map(Arc::new).collect()))
}

fn list(element: NestedField) -> Type {
    Type::List(ListType {
        element_field: Arc::new(element),
    })
}

fn schema(fields: Vec<NestedField>) -> (Schema, Arc<ArrowSchema>) {
    let fields = fields.into_iter().map(Arc::new);
    let schema = Schema::builder().with_fields(fields).build().unwrap();
    let arrow = arrow_schema(&schema).unwrap();
    (schema, arrow)
}

/// The columns of a file with `was` as a table with `now` has them.
fn align(
    was: Vec<NestedField>,
    columns: Vec<ArrayRef>,
    now: Vec<NestedField>,
) -> Result<Vec<ArrayRef>> {
    let (_, arrow) = schema(was);
    let batch = RecordBatch::try_new(arrow, columns).unwrap();
    let (now, arrow) = schema(now);
    let wanted = now.as_struct().fields().iter().zip(arrow.fields());
    aligned(&batch, wanted.map(|(of, field)| (of, &**field)))
}

fn arrow_fields(kind: Type) -> Fields {
    let (_, arrow) = schema(vec![optional(90, "s", kind)]);
    match arrow.field(0).data_type() {
        DataType::Struct(fields) => fields.clone(),
        DataType::List(element) => Fields::from(vec![Arc::clone(element)]),
        other => panic!("{other}"),
    }
}

#[test]
fn columns_are_found_by_their_ids_and_promoted() {
    let inner = || structure(vec![optional(4, "old", P::Int)]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![Some(1), None])),
        Arc::new(StringArray::from(vec!["a", "b"])),
        Arc::new(StructArray::new(
            arrow_fields(inner()),
            vec![Arc::new(Int32Array::from(vec![7, 8]))],
            None,
        )),
    ];
    let was = vec![
        optional(1, "was", P::Int),
        optional(2, "text", P::String),
        optional(3, "s", inner()),
    ];
    let inner = vec![optional(5, "more", P::String), optional(4, "new", P::Long)];
    let now = vec![
        optional(2, "text", P::String),
        optional(1, "is", P::Long),
        optional(9, "later", P::String),
        optional(3, "s", structure(inner)),
    ];
    let made = align(was, columns, now).unwrap();
    let texts: Vec<_> = made[0].as_string::<i32>().iter().flatten().collect();
    assert_eq!(texts, ["a", "b"]);
    let numbers: Vec<_> = made[1].as_primitive::<Int64Type>().iter().collect();
    assert_eq!(numbers, [Some(1), None]);
    assert_eq!(made[2].null_count(), 2);
    let inner = made[3].as_struct();
    assert_eq!(inner.column(0).null_count(), 2);
    let numbers = inner.column(1).as_primitive::<Int64Type>().values();
    assert_eq!(numbers, &Int64Array::from(vec![7, 8]).values().clone());
}

#[test]
fn a_list_of_numbers_is_promoted() {
    let of = |kind| vec![optional(1, "list", list(optional(2, "element", kind)))];
    let values = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None])]);
    let (offsets, values) = (values.offsets().clone(), values.values().clone());
    let element = arrow_fields(list(optional(2, "element", P::Int)))[0].clone();
    let column = ListArray::new(element, offsets, values, None);
    let made = align(of(P::Int), vec![Arc::new(column)], of(P::Long)).unwrap();
    let values = made[0].as_list::<i32>().value(0);
    let values: Vec<_> = values.as_primitive::<Int64Type>().iter().collect();
    assert_eq!(values, [Some(1), None]);
}

#[test]
fn a_type_that_is_no_promotion_is_refused() {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let (was, now) = (optional(1, "n", P::Long), optional(1, "n", P::Int));
    let error = align(vec![was], vec![column], vec![now]).unwrap_err();
    assert_eq!(error.code(), "ROW_UNREADABLE");
}

// Promise: A row that the commit finishes has the initial default of each column that its file is older than (format version 3), as readers see it.
#[test]
fn what_a_file_is_older_than_has_its_initial_default() {
    let with = |id, kind: P, value: Literal| {
        let field = optional(id, &format!("f{id}"), kind);
        field.with_initial_default(value)
    };
    let now = vec![
        optional(1, "id", P::Long),
        with(2, P::Boolean, Literal::bool(true)),
        with(3, P::Int, Literal::int(3)),
        with(4, P::Long, Literal::long(4)),
        with(5, P::Float, Literal::float(0.5)),
        with(6, P::Double, Literal::double(0.25)),
        with(
            7,
            P::Decimal {
                precision: 9,
                scale: 2,
            },
            Literal::decimal(123),
        ),
        with(8, P::Date, Literal::date(8)),
        with(9, P::Time, Literal::time(9)),
        with(10, P::Timestamp, Literal::timestamp(10)),
        with(11, P::Timestamptz, Literal::timestamptz(11)),
        with(12, P::String, Literal::string("open")),
        with(13, P::Uuid, Literal::uuid(uuid::Uuid::from_u128(13))),
        with(14, P::Binary, Literal::binary(vec![1, 4])),
        with(15, P::Fixed(2), Literal::fixed(vec![1, 5])),
        NestedField::required(16, "must", Type::Primitive(P::Int))
            .with_initial_default(Literal::int(16)),
        optional(17, "none", P::Int),
    ];
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let made = align(vec![optional(1, "id", P::Long)], vec![ids], now).unwrap();
    let texts = |column: &ArrayRef| {
        let options = arrow_cast::display::FormatOptions::default().with_null("null");
        let shown = arrow_cast::display::ArrayFormatter::try_new(column, &options).unwrap();
        (0..column.len())
            .map(|row| shown.value(row).to_string())
            .collect::<Vec<_>>()
    };
    let expected = [
        "true",
        "3",
        "4",
        "0.5",
        "0.25",
        "1.23",
        "1970-01-09",
        "00:00:00.000009",
        "1970-01-01T00:00:00.000010",
        "1970-01-01T00:00:00.000011Z",
        "open",
        "0000000000000000000000000000000d",
        "0104",
        "0105",
        "16",
        "null",
    ];
    for (column, expected) in made.iter().skip(1).zip(expected) {
        assert_eq!(texts(column), [expected, expected]);
    }
}

#[test]
fn fields_within_structs_lists_and_maps_have_their_defaults_too() {
    let value = |id: i32, is_now: bool| {
        let mut fields = vec![optional(id, "a", P::Int)];
        if is_now {
            let later = optional(id + 1, "b", P::String);
            fields.push(later.with_initial_default(Literal::string("x")));
        }
        structure(fields)
    };
    let of = |is_now: bool| {
        let key = NestedField::required(30, "key", Type::Primitive(P::Int));
        let map = Type::Map(MapType {
            key_field: Arc::new(key),
            value_field: Arc::new(optional(31, "value", value(32, is_now))),
        });
        vec![
            optional(1, "s", value(10, is_now)),
            optional(2, "l", list(optional(20, "element", value(21, is_now)))),
            optional(3, "m", map),
        ]
    };
    let numbers = || -> ArrayRef { Arc::new(Int32Array::from(vec![1, 2])) };
    let of_type = |kind: &DataType, nulls: Option<Vec<bool>>| {
        let DataType::Struct(fields) = kind else {
            panic!("{kind}");
        };
        StructArray::new(fields.clone(), vec![numbers()], nulls.map(Into::into))
    };
    let (_, was) = schema(of(false));
    let one = of_type(was.field(0).data_type(), Some(vec![true, false]));
    let DataType::List(element) = was.field(1).data_type() else {
        panic!("a list");
    };
    let both = OffsetBuffer::from_lengths([2, 0]);
    let values = Arc::new(of_type(element.data_type(), None));
    let list = ListArray::new(Arc::clone(element), both.clone(), values, None);
    let DataType::Map(entries, sorted) = was.field(2).data_type() else {
        panic!("a map");
    };
    let DataType::Struct(fields) = entries.data_type() else {
        panic!("entries");
    };
    let values: ArrayRef = Arc::new(of_type(fields[1].data_type(), None));
    let pairs = StructArray::new(fields.clone(), vec![numbers(), values], None);
    let map = MapArray::new(Arc::clone(entries), both, pairs, None, *sorted);
    let columns: Vec<ArrayRef> = vec![Arc::new(one), Arc::new(list), Arc::new(map)];
    let made = align(of(false), columns, of(true)).unwrap();
    let one = made[0].as_struct();
    assert_eq!((one.is_valid(0), one.is_valid(1)), (true, false));
    let values = made[1].as_list::<i32>().value(0);
    let pairs = made[2].as_map().value(0);
    for within in [one, values.as_struct(), pairs.column(1).as_struct()] {
        let later = within.column(1).as_string::<i32>();
        assert_eq!(later.iter().collect::<Vec<_>>(), [Some("x"), Some("x")]);
    }
}
