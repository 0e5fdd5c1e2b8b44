//! Chooses the encoding of each column of a file from the first rows it gets, and from what the
//! files before it taught.
//!
//! A dictionary of values that hardly repeat costs a hash for each and saves nothing. Numbers that
//! lie close together and texts that do not repeat are smaller, and cheaper to compress, as
//! differences and with their lengths apart. `tests/interop` reads each of these encodings back
//! with every reader of docs/compatibility.md.

mod kind;
mod lessons;
mod sample;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use iceberg::spec::PrimitiveType;
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

pub(super) use kind::ColumnEncoding;
pub use lessons::Lessons;
use sample::Choice;

use super::properties::FileProperties;
use super::schema::FileSchema;
use super::texts::RUN_ROWS;

/// Rows of a row group, whatever their bytes: they have to fit the index of a reader.
const ROW_GROUP_ROWS_MAX: usize = 16 << 20;
/// Bytes that statistics keep of a value. Never fewer than 64: the 16 code points of a bound.
const STATISTICS_BYTES: usize = 64;

/// Returns the Parquet settings of a file that begins with `sample`. When it is one of `many`, its
/// columns get no delta encodings: the encoders of the crate reserve 1 MiB for each.
pub(super) fn writer_properties(
    properties: &FileProperties,
    schema: &FileSchema,
    lessons: &Lessons,
    sample: &RecordBatch,
    many: bool,
) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("frazil version ", env!("CARGO_PKG_VERSION")).to_string())
        .set_key_value_metadata(Some(vec![KeyValue::new(
            "iceberg.schema".to_string(),
            schema.json.clone(),
        )]))
        .set_compression(properties.compression)
        .set_max_row_group_bytes(Some(properties.row_group_bytes))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS_MAX))
        .set_data_page_size_limit(properties.page_bytes)
        .set_data_page_row_count_limit(properties.page_rows)
        .set_write_batch_size(RUN_ROWS)
        .set_dictionary_page_size_limit(properties.dictionary_bytes)
        .set_statistics_truncate_length(Some(STATISTICS_BYTES))
        .set_column_index_truncate_length(Some(STATISTICS_BYTES));
    let mut arrays = leaf_arrays(sample).into_iter();
    for (leaf, column) in schema.leaves.iter().zip(schema.parquet.columns()) {
        let array = arrays.next();
        let fixed = properties.column_encodings.get(&leaf.name).copied();
        let encoding = fixed.unwrap_or_else(|| {
            let column = (leaf.id, column.physical_type());
            let chosen = lessons.choose(column, |can_spill| {
                let choice = Choice {
                    physical: column.1,
                    deltas: properties.deltas,
                    dictionary: !can_spill,
                };
                sample::choose(choice, array.as_ref()?)
            });
            match many && chosen.packs() {
                true => ColumnEncoding::Plain,
                false => chosen,
            }
        });
        builder = encoding.apply(builder, column);
        if leaf.kind == PrimitiveType::String && leaf.position.len() == 1 {
            // `TextBounds` puts them in the crate's place.
            let path = column.path().clone();
            builder = builder.set_column_statistics_enabled(path, EnabledStatistics::None);
        }
        builder = bloom(builder, properties, &leaf.name, column.path());
    }
    builder.build()
}

/// Learns from a finished file which dictionaries outgrew their page.
pub(super) fn learn(lessons: &Lessons, schema: &FileSchema, metadata: &ParquetMetaData) {
    for (index, leaf) in schema.leaves.iter().enumerate() {
        let chunks = metadata.row_groups().iter();
        let mut chunks = chunks.map(|group| group.column(index));
        if let Some(chunk) = chunks.find(|chunk| kind::has_spilled(chunk)) {
            lessons.spilled((leaf.id, chunk.column_type()));
        }
    }
}

/// Returns the arrays of the Parquet columns of a batch, in their order.
pub(super) fn leaf_arrays(batch: &RecordBatch) -> Vec<ArrayRef> {
    let mut found = Vec::new();
    for array in batch.columns() {
        descend(array, &mut found);
    }
    found
}

fn descend(array: &ArrayRef, found: &mut Vec<ArrayRef>) {
    match array.data_type() {
        DataType::Struct(_) => {
            for child in array.as_struct().columns() {
                descend(child, found);
            }
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            descend(&within(list.values(), list.offsets()), found);
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            descend(&within(list.values(), list.offsets()), found);
        }
        DataType::Map(..) => {
            let map = array.as_map();
            descend(&within(map.keys(), map.offsets()), found);
            descend(&within(map.values(), map.offsets()), found);
        }
        _ => found.push(array.clone()),
    }
}

/// Returns the entries that belong to the rows of a list, which may be a slice of a larger one.
fn within<O: arrow_array::OffsetSizeTrait>(values: &ArrayRef, offsets: &[O]) -> ArrayRef {
    let at = |offset: Option<&O>| offset.map_or(0, |offset| offset.as_usize());
    let (start, end) = (at(offsets.first()), at(offsets.last()));
    values.slice(start, end - start)
}

fn bloom(
    builder: WriterPropertiesBuilder,
    properties: &FileProperties,
    name: &str,
    path: &ColumnPath,
) -> WriterPropertiesBuilder {
    let filters = &mut properties.bloom_filters.iter();
    let Some(filter) = filters.find(|filter| filter.column == name) else {
        return builder;
    };
    // The number of values at which a filter of the allowed size keeps its promise.
    let per_byte = -(1.0 - filter.fpp.powf(1.0 / 8.0)).ln();
    let values = (properties.bloom_bytes_max as f64 * per_byte).max(1.0) as u64;
    builder
        .set_column_bloom_filter_enabled(path.clone(), true)
        .set_column_bloom_filter_fpp(path.clone(), filter.fpp)
        .set_column_bloom_filter_ndv(path.clone(), values)
}
