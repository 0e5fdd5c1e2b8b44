//! Which encoding a column gets, and that its values come back from each of them.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array,
    LargeBinaryArray, ListArray, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::DataType;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{DataFile, ListType, NestedField, PrimitiveType, Schema, Transform, Type};
use parquet::basic::Encoding;

use super::fixture::Table;
use crate::writer::TableWriter;

const DICTIONARY: &str = "dictionary";

/// A column: its name, type and values.
type Column = (&'static str, PrimitiveType, ArrayRef);

/// Spreads the bits of a number.
fn mixed(number: i64) -> i64 {
    let z = (number as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as i64
}

fn batch(columns: &[Column]) -> (Arc<Schema>, RecordBatch) {
    let fields = (1..).zip(columns).map(|(id, (name, kind, _))| {
        Arc::new(NestedField::optional(
            id,
            *name,
            Type::Primitive(kind.clone()),
        ))
    });
    let schema = Arc::new(Schema::builder().with_fields(fields).build().unwrap());
    let arrow = Arc::new(schema_to_arrow_schema(&schema).unwrap());
    let arrays = columns.iter().map(|(_, _, array)| array.clone()).collect();
    (schema, RecordBatch::try_new(arrow, arrays).unwrap())
}

/// Returns how the values of each column of a file are encoded, in all row groups.
fn encodings(table: &Table, file: &DataFile) -> Vec<(String, &'static str)> {
    let (_, metadata) = table.open(file);
    let groups = metadata.row_groups();
    let columns = metadata.file_metadata().schema_descr().columns();
    columns
        .iter()
        .enumerate()
        .map(|(index, column)| {
            let chunks = groups.iter().map(|group| group.column(index));
            let found: Vec<Encoding> = chunks.flat_map(|chunk| chunk.encodings()).collect();
            let names = [
                (Encoding::RLE_DICTIONARY, DICTIONARY),
                (Encoding::DELTA_BINARY_PACKED, "delta"),
                (Encoding::DELTA_LENGTH_BYTE_ARRAY, "lengths"),
                (Encoding::DELTA_BYTE_ARRAY, "prefixes"),
                (Encoding::BYTE_STREAM_SPLIT, "split"),
            ];
            let name = names.iter().find(|(encoding, _)| found.contains(encoding));
            (
                column.path().string(),
                name.map_or("plain", |(_, name)| *name),
            )
        })
        .collect()
}

fn usual(rows: i64) -> Vec<Column> {
    use PrimitiveType as T;
    let numbers = || 0..rows;
    let long = |of: &dyn Fn(i64) -> i64| -> ArrayRef {
        Arc::new(numbers().map(of).map(Some).collect::<Int64Array>())
    };
    let text = |of: &dyn Fn(i64) -> String| -> ArrayRef {
        Arc::new(numbers().map(of).map(Some).collect::<StringArray>())
    };
    let decimal = |precision, factor: i128| -> ArrayRef {
        let array = Decimal128Array::from_iter_values(
            numbers().map(|n| i128::from(mixed(n).rem_euclid(1_000_000)) * factor),
        );
        Arc::new(array.with_precision_and_scale(precision, 2).unwrap())
    };
    let kind = |precision| T::Decimal {
        precision,
        scale: 2,
    };
    vec![
        ("rising", T::Long, long(&|n| n)),
        ("near", T::Long, long(&|n| mixed(n).rem_euclid(1_000_000))),
        ("far", T::Long, long(&mixed)),
        (
            "few",
            T::Long,
            long(&|n| mixed(n).rem_euclid(50) * 1_000_003),
        ),
        (
            "instant",
            T::Timestamp,
            Arc::new(TimestampMicrosecondArray::from_iter_values(
                numbers().map(|n| 1_767_225_600_000_000 + n / 3 * 1_000),
            )),
        ),
        (
            "day",
            T::Date,
            Arc::new(Date32Array::from_iter_values(
                numbers().map(|n| 20_000 + mixed(n).rem_euclid(3) as i32),
            )),
        ),
        ("money", kind(9), decimal(9, 1)),
        ("wealth", kind(18), decimal(18, 1_000_003)),
        ("hoard", kind(38), decimal(38, 1_000_000_000_007)),
        (
            "ratio",
            T::Double,
            Arc::new(Float64Array::from_iter_values(
                numbers().map(|n| mixed(n) as f64),
            )),
        ),
        (
            "rate",
            T::Double,
            Arc::new(Float64Array::from_iter_values(
                numbers().map(|n| (n % 7) as f64),
            )),
        ),
        ("word", T::String, text(&|n| format!("word {}", n % 40))),
        ("name", T::String, text(&|n| format!("{:x}", mixed(n)))),
        (
            "path",
            T::String,
            text(&|n| format!("/the/same/beginning/of/all/{n:09}")),
        ),
        (
            "blob",
            T::Binary,
            Arc::new(LargeBinaryArray::from_iter_values(
                numbers().map(|n| mixed(n).to_le_bytes()),
            )),
        ),
        (
            "flag",
            T::Boolean,
            Arc::new(
                numbers()
                    .map(|n| Some(mixed(n) % 2 == 0))
                    .collect::<BooleanArray>(),
            ),
        ),
    ]
}

// Promise: a column's encoding follows its values: a dictionary for those that repeat, differences
// for numbers that lie close together, lengths or prefixes apart for texts that do not repeat
#[tokio::test(flavor = "multi_thread")]
async fn each_column_gets_the_encoding_of_its_values() {
    let (schema, batch) = batch(&usual(6_000));
    let table = Table::new(schema, &[], &[]);
    let files = table.write(std::slice::from_ref(&batch)).await;
    let expected = [
        ("rising", "delta"),
        ("near", "delta"),
        ("far", "plain"),
        ("few", DICTIONARY),
        ("instant", "delta"),
        ("day", DICTIONARY),
        ("money", "delta"),
        ("wealth", "delta"),
        ("hoard", "plain"),
        ("ratio", "plain"),
        ("rate", DICTIONARY),
        ("word", DICTIONARY),
        ("name", "lengths"),
        ("path", "prefixes"),
        ("blob", "lengths"),
        ("flag", "plain"),
    ];
    let expected = expected.map(|(name, encoding)| (name.to_string(), encoding));
    assert_eq!(encodings(&table, &files[0]), expected);
    let (found, _) = table.open(&files[0]);
    assert_eq!(found.columns()[..14], batch.columns()[..14]);

    let off = [("frazil.parquet.encodings", "plain-dictionary")];
    let table = Table::new(table.schema.clone(), &[], &off);
    let files = table.write(&[batch]).await;
    for ((name, encoding), (_, before)) in encodings(&table, &files[0]).iter().zip(expected) {
        let classic = if before == DICTIONARY || name == "instant" {
            DICTIONARY
        } else {
            "plain"
        };
        assert_eq!(encoding, &classic, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_can_say_which_encoding_a_column_has() {
    let (schema, batch) = batch(&usual(2_000));
    let prefix = "frazil.parquet.encoding.column.";
    let wanted = [
        ("rising", DICTIONARY, DICTIONARY),
        ("near", "plain", "plain"),
        ("far", "delta_binary_packed", "delta"),
        ("rate", "BYTE_STREAM_SPLIT", "split"),
        ("ratio", "byte_stream_split", "split"),
        ("word", "delta_byte_array", "prefixes"),
        ("path", "delta_length_byte_array", "lengths"),
    ];
    let keys = wanted.map(|(name, word, _)| (format!("{prefix}{name}"), word));
    let properties = keys.each_ref().map(|(key, word)| (key.as_str(), *word));
    let table = Table::new(schema.clone(), &[], &properties);
    let files = table.write(std::slice::from_ref(&batch)).await;
    let found = encodings(&table, &files[0]);
    for (name, _, encoding) in wanted {
        assert!(
            found.contains(&(name.to_string(), encoding)),
            "{name}: {found:?}"
        );
    }
    let (rows, _) = table.open(&files[0]);
    assert_eq!(rows.columns()[..14], batch.columns()[..14]);
    for (name, word) in [
        ("ratio", "delta_binary_packed"),
        ("word", "byte_stream_split"),
        ("near", "byte_stream_split"),
    ] {
        let key = format!("{prefix}{name}");
        let table = Table::new(schema.clone(), &[], &[(key.as_str(), word)]);
        let error = table.try_writer().unwrap_err();
        assert_eq!(error.code(), "TABLE_PROPERTY_INVALID");
        assert!(error.message().contains(&key), "{error}");
    }
}

/// Values with whole pages of nulls, and the most extreme ones side by side.
fn extreme(rows: i64) -> Vec<Column> {
    use PrimitiveType as T;
    fn of<A: FromIterator<Option<V>> + arrow_array::Array + 'static, V>(
        rows: i64,
        value: impl Fn(i64) -> V,
    ) -> ArrayRef {
        let is_null = |n: i64| n % 500 < 200 || n % 7 == 0;
        let values = (0..rows).map(|n| (!is_null(n)).then(|| value(n)));
        Arc::new(values.collect::<A>())
    }
    let long = |n: i64| [i64::MIN, i64::MAX, -1, 0, 1, mixed(n)][n as usize % 6];
    let int = |n: i64| [i32::MIN, i32::MAX, -1, 0, 1, mixed(n) as i32][n as usize % 6];
    let broken = |n: i64| {
        [
            f64::MIN,
            f64::MAX,
            -0.0,
            5e-324,
            f64::INFINITY,
            n as f64 / 3.0,
        ][n as usize % 6]
    };
    let text = |n: i64| match n % 4 {
        0 => String::new(),
        1 => "long ".repeat(n as usize % 900),
        2 => format!("日本語 {n}"),
        _ => format!("日本語 {n} 🧊"),
    };
    vec![
        ("long", T::Long, of::<Int64Array, _>(rows, long)),
        ("int", T::Int, of::<Int32Array, _>(rows, int)),
        ("text", T::String, of::<StringArray, _>(rows, text)),
        ("void", T::Long, of::<Int64Array, _>(rows, |_| 0)),
        ("broken", T::Double, of::<Float64Array, _>(rows, broken)),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn nulls_and_extremes_come_back_from_each_encoding() {
    let mut columns = extreme(18_000);
    columns[3].2 = Arc::new((0..18_000).map(|_| None).collect::<Int64Array>());
    let (schema, batch) = batch(&columns);
    let numbers = [
        "plain",
        DICTIONARY,
        "delta_binary_packed",
        "delta_binary_packed",
    ];
    let broken = [
        "plain",
        DICTIONARY,
        "byte_stream_split",
        "byte_stream_split",
    ];
    let texts = [
        "plain",
        DICTIONARY,
        "delta_length_byte_array",
        "delta_byte_array",
    ];
    for ((number, broken), text) in numbers.into_iter().zip(broken).zip(texts) {
        let prefix = "frazil.parquet.encoding.column.";
        let keys = [
            ("long", number),
            ("int", number),
            ("text", text),
            ("void", number),
            ("broken", broken),
        ];
        let keys = keys.map(|(name, word)| (format!("{prefix}{name}"), word));
        let mut properties = keys
            .each_ref()
            .map(|(key, word)| (key.as_str(), *word))
            .to_vec();
        properties.push(("write.parquet.page-row-limit", "100"));
        properties.push(("write.parquet.row-group-size-bytes", "60000"));
        let table = Table::new(schema.clone(), &[], &properties);
        let files = table.write(std::slice::from_ref(&batch)).await;
        let (found, metadata) = table.open(&files[0]);
        assert!(metadata.num_row_groups() > 1);
        assert_eq!(found.columns(), batch.columns(), "{number}, {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn elements_of_lists_get_an_encoding_too() {
    let element = NestedField::list_element(2, Type::Primitive(PrimitiveType::Long), false);
    let list = Type::List(ListType::new(Arc::new(element)));
    let field = Arc::new(NestedField::optional(1, "li", list));
    let schema = Arc::new(Schema::builder().with_fields([field]).build().unwrap());
    let arrow = schema_to_arrow_schema(&schema).unwrap();
    let DataType::List(element) = arrow.field(0).data_type() else {
        panic!("no list")
    };
    let numbers: Int64Array = (0..9_000).map(|n| (n % 9 != 0).then_some(n)).collect();
    let offsets = OffsetBuffer::from_lengths((0..3_000).map(|row| row % 7));
    let lists = ListArray::new(element.clone(), offsets, Arc::new(numbers), None);
    let batch = RecordBatch::try_new(Arc::new(arrow), vec![Arc::new(lists)]).unwrap();
    // A slice: its entries are those of its rows and no others.
    let batch = batch.slice(100, 2_800);
    let table = Table::new(schema, &[], &[]);
    let files = table.write(std::slice::from_ref(&batch)).await;
    assert_eq!(encodings(&table, &files[0])[0].1, "delta");
    let (found, _) = table.open(&files[0]);
    assert_eq!(found.columns(), batch.columns());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_open_files_only_the_first_have_packers() {
    let rising: Int64Array = (0..400_000).map(Some).collect();
    let (schema, batch) = batch(&[("n", PrimitiveType::Long, Arc::new(rising))]);
    let table = Table::new(schema, &[("n", Transform::Bucket(40))], &[]);
    let mut writer = table.writer();
    writer.write(batch).unwrap();
    // A packer of the crate says that it holds a megabyte, and there is a codec for each file.
    assert!(writer.bytes() < 12 << 20, "{}", writer.bytes());
    let files = writer.seal().unwrap().wait().await.unwrap();
    let found: Vec<_> = files
        .iter()
        .map(|file| encodings(&table, file)[0].1)
        .collect();
    let count = |wanted| found.iter().filter(|one| **one == wanted).count();
    assert_eq!((count("delta"), count("plain")), (16, 24));
}

async fn write(table: &Table, mut writer: TableWriter, values: &[i64]) -> &'static str {
    let few: Int64Array = values.iter().map(|n| Some(*n)).collect();
    let columns = [("n", PrimitiveType::Long, Arc::new(few) as ArrayRef)];
    writer.write(batch(&columns).1).unwrap();
    let files = writer.seal().unwrap().wait().await.unwrap();
    let found = encodings(table, &files[0])[0].1;
    std::fs::remove_dir_all(table.directory.path().join("data")).unwrap();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn later_files_follow_what_earlier_ones_taught() {
    let rising: Vec<i64> = (0..6_000).collect();
    let (schema, _) = batch(&[(
        "n",
        PrimitiveType::Long,
        Arc::new(Int64Array::from(vec![0])),
    )]);
    let table = Table::new(schema.clone(), &[], &[]);
    // Too few rows to say anything, before and after a file that has enough.
    assert_eq!(
        write(&table, table.writer(), &rising[..50]).await,
        DICTIONARY
    );
    assert_eq!(write(&table, table.writer(), &rising).await, "delta");
    assert_eq!(write(&table, table.writer(), &rising[..50]).await, "delta");

    // Values that repeat at first, far apart, and later do not.
    let mut late: Vec<i64> = (0..12_000).map(|n| mixed(n % 500)).collect();
    late.extend((12_000..60_000).map(mixed));
    let small = [("write.parquet.dict-size-bytes", "20000")];
    let table = Table::new(schema, &[], &small);
    assert_eq!(write(&table, table.writer(), &late).await, DICTIONARY);
    assert_eq!(write(&table, table.writer(), &late).await, "plain");
}
