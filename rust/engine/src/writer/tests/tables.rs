use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, Decimal128Array, Int64Array, LargeBinaryArray, RecordBatch, StringArray,
};
use arrow_schema::DataType;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::io::FileIO;
use iceberg::spec::{
    DataFile, Datum, Literal, Manifest, ManifestWriterBuilder, NestedField, PrimitiveLiteral,
    PrimitiveType, Schema, Transform, Type,
};
use parquet::basic::{Encoding, LogicalType};
use proptest::prelude::*;
use tokio::runtime::Handle;

use super::fixture::{ROOT, Table, rows, schema, spec};
use super::stores::{Record, Recorder, Rooted};
use crate::writer::{TableWriter, TableWriterConfig};

/// Checks counts and bounds of every column of a file against its rows; all bounds are there.
#[track_caller]
fn check_metrics(schema: &Schema, file: &DataFile, rows: &RecordBatch) {
    for (field, column) in schema.as_struct().fields().iter().zip(rows.columns()) {
        let Type::Primitive(kind) = field.field_type.as_ref() else {
            continue;
        };
        let mut values = (0..column.len()).filter(|row| column.is_valid(*row));
        let bounded = values.any(|row| !datum(kind, column, row).is_nan());
        assert_eq!(
            file.lower_bounds().contains_key(&field.id),
            bounded,
            "{}",
            field.name
        );
        assert_eq!(
            file.upper_bounds().contains_key(&field.id),
            bounded,
            "{}",
            field.name
        );
    }
    check_bounds(schema, file, rows);
}

/// Checks counts, and that the bounds that are there contain every value.
#[track_caller]
fn check_bounds(schema: &Schema, file: &DataFile, rows: &RecordBatch) {
    assert_eq!(file.record_count(), rows.num_rows() as u64);
    for (index, field) in schema.as_struct().fields().iter().enumerate() {
        let Type::Primitive(kind) = field.field_type.as_ref() else {
            continue;
        };
        let column = rows.column(index);
        assert_eq!(file.value_counts()[&field.id], rows.num_rows() as u64);
        assert_eq!(
            file.null_value_counts()[&field.id],
            column.null_count() as u64,
            "{}",
            field.name
        );
        let values = (0..column.len()).filter(|row| column.is_valid(*row));
        let bounds = (
            file.lower_bounds().get(&field.id),
            file.upper_bounds().get(&field.id),
        );
        for row in values {
            let value = datum(kind, column, row);
            if value.is_nan() {
                continue;
            }
            assert!(
                bounds.0.is_none_or(|lower| lower <= &value),
                "{}: {value}",
                field.name
            );
            assert!(
                bounds.1.is_none_or(|upper| upper >= &value),
                "{}: {value}",
                field.name
            );
        }
    }
}

