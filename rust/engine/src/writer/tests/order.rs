//! Files of tables with a sort order.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float32Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::DataType;
use arrow_select::take::take_record_batch;
use frazil_core::layout::sort::FileOrder;
use frazil_core::partition::RowOrder;
use iceberg::spec::{NullOrder, SortDirection, SortField, SortOrder, Transform};

use super::fixture::{Table, rows, schema};

fn order(source_id: i32, transform: Transform, descending: bool, nulls_first: bool) -> SortOrder {
    SortOrder::builder()
        .with_order_id(5)
        .with_sort_field(SortField {
            source_id,
            transform,
            direction: match descending {
                true => SortDirection::Descending,
                false => SortDirection::Ascending,
            },
            null_order: match nulls_first {
                true => NullOrder::First,
                false => NullOrder::Last,
            },
        })
        .build_unbound()
        .unwrap()
}

fn sorted_table(terms: &[(&str, Transform)], order: &SortOrder) -> Table {
    let mut table = Table::new(schema(), terms, &[]);
    table.config.order = Some(Arc::new(FileOrder {
        rows: RowOrder::new(order, &table.schema).unwrap(),
        id: Some(5),
    }));
    table
}

/// The rows `0..count` in an order of no meaning.
fn shuffled(table: &Table, count: u32) -> RecordBatch {
    let batch = rows(&table.schema, 0, i64::from(count));
    // 7,919 is a prime, and larger than any count here.
    let indices = (0..count).map(|n| (u64::from(n) * 7_919 % u64::from(count)) as u32);
    take_record_batch(&batch, &UInt32Array::from_iter_values(indices)).unwrap()
}

/// Checks that the values of a read file come as they should.
#[track_caller]
fn check<K: PartialOrd + std::fmt::Debug>(
    values: impl Iterator<Item = Option<K>>,
    descending: bool,
    nulls_first: bool,
) {
    let values: Vec<Option<K>> = values.collect();
    assert!(values.len() > 100);
    let nulls = values.iter().filter(|value| value.is_none()).count();
    assert!(nulls > 0);
    let split = if nulls_first {
        nulls
    } else {
        values.len() - nulls
    };
    let (left, right) = values.split_at(split);
    let (none, some) = if nulls_first {
        (left, right)
    } else {
        (right, left)
    };
    assert!(none.iter().all(Option::is_none), "nulls are together");
    let pairs = some.windows(2);
    for pair in pairs {
        let (a, b) = (pair[0].as_ref().unwrap(), pair[1].as_ref().unwrap());
        assert!(if descending { a >= b } else { a <= b }, "{a:?} {b:?}");
    }
}

async fn written(order: &SortOrder) -> RecordBatch {
    let table = sorted_table(&[], order);
    let batch = shuffled(&table, 700);
    let files = table
        .write(&[batch.slice(0, 300), batch.slice(300, 400)])
        .await;
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].sort_order_id(), Some(5));
    let (found, _) = table.open(&files[0]);
    assert_eq!(found.num_rows(), 700);
    let ids = found.column(0).as_primitive::<Int64Type>().values();
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    assert_eq!(ids, (0..700).collect::<Vec<_>>(), "each row once");
    found
}

