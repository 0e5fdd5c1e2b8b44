//! Encodes batches into the row groups of one Parquet file, column by column: on the thread that
//! writes, and on more when cores are idle.
//!
//! Whoever writes waits until all columns of its batch are encoded. So an error is that of the same
//! call, what a file holds is counted as before, and columns never wait in a queue. A column's
//! bytes do not depend on how many threads there are.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, SchemaRef};
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves,
};
use parquet::basic::{Compression, Encoding};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, TypePtr};

use super::cores::Cores;
use super::encoding::leaf_arrays;
use super::texts::TextBounds;

/// What the codec of a column holds once it has compressed a page.
const CODEC_BYTES: usize = 512 << 10;
/// What that of Zstandard holds from the start: the crate makes a decompressor with each compressor, and of
/// that more than 90 KiB are one object.
const ZSTD_BYTES: usize = 100 << 10;
/// Bytes of a batch for which it is worth to wake another thread.
const BYTES_A_THREAD: usize = 128 << 10;

/// The row group that is open.
struct Group {
    columns: Vec<ArrowColumnWriter>,
    rows: usize,
    /// How many values each column has, where some row can have many.
    values: Vec<usize>,
    /// The bounds of each field, where they are not the crate's.
    texts: Vec<Option<TextBounds>>,
}

/// The encoder of a column that packs numbers.
#[derive(Debug, Clone, Copy)]
struct Packer {
    /// How many bytes each value dirties.
    bytes: usize,
    /// Whether a row may have many values.
    repeats: bool,
}

/// A Parquet file that grows.
pub(super) struct ColumnsWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    /// How many Parquet columns each field has.
    widths: Vec<usize>,
    /// The packer of each Parquet column, where it has one.
    packers: Vec<Option<Packer>>,
    /// Of each field of texts whose bounds are found here, the bytes that statistics keep.
    text_lengths: Vec<Option<usize>>,
    /// What the codecs of all columns hold before they have compressed anything.
    codecs: usize,
    page_rows: usize,
    page_bytes: usize,
    group: Option<Group>,
    group_bytes: usize,
    group_rows: usize,
    cores: &'static Cores,
}

/// What one thread does at a time: a field of a batch into its columns.
struct Work<'a> {
    field: &'a Field,
    array: &'a ArrayRef,
    columns: &'a mut [ArrowColumnWriter],
    texts: &'a mut Option<TextBounds>,
}

impl Work<'_> {
    fn run(self) -> Result<()> {
        if let (Some(bounds), Some(texts)) = (self.texts, self.array.as_string_opt::<i32>()) {
            bounds.observe(texts);
        }
        let leaves = compute_leaves(self.field, self.array)?;
        let mut columns = self.columns.iter_mut().zip(&leaves);
        columns.try_for_each(|(column, leaf)| column.write(leaf))
    }
}

impl<W: Write + Send> ColumnsWriter<W> {
    /// Begins a file of the Parquet schema `root` for batches of `schema`.
    pub(super) fn new(
        sink: W,
        root: TypePtr,
        schema: SchemaRef,
        properties: WriterPropertiesPtr,
        cores: &'static Cores,
    ) -> Result<Self> {
        let unlimited = usize::MAX;
        let (group_bytes, group_rows) = (
            properties.max_row_group_bytes().unwrap_or(unlimited),
            properties.max_row_group_row_count().unwrap_or(unlimited),
        );
        let (page_rows, page_bytes) = (
            properties.data_page_row_count_limit(),
            properties.data_page_size_limit(),
        );
        let file = SerializedFileWriter::new(sink, root, properties)?;
        let columns = file.schema_descr().columns().iter();
        let packers = columns.map(|column| {
            let bytes = packer(file.properties(), column.path())?;
            let repeats = column.max_rep_level() > 0;
            Some(Packer { bytes, repeats })
        });
        let columns = file.schema_descr().columns().iter();
        let codecs = columns.map(|column| codec_bytes(file.properties(), column.path()));
        let widths: Vec<usize> = schema.fields().iter().map(|field| leaves(field)).collect();
        let mut next = 0;
        let text_lengths = schema.fields().iter().zip(&widths).map(|(field, width)| {
            let column = file.schema_descr().columns().get(next);
            next += width;
            let is_text = *field.data_type() == DataType::Utf8;
            text_length(file.properties(), column.filter(|_| is_text)?.path())
        });
        Ok(ColumnsWriter {
            factory: ArrowRowGroupWriterFactory::new(&file, Arc::clone(&schema)),
            packers: packers.collect(),
            text_lengths: text_lengths.collect(),
            codecs: codecs.sum(),
            page_rows,
            page_bytes,
            widths,
            file,
            schema,
            group: None,
            group_bytes,
            group_rows,
            cores,
        })
    }