fn datum(kind: &PrimitiveType, column: &ArrayRef, row: usize) -> Datum {
    let bytes = match column.data_type() {
        DataType::Boolean => vec![u8::from(column.as_boolean().value(row))],
        DataType::Utf8 => column.as_string::<i32>().value(row).as_bytes().to_vec(),
        DataType::Binary => column.as_binary::<i32>().value(row).to_vec(),
        DataType::FixedSizeBinary(_) => column.as_fixed_size_binary().value(row).to_vec(),
        DataType::Decimal128(..) => {
            let array = column.as_primitive::<arrow_array::types::Decimal128Type>();
            array.value(row).to_be_bytes().to_vec()
        }
        kind => {
            let width = kind.primitive_width().unwrap();
            let data = column.slice(row, 1).to_data();
            data.buffers()[0].as_slice()[data.offset() * width..][..width].to_vec()
        }
    };
    Datum::try_from_bytes(&bytes, kind.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_comes_back_with_its_id_and_annotation() {
    let table = Table::new(schema(), &[], &[]);
    let files = table
        .write(&[rows(&table.schema, 0, 400), rows(&table.schema, 400, 1_000)])
        .await;
    assert_eq!(files.len(), 1);
    let file = &files[0];
    assert_eq!(
        file.file_path(),
        "file:///table/data/frazil-w-s-1-0.parquet"
    );
    let (found, metadata) = table.open(file);
    let written = rows(&table.schema, 0, 1_000);
    let cast = large(&table.schema, &found);
    for (index, column) in written.columns().iter().enumerate() {
        let schema = written.schema();
        assert_eq!(column, cast.column(index), "{}", schema.field(index).name());
    }
    check_metrics(&table.schema, file, &found);
    let descriptor = metadata.file_metadata().schema_descr();
    let expected = [
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 40, 41, 30, 50, 51,
    ];
    let ids: Vec<_> = descriptor
        .columns()
        .iter()
        .map(|c| c.self_type().get_basic_info().id())
        .collect();
    assert_eq!(ids, expected);
    let logical = |index: usize| descriptor.column(index).logical_type_ref().cloned();
    assert_eq!(logical(13), Some(LogicalType::Uuid));
    assert_eq!(logical(14), None);
    assert_eq!(logical(12), Some(LogicalType::String));
    assert!(matches!(
        logical(10),
        Some(LogicalType::Timestamp {
            is_adjusted_to_u_t_c: false,
            ..
        })
    ));
    assert!(matches!(
        logical(11),
        Some(LogicalType::Timestamp {
            is_adjusted_to_u_t_c: true,
            ..
        })
    ));
    let pairs = metadata.file_metadata().key_value_metadata().unwrap();
    let keys: Vec<_> = pairs.iter().map(|pair| pair.key.as_str()).collect();
    assert_eq!(keys, ["iceberg.schema"]);
    let json: Schema = serde_json::from_str(pairs[0].value.as_deref().unwrap()).unwrap();
    assert_eq!(&json, table.schema.as_ref());
    // Lists and maps have counts only, structs all.
    assert_eq!(file.value_counts()[&30], 2_000);
    assert_eq!(file.null_value_counts()[&30], 1_000);
    for repeated in [30, 50, 51] {
        assert!(!file.lower_bounds().contains_key(&repeated));
        assert!(!file.upper_bounds().contains_key(&repeated));
    }
    assert_eq!(file.lower_bounds()[&40], Datum::string("city 0"));
    assert_eq!(file.upper_bounds()[&41], Datum::double(999.0 / 4.0));
    let nans = (0..1_000).filter(|n| n % 7 != 3 && n % 5 == 0).count() as u64;
    assert_eq!(file.nan_value_counts()[&4], nans);
    assert_eq!(file.nan_value_counts()[&5], 0);
    assert_eq!(file.split_offsets(), Some(&[4i64][..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_transform_puts_rows_where_their_value_says() {
    use Transform as X;
    let schema = schema();
    for (column, transform) in [
        ("s", X::Identity),
        ("i", X::Identity),
        ("b", X::Identity),
        ("dec9", X::Identity),
        ("dec38", X::Identity),
        ("date", X::Identity),
        ("time", X::Identity),
        ("tstz", X::Identity),
        ("fx", X::Identity),
        ("bin", X::Identity),
        ("st.city", X::Identity),
        ("ts", X::Year),
        ("ts", X::Month),
        ("tstz", X::Day),
        ("ts", X::Hour),
        ("date", X::Year),
        ("id", X::Bucket(5)),
        ("s", X::Bucket(4)),
        ("u", X::Bucket(3)),
        ("dec18", X::Bucket(4)),
        ("s", X::Truncate(3)),
        ("i", X::Truncate(100)),
        ("dec9", X::Truncate(500)),
        ("bin", X::Truncate(1)),
        ("id", X::Void),
    ] {
        let table = Table::new(schema.clone(), &[(column, transform)], &[]);
        let files = table
            .write(&[rows(&schema, 0, 90), rows(&schema, 90, 200)])
            .await;
        let partitioner =
            frazil_core::partition::Partitioner::new(&table.config.spec, &schema).unwrap();
        let mut ids = Vec::new();
        let mut tuples = BTreeSet::new();
        for file in &files {
            let (found, _) = table.open(file);
            check_metrics(&schema, file, &found);
            let groups = partitioner.split(&large(&schema, &found)).unwrap();
            assert_eq!(groups.len(), 1, "{column} {transform}");
            assert_eq!(groups[0].0.values(), file.partition());
            let path = partitioner.path(&groups[0].0);
            assert!(
                file.file_path().contains(&format!("/data/{path}/frazil-")),
                "{path}"
            );
            ids.extend(
                found
                    .column(0)
                    .as_primitive::<Int64Type>()
                    .values()
                    .iter()
                    .copied(),
            );
            assert!(tuples.insert(format!("{:?}", file.partition())));
        }
        ids.sort_unstable();
        assert_eq!(ids, (0..200).collect::<Vec<_>>(), "{column} {transform}");
        through_a_manifest(&table, &files).await;
    }
}

#[tokio::test]
async fn partitions_by_a_uuid_itself_are_refused() {
    let table = Table::new(schema(), &[("u", Transform::Identity)], &[]);
    let store = Rooted {
        store: Arc::new(Recorder(Arc::default())),
        root: ROOT,
    };
    let error = TableWriter::new(table.config.clone(), store, Handle::current()).unwrap_err();
    assert_eq!(error.code(), "PARTITION_UNSUPPORTED");
}

/// Casts what a reader without Arrow's hints makes of a file back to what the table says.
fn large(schema: &Schema, found: &RecordBatch) -> RecordBatch {
    let arrow = Arc::new(schema_to_arrow_schema(schema).unwrap());
    let columns = arrow
        .fields()
        .iter()
        .zip(found.columns())
        .map(
            |(field, column)| match (field.data_type(), column.data_type()) {
                (DataType::LargeBinary, DataType::Binary) => {
                    let values = column.as_binary::<i32>().iter();
                    Arc::new(LargeBinaryArray::from_iter(values)) as ArrayRef
                }
                (DataType::Timestamp(_, Some(zone)), _) => {
                    let array = column.as_primitive::<TimestampMicrosecondType>().clone();
                    Arc::new(array.with_timezone(zone.clone()))
                }
                _ => column.clone(),
            },
        );
    let columns = columns.collect();
    RecordBatch::try_new(arrow.clone(), columns).unwrap()
}

/// Partition values and bounds survive the manifest that will carry them.
async fn through_a_manifest(table: &Table, files: &[DataFile]) {
    for version in [2, 3] {
        let path = table.directory.path().join(format!("v{version}.avro"));
        let output = FileIO::new_with_fs()
            .new_output(path.to_str().unwrap())
            .unwrap();
        let spec = table.config.spec.as_ref().clone();
        let builder = ManifestWriterBuilder::new(output, Some(1), table.schema.clone(), spec);
        let mut manifest = match version {
            2 => builder.build_v2_data(),
            _ => builder.build_v3_data(),
        };
        for file in files {
            manifest.add_file(file.clone(), 1).unwrap();
        }
        manifest.write_manifest_file().await.unwrap();
        let manifest = Manifest::parse_avro(&std::fs::read(path).unwrap()).unwrap();
        let read: HashMap<_, _> = manifest
            .entries()
            .iter()
            .map(|entry| (entry.data_file().file_path(), entry.data_file()))
            .collect();
        assert_eq!(read.len(), files.len());
        for file in files {
            let read = read[file.file_path()];
            assert_eq!(read.partition(), file.partition());
            assert_eq!(read.lower_bounds(), file.lower_bounds());
            assert_eq!(read.upper_bounds(), file.upper_bounds());
            assert_eq!(read.null_value_counts(), file.null_value_counts());
            assert_eq!(read.split_offsets(), file.split_offsets());
        }
    }
}

fn texts(values: &[String]) -> (Arc<Schema>, RecordBatch) {
    let fields = vec![
        Arc::new(NestedField::required(
            1,
            "id",
            Type::Primitive(PrimitiveType::Long),
        )),
        Arc::new(NestedField::optional(
            2,
            "s",
            Type::Primitive(PrimitiveType::String),
        )),
    ];
    let schema = Arc::new(Schema::builder().with_fields(fields).build().unwrap());
    let arrow = Arc::new(schema_to_arrow_schema(&schema).unwrap());
    let ids = Int64Array::from_iter_values(0..values.len() as i64);
    let text = StringArray::from_iter_values(values);
    let batch = RecordBatch::try_new(arrow, vec![Arc::new(ids), Arc::new(text)]).unwrap();
    (schema, batch)
}

/// The crate's own writer gives such a file the bounds of its short values only, and engines then
/// skip the file when they look for a long one.
#[tokio::test(flavor = "multi_thread")]
async fn long_strings_in_several_row_groups_are_inside_the_bounds() {
    let mut values = vec!["a".repeat(100), "z".repeat(100)];
    values.extend((0..40_000).map(|n| format!("m{n}")));
    values.push("a".repeat(15) + &"0".repeat(70));
    let (schema, batch) = texts(&values);
    let table = Table::new(
        schema,
        &[],
        &[("write.parquet.row-group-size-bytes", "10000")],
    );
    let files = table.write(&[batch]).await;
    let (found, metadata) = table.open(&files[0]);
    assert!(
        metadata.num_row_groups() >= 3,
        "{}",
        metadata.num_row_groups()
    );
    let exact: Vec<_> = metadata
        .row_groups()
        .iter()
        .map(|group| group.column(1).statistics().unwrap().min_is_exact())
        .collect();
    assert!(exact.contains(&true) && exact.contains(&false), "{exact:?}");
    check_metrics(&table.schema, &files[0], &found);
    assert_eq!(
        files[0].lower_bounds()[&2],
        Datum::string("a".repeat(15) + "0")
    );
    assert_eq!(
        files[0].upper_bounds()[&2],
        Datum::string("z".repeat(15) + "{")
    );
    let offsets = files[0].split_offsets().unwrap();
    assert_eq!(offsets.len(), metadata.num_row_groups());
    assert!(offsets.is_sorted());
}

#[tokio::test(flavor = "multi_thread")]
async fn files_end_at_the_target_size() {
    let values: Vec<_> = (0..60_000)
        .map(|n| format!("{:016x}", (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    let (schema, batch) = texts(&values);
    let table = Table::new(schema, &[], &[("write.target-file-size-bytes", "100000")]);
    let files = table.write(&[batch]).await;
    assert!(files.len() > 3, "{}", files.len());
    let rows: u64 = files.iter().map(|file| file.record_count()).sum();
    assert_eq!(rows, 60_000);
    let paths: std::collections::HashSet<_> = files.iter().map(|file| file.file_path()).collect();
    assert_eq!(paths.len(), files.len());
    // Values that hardly repeat are written without a dictionary.
    let (_, metadata) = table.open(&files[0]);
    let encodings: Vec<_> = metadata.row_group(0).column(1).encodings().collect();
    assert!(
        !encodings.contains(&Encoding::RLE_DICTIONARY),
        "{encodings:?}"
    );
}

// Complaint: 23
#[tokio::test(flavor = "multi_thread")]
async fn open_files_are_bounded_and_memory_is_counted() {
    let schema = schema();
    let mut table = Table::new(schema.clone(), &[("id", Transform::Bucket(12))], &[]);
    table.config.writers_max_open = 3;
    let mut writer = table.writer();
    for start in 0..24 {
        writer
            .write(rows(&schema, start * 8_192, (start + 1) * 8_192))
            .unwrap();
        assert!(writer.bytes() > 0);
    }
    let held = writer.bytes();
    writer.shrink_to(held / 2).unwrap();
    assert!(writer.bytes() <= held);
    writer.shrink_to(0).unwrap();
    writer
        .write(rows(&schema, 24 * 8_192, 24 * 8_192 + 10))
        .unwrap();
    assert_eq!(writer.rows(), 24 * 8_192 + 10);
    let sealed = writer.seal().unwrap();
    let files = sealed.wait().await.unwrap();
    let mut ids = Vec::new();
    for file in &files {
        let (found, _) = table.open(file);
        check_metrics(&schema, file, &found);
        ids.extend(
            found
                .column(0)
                .as_primitive::<Int64Type>()
                .values()
                .iter()
                .copied(),
        );
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..24 * 8_192 + 10).collect::<Vec<_>>());
}

// Promise: while the storage is slow, giving memory back ends only as many files as it takes
#[tokio::test]
async fn uploads_under_way_end_no_further_files() {
    // Uploads run on this thread, and so not before it waits for them.
    let schema = schema();
    let table = Table::new(schema.clone(), &[("id", Transform::Bucket(12))], &[]);
    let mut writer = table.writer();
    for start in 0..12 {
        writer
            .write(rows(&schema, start * 8_192, (start + 1) * 8_192))
            .unwrap();
    }
    let held = |writer: &TableWriter| writer.gathered_bytes() + writer.file_bytes();
    let before = held(&writer);
    writer.shrink_to(before - 1).unwrap();
    let one = before - held(&writer);
    for parts in [4, 3, 2] {
        let keep = before / 4 * parts / 2;
        writer.shrink_to(keep).unwrap();
        let left = held(&writer);
        assert!(left <= keep && left + 2 * one > keep, "{left} for {keep}");
    }
    assert!(writer.in_flight() > 0, "nothing is on its way");
    let files = writer.seal().unwrap().wait().await.unwrap();
    assert_eq!(files.len(), 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_upload_is_never_lost() {
    let schema = schema();
    let spec = Arc::new(spec(&schema, &[]));
    let record = Record {
        fail_put: true,
        ..Record::default()
    };
    let store = Rooted {
        store: Arc::new(Recorder(Arc::new(record))),
        root: ROOT,
    };
    let config = TableWriterConfig::new(schema.clone(), spec, ROOT, "frazil-w-s-1");
    let mut writer = TableWriter::new(config, store, Handle::current()).unwrap();
    writer.write(rows(&schema, 0, 10)).unwrap();
    // It may have failed before the last file ended.
    let result = match writer.seal() {
        Ok(sealed) => sealed.wait().await,
        Err(error) => Err(error),
    };
    assert_eq!(result.unwrap_err().code(), "TEST_STORE");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_another_schema_is_refused() {
    let (_, batch) = texts(&["x".to_string()]);
    let table = Table::new(schema(), &[], &[]);
    let mut writer = table.writer();
    let error = writer.write(batch).unwrap_err();
    assert_eq!(error.code(), "INTERNAL");
    // The rows are not in any file, so the others must not be committed either.
    writer.write(rows(&table.schema, 0, 10)).unwrap_err();
    writer.seal().unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_partition_values_stay_inside_the_table() {
    let values = [
        "../../../../ESCAPED",
        "a/b",
        "?",
        "#",
        "%2e%2e",
        "",
        "..",
        "\0",
    ]
    .map(String::from);
    let (schema, batch) = texts(&values);
    let table = Table::new(schema, &[("s", Transform::Identity)], &[]);
    let files = table.write(&[batch]).await;
    assert_eq!(files.len(), values.len());
    for file in &files {
        assert_eq!(
            file.file_path().matches('/').count(),
            6,
            "{}",
            file.file_path()
        );
        let (found, _) = table.open(file);
        let value = found.column(1).as_string::<i32>().value(0);
        let expected = Some(Literal::Primitive(PrimitiveLiteral::String(
            value.to_string(),
        )));
        assert_eq!(file.partition().fields(), [expected]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn bounds_contain_all_values(
        texts in prop::collection::vec("[\u{0}-\u{10ffff}]{0,30}", 1..60),
        numbers in prop::collection::vec((any::<Option<f64>>(), any::<Option<i32>>(), any::<i128>()), 60),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let fields = vec![
            NestedField::required(1, "s", Type::Primitive(PrimitiveType::String)),
            NestedField::required(2, "b", Type::Primitive(PrimitiveType::Binary)),
            NestedField::optional(3, "f", Type::Primitive(PrimitiveType::Double)),
            NestedField::optional(4, "i", Type::Primitive(PrimitiveType::Int)),
            NestedField::required(5, "d", Type::Primitive(PrimitiveType::Decimal { precision: 38, scale: 3 })),
        ];
        let schema = Arc::new(Schema::builder().with_fields(fields.into_iter().map(Arc::new)).build().unwrap());
        let numbers = &numbers[..texts.len()];
        let decimals = numbers.iter().map(|row| row.2 % 10i128.pow(38));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from_iter_values(&texts)),
            Arc::new(LargeBinaryArray::from_iter_values(texts.iter().map(|text| text.bytes().rev().map(|b| b | 0x80).collect::<Vec<_>>()))),
            Arc::new(numbers.iter().map(|row| row.0).collect::<arrow_array::PrimitiveArray<Float64Type>>()),
            Arc::new(numbers.iter().map(|row| row.1).collect::<arrow_array::PrimitiveArray<Int32Type>>()),
            Arc::new(Decimal128Array::from_iter_values(decimals).with_precision_and_scale(38, 3).unwrap()),
        ];
        let arrow = Arc::new(schema_to_arrow_schema(&schema).unwrap());
        let batch = RecordBatch::try_new(arrow, columns).unwrap();
        let table = Table::new(schema, &[], &[("write.parquet.row-group-size-bytes", "500")]);
        let files = runtime.block_on(async { table.write(&[batch]).await });
        let (found, _) = table.open(&files[0]);
        prop_assert_eq!(found.num_rows(), texts.len());
        // A text of nothing but the highest code points has no upper bound.
        check_bounds(&table.schema, &files[0], &found);
        prop_assert!(files[0].lower_bounds().contains_key(&1));
    }
}