// Promise: a file of a sorted table has its rows in that order, for numbers, texts, bytes and
// nested columns, rising and falling, nulls first and last
#[tokio::test(flavor = "multi_thread")]
async fn rows_are_in_the_order_of_the_table() {
    for (descending, nulls_first) in [(false, true), (false, false), (true, true), (true, false)] {
        let by = |id, transform| order(id, transform, descending, nulls_first);
        let found = written(&by(2, Transform::Identity)).await;
        let values = found.column(1).as_primitive::<Int32Type>().iter();
        check(values, descending, nulls_first);
        let found = written(&by(7, Transform::Identity)).await;
        let values = found.column(6).as_primitive::<Decimal128Type>().iter();
        check(values, descending, nulls_first);
        let found = written(&by(13, Transform::Identity)).await;
        let texts = found.column(12).as_string::<i32>();
        let values = texts.iter().map(|text| text.map(str::as_bytes));
        check(values, descending, nulls_first);
        let found = written(&by(15, Transform::Identity)).await;
        let values = found.column(14).as_fixed_size_binary().iter();
        check(values, descending, nulls_first);
        let found = written(&by(40, Transform::Identity)).await;
        let cities = found.column(16).as_struct().column(0).clone();
        check(cities.as_string::<i32>().iter(), descending, nulls_first);
        let found = written(&by(13, Transform::Truncate(2))).await;
        let texts = found.column(12).as_string::<i32>();
        let values = texts.iter().map(|text| text.map(|text| &text[..2]));
        check(values, descending, nulls_first);
        let found = written(&by(10, Transform::Bucket(3))).await;
        let times = found.column(9);
        let nulls = (0..times.len()).filter(|row| times.is_null(*row));
        let first = nulls.min().unwrap();
        assert_eq!(first == 0, nulls_first);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nan_is_the_largest_float() {
    let found = written(&order(4, Transform::Identity, false, true)).await;
    let values = found
        .column(3)
        .as_primitive::<Float32Type>()
        .iter()
        .flatten();
    let values: Vec<f32> = values.collect();
    let nans = values.iter().filter(|value| value.is_nan()).count();
    let (numbers, rest) = values.split_at(values.len() - nans);
    assert!(nans > 0 && rest.iter().all(|value| value.is_nan()));
    assert!(numbers.windows(2).all(|pair| pair[0] <= pair[1]));
}

/// Writes batches of 500 rows in runs of some hundred, and returns whether the file says that it is
/// sorted, and the ids of each row group.
async fn runs(starts: &[i64]) -> (Option<i32>, Vec<Vec<i64>>) {
    let mut table = sorted_table(&[], &order(1, Transform::Identity, false, true));
    table.config.run_bytes = 50_000;
    let batches: Vec<_> = starts
        .iter()
        .map(|start| rows(&table.schema, *start, start + 500))
        .collect();
    let files = table.write(&batches).await;
    assert_eq!(files.len(), 1);
    let (found, metadata) = table.open(&files[0]);
    let ids = found.column(0).as_primitive::<Int64Type>().values();
    let mut groups = Vec::new();
    let mut start = 0;
    for group in metadata.row_groups() {
        let end = start + usize::try_from(group.num_rows()).unwrap();
        groups.push(ids[start..end].to_vec());
        start = end;
    }
    (files[0].sort_order_id(), groups)
}

// Promise: a file that is written in several sorted runs says that it is sorted only when it is as
// a whole; each row group is sorted in any case
#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_several_runs_says_whether_it_is_sorted_as_a_whole() {
    let (id, groups) = runs(&[0, 500, 1000, 1500]).await;
    assert_eq!(id, Some(5));
    assert!(groups.len() > 1, "one run proves nothing");
    assert_eq!(groups.concat(), (0..2000).collect::<Vec<_>>());
    let (id, groups) = runs(&[1500, 0, 1000, 500]).await;
    assert_eq!(id, None);
    assert!(groups.len() > 1);
    for group in &groups {
        assert!(group.is_sorted(), "{group:?}");
    }
    let mut all = groups.concat();
    all.sort_unstable();
    assert_eq!(all, (0..2000).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_partition_is_sorted_for_itself() {
    let by_text = order(1, Transform::Identity, true, true);
    let table = sorted_table(&[("id", Transform::Bucket(3))], &by_text);
    let files = table.write(&[shuffled(&table, 900)]).await;
    assert_eq!(files.len(), 3);
    let mut count = 0;
    for file in &files {
        let (found, _) = table.open(file);
        let ids = found.column(0).as_primitive::<Int64Type>().values();
        assert!(ids.windows(2).all(|pair| pair[0] > pair[1]), "{ids:?}");
        assert_eq!(file.sort_order_id(), Some(5));
        count += ids.len();
    }
    assert_eq!(count, 900);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_the_table_does_not_know_is_not_named() {
    let mut table = sorted_table(&[], &order(1, Transform::Identity, true, true));
    let order = order(1, Transform::Identity, true, true);
    let rows_order = RowOrder::new(&order, &table.schema).unwrap();
    table.config.order = Some(Arc::new(FileOrder {
        rows: rows_order,
        id: None,
    }));
    let files = table.write(&[rows(&table.schema, 0, 100)]).await;
    assert_eq!(files[0].sort_order_id(), None);
    let (found, _) = table.open(&files[0]);
    let ids = found.column(0).as_primitive::<Int64Type>().values();
    assert_eq!(ids[0], 99);
}

// Promise: rows that are numbered are told with their file and place, over partitions, sorting and files that end early; no file has the numbers
#[tokio::test(flavor = "multi_thread")]
async fn each_numbered_row_is_told_with_its_place() {
    let by = order(13, Transform::Identity, true, false);
    let mut table = sorted_table(&[("i", Transform::Bucket(4))], &by);
    table.config.numbered = true;
    table.config.writers_max_open = 2;
    let batch = shuffled(&table, 900);
    let ids = batch
        .column(0)
        .as_primitive::<Int64Type>()
        .values()
        .to_vec();
    let number = Arc::new(arrow_schema::Field::new("n", DataType::UInt32, false));
    let fields = batch.schema_ref().fields().iter().cloned().chain([number]);
    let schema = Arc::new(arrow_schema::Schema::new(fields.collect::<Vec<_>>()));
    let numbers: ArrayRef = Arc::new(UInt32Array::from_iter_values(0..900));
    let columns = batch.columns().iter().cloned().chain([numbers]).collect();
    let numbered = RecordBatch::try_new(schema, columns).unwrap();
    let mut writer = table.writer();
    for start in (0..900).step_by(100) {
        writer.write(numbered.slice(start, 100)).unwrap();
    }
    let files = writer.seal().unwrap().wait_numbered().await.unwrap();
    assert!(files.len() > 4, "some end early: {}", files.len());
    let mut told = 0;
    for (file, numbers) in &files {
        let (found, _) = table.open(file);
        assert_eq!(found.num_columns(), batch.num_columns());
        assert_eq!(numbers.len(), found.num_rows());
        let here = found.column(0).as_primitive::<Int64Type>().values();
        for (id, number) in here.iter().zip(numbers) {
            assert_eq!(*id, ids[*number as usize]);
        }
        told += numbers.len();
    }
    assert_eq!(told, 900);
}