    /// Encodes a batch, into more than one row group where it does not fit the open one.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut start = 0;
        while start < batch.num_rows() {
            let rows = self.room().min(batch.num_rows() - start);
            if rows == 0 {
                self.end_group()?;
                continue;
            }
            self.encode(&batch.slice(start, rows))?;
            start += rows;
        }
        if self.room() == 0 {
            self.end_group()?;
        }
        Ok(())
    }

    /// Returns how many rows the open row group still takes, if they are like those it has.
    fn room(&self) -> usize {
        let Some(group) = &self.group else {
            return self.group_rows;
        };
        let bytes = group.bytes();
        let rows = self.group_rows.saturating_sub(group.rows);
        match bytes.checked_div(group.rows) {
            Some(row) if row > 0 => rows.min(self.group_bytes.saturating_sub(bytes) / row),
            _ => rows,
        }
    }

    fn encode(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.group.is_none() {
            let number = self.file.flushed_row_groups().len();
            self.group = Some(Group {
                columns: self.factory.create_column_writers(number)?,
                rows: 0,
                values: vec![0; self.packers.len()],
                texts: of_texts(&self.text_lengths),
            });
        }
        let Some(group) = &mut self.group else {
            return Ok(());
        };
        group.rows += batch.num_rows();
        let repeats = |packer: &Option<Packer>| packer.is_some_and(|packer| packer.repeats);
        if self.packers.iter().any(repeats) {
            for (values, leaf) in group.values.iter_mut().zip(leaf_arrays(batch)) {
                *values += leaf.len();
            }
        }
        let mut columns = group.columns.as_mut_slice();
        let mut work = Vec::with_capacity(self.widths.len());
        let fields = self.schema.fields().iter().zip(batch.columns());
        let fields = fields.zip(&self.widths).zip(&mut group.texts);
        for (((field, array), width), texts) in fields {
            let (own, rest) = std::mem::take(&mut columns)
                .split_at_mut_checked(*width)
                .ok_or_else(|| ParquetError::General("a field has lost its columns".into()))?;
            columns = rest;
            work.push(Work {
                field,
                array,
                columns: own,
                texts,
            });
        }
        let threads = batch.get_array_memory_size() / BYTES_A_THREAD;
        spread(self.cores, threads, work, Work::run).map(drop)
    }

    /// Ends the row group; the next rows begin another one.
    pub(super) fn end_group(&mut self) -> Result<()> {
        let Some(group) = self.group.take() else {
            return Ok(());
        };
        let threads = group.bytes() / BYTES_A_THREAD;
        let mut chunks: Vec<ArrowColumnChunk> =
            spread(self.cores, threads, group.columns, ArrowColumnWriter::close)?;
        let mut next = 0;
        for (texts, width) in group.texts.iter().zip(&self.widths) {
            if let (Some(texts), Some(chunk)) = (texts, chunks.get_mut(next)) {
                texts.put(chunk.close_mut())?;
            }
            next += width;
        }
        let mut row_group = self.file.next_row_group()?;
        for chunk in chunks {
            chunk.append_to_row_group(&mut row_group)?;
        }
        row_group.close()?;
        Ok(())
    }

    /// Returns about how large the file would be if it ended now.
    pub(super) fn size(&self) -> usize {
        self.file.bytes_written() + self.group.as_ref().map_or(0, Group::bytes)
    }

    /// Returns about how many bytes of memory the open row group holds.
    pub(super) fn memory(&self) -> usize {
        let Some(group) = &self.group else {
            return 0;
        };
        let columns = group.columns.iter().zip(&self.packers).zip(&group.values);
        let columns = columns.map(|((column, packer), values)| {
            let data = column.get_estimated_total_bytes();
            let is_compressed = group.rows >= self.page_rows || data >= self.page_bytes;
            let codec = if is_compressed { CODEC_BYTES } else { 0 };
            // Of the megabyte that a packer reserves, only what it has written to is memory: at most a
            // page, which ends by its rows or, where these have many values, by its bytes.
            codec
                + match packer {
                    Some(packer) if packer.repeats => {
                        data + (values * packer.bytes).min(self.page_bytes)
                    }
                    Some(packer) => data + group.rows.min(self.page_rows) * packer.bytes,
                    None => column.memory_size(),
                }
        });
        let texts = group.texts.iter().flatten().map(TextBounds::memory);
        self.codecs + columns.sum::<usize>() + texts.sum::<usize>()
    }

    /// Returns where the bytes go.
    pub(super) fn sink(&self) -> &W {
        self.file.inner()
    }

    /// Returns where the bytes go.
    pub(super) fn sink_mut(&mut self) -> &mut W {
        self.file.inner_mut()
    }

    /// Writes the footer; nothing can be written after it.
    pub(super) fn finish(&mut self) -> Result<ParquetMetaData> {
        self.end_group()?;
        self.file.finish()
    }
}

impl Group {
    fn bytes(&self) -> usize {
        let columns = self.columns.iter();
        columns
            .map(ArrowColumnWriter::get_estimated_total_bytes)
            .sum()
    }
}

/// Returns the bytes of a number that the encoder of a column packs; nothing when it packs none.
fn packer(properties: &WriterProperties, path: &ColumnPath) -> Option<usize> {
    if properties.dictionary_enabled(path) {
        return None;
    }
    match properties.encoding(path)? {
        Encoding::DELTA_BINARY_PACKED | Encoding::DELTA_BYTE_ARRAY => Some(8),
        Encoding::DELTA_LENGTH_BYTE_ARRAY => Some(4),
        _ => None,
    }
}

/// Returns the bytes that statistics keep of a text, for a column of which the crate keeps none.
fn text_length(properties: &WriterProperties, path: &ColumnPath) -> Option<usize> {
    match properties.statistics_enabled(path) {
        EnabledStatistics::None => properties.statistics_truncate_length(),
        _ => None,
    }
}

fn of_texts(lengths: &[Option<usize>]) -> Vec<Option<TextBounds>> {
    let bounds = lengths.iter().map(|length| length.map(TextBounds::new));
    bounds.collect()
}

/// Returns what the codec of a column holds from the start.
fn codec_bytes(properties: &WriterProperties, path: &ColumnPath) -> usize {
    match properties.compression(path) {
        Compression::ZSTD(_) => ZSTD_BYTES,
        _ => 0,
    }
}

/// Returns how many Parquet columns a field becomes.
fn leaves(field: &Field) -> usize {
    match field.data_type() {
        DataType::Struct(children) => children.iter().map(|child| leaves(child)).sum(),
        DataType::List(child) | DataType::LargeList(child) | DataType::Map(child, _) => {
            leaves(child)
        }
        _ => 1,
    }
}

/// Runs `run` on all items and returns the results in their order; on further threads as well, up to
/// `threads` in all and as many as cores are idle.
fn spread<T: Send, R: Send>(
    cores: &Cores,
    threads: usize,
    items: Vec<T>,
    run: impl Fn(T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    // This thread's own; that it is there does not depend on it.
    let _own = cores.claim(1);
    let helpers = cores.claim(threads.min(items.len()).saturating_sub(1));
    if helpers.count() == 0 {
        return items.into_iter().map(run).collect();
    }
    let count = items.len();
    let queue = Mutex::new(items.into_iter().enumerate());
    let take = || {
        let mut done = Vec::new();
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((index, item)) = next else {
                return done;
            };
            done.push((index, run(item)));
        }
    };
    let mut results: Vec<(usize, Result<R>)> = Vec::with_capacity(count);
    thread::scope(|scope| {
        let mut running = Vec::with_capacity(helpers.count());
        for _ in 0..helpers.count() {
            let thread = thread::Builder::new().name("frazil-encode".to_string());
            // Without the thread, the others take its share.
            running.extend(thread.spawn_scoped(scope, take));
        }
        results.extend(take());
        for thread in running {
            match thread.join() {
                Ok(done) => results.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use arrow_array::{Int64Array, ListArray};
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::Schema;
    use parquet::arrow::ArrowSchemaConverter;

    use super::*;

    /// The memory and size of a file of `rows` lists of `length` numbers each, packed.
    fn of_lists(rows: usize, length: usize) -> (usize, usize) {
        let element = Arc::new(Field::new("element", DataType::Int64, false));
        let list = Field::new("li", DataType::List(Arc::clone(&element)), false);
        let schema = Arc::new(Schema::new(vec![list]));
        let parquet = ArrowSchemaConverter::new().convert(&schema).unwrap();
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::DELTA_BINARY_PACKED)
            .build();
        let mut writer = ColumnsWriter::new(
            Vec::new(),
            parquet.root_schema_ptr(),
            Arc::clone(&schema),
            Arc::new(properties),
            Cores::of_process(),
        )
        .unwrap();
        let offsets = OffsetBuffer::from_lengths(vec![length; 100]);
        let numbers: Int64Array = (0..100 * length as i64).map(Some).collect();
        let lists = ListArray::new(element, offsets, Arc::new(numbers), None);
        let batch = RecordBatch::try_new(schema, vec![Arc::new(lists)]).unwrap();
        for _ in 0..rows / 100 {
            writer.write(&batch).unwrap();
        }
        (writer.memory(), writer.size())
    }

    #[test]
    fn a_packer_of_lists_counts_by_their_values() {
        let (memory, _) = of_lists(400, 200);
        assert!(memory >= 400 * 200 * 8, "{memory}");
        let (memory, _) = of_lists(400, 1);
        assert!(memory < 100_000, "{memory}");
        // At most a page, and what the codec holds.
        let (memory, size) = of_lists(4_000, 200);
        assert!(memory <= size + (1 << 20) + CODEC_BYTES, "{memory}");
    }

    #[test]
    fn results_come_in_order_from_any_number_of_threads() {
        let square = |n: usize| Ok(n * n);
        let right: Vec<usize> = (0..100).map(|n| n * n).collect();
        for idle in [0, 1, 2, 5] {
            let cores = Cores::new(idle);
            for threads in [0, 1, 4, 200] {
                assert_eq!(
                    spread(&cores, threads, (0..100).collect(), square).unwrap(),
                    right
                );
                assert_eq!(cores.claim(9).count(), idle, "cores are given back");
            }
        }
    }

    #[test]
    fn cores_that_are_idle_are_used_and_no_others() {
        // Each item waits for the others, which only comes to an end with a thread for each.
        let together = |idle, threads| {
            let cores = Cores::new(idle);
            let arrived = AtomicUsize::new(0);
            let seen = spread(&cores, threads, vec![(); 3], |()| {
                arrived.fetch_add(1, Ordering::SeqCst);
                let begin = Instant::now();
                let patience = Duration::from_millis(if idle == 3 { 20_000 } else { 20 });
                while arrived.load(Ordering::SeqCst) < 3 && begin.elapsed() < patience {
                    thread::yield_now();
                }
                Ok(arrived.load(Ordering::SeqCst))
            });
            seen.unwrap()
        };
        // One of the cores is this thread's own.
        assert_eq!(together(1, 8), [1, 2, 3]);
        assert_eq!(together(9, 1), [1, 2, 3]);
        assert_eq!(together(3, 8), [3, 3, 3]);
    }

    #[test]
    fn an_error_of_any_thread_is_that_of_the_call() {
        let cores = Cores::new(4);
        let error = spread(&cores, 4, (0..50).collect(), |n: i32| match n {
            33 => Err(ParquetError::General("thirty-three".into())),
            _ => Ok(n),
        });
        assert!(error.unwrap_err().to_string().contains("thirty-three"));
    }

    #[test]
    #[should_panic = "column panics"]
    fn a_panic_of_any_thread_is_that_of_the_call() {
        let cores = Cores::new(4);
        drop(spread(&cores, 4, (0..50).collect(), |n: i32| {
            assert!(n != 33, "a column panics");
            Ok(n)
        }));
    }
}
