//! The least and the greatest text of each page of a column, found by their first bytes.
//!
//! The crate compares each text twice with `memcmp`, which is a third of what encoding texts costs. Here the
//! first eight bytes are one number, and most texts are not looked at any further. The crate is told to keep
//! no statistics of these columns; when a row group ends, they are put where the crate's would be: of the
//! chunk, by which readers skip row groups and which become the bounds of the file, and of its pages.
//!
//! Keeps: bounds hold for every text they speak of. Where pages do not end where they are expected to, a
//! column has no statistics of pages.

use std::cmp::Ordering;

use arrow_array::{Array, StringArray};
use parquet::basic::{BoundaryOrder, Type as PhysicalType};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::Result;
use parquet::file::metadata::ColumnIndexBuilder;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::{Statistics, ValueStatistics};

use super::metrics::increment_text;

/// Rows after which the crate may end a page.
pub(super) const RUN_ROWS: usize = 1_024;

/// What is kept of the texts of one column in a row group.
#[derive(Debug)]
pub(super) struct TextBounds {
    /// Bytes that statistics keep of a text.
    length: usize,
    runs: Vec<Run>,
    /// Bytes of all texts.
    text_bytes: usize,
    /// Bytes of memory that the ranges of the runs hold.
    range_bytes: usize,
}

/// The beginnings of the least and the greatest text: whole, or one byte more than is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Range {
    least: Box<[u8]>,
    greatest: Box<[u8]>,
}

/// Rows that follow each other and are never of more than one page.
#[derive(Debug)]
struct Run {
    rows: usize,
    nulls: usize,
    /// Nothing when all are null.
    range: Option<Range>,
}

/// Bounds as statistics have them, and whether each is a text that there is.
struct Bounds {
    lower: (Vec<u8>, bool),
    upper: (Vec<u8>, bool),
}

/// A text, with its first eight bytes as a number that is ordered as they are.
#[derive(Debug, Clone, Copy)]
struct Text<'t> {
    head: u64,
    bytes: &'t [u8],
}

impl<'t> Text<'t> {
    #[inline]
    fn of(array: &'t StringArray, row: usize) -> Self {
        let (offsets, data) = (array.value_offsets(), array.value_data());
        let start = offsets[row].cast_unsigned() as usize;
        let bytes = &data[start..offsets[row + 1].cast_unsigned() as usize];
        let head = match data[start..].first_chunk::<8>() {
            Some(eight) if bytes.len() >= 8 => u64::from_be_bytes(*eight),
            // What belongs to the next text is left out.
            Some(eight) => u64::from_be_bytes(*eight) & !(u64::MAX >> (8 * bytes.len())),
            None => {
                let mut eight = [0; 8];
                let taken = bytes.len().min(8);
                eight[..taken].copy_from_slice(&bytes[..taken]);
                u64::from_be_bytes(eight)
            }
        };
        Text { head, bytes }
    }

    #[inline]
    fn order(&self, other: &Self) -> Ordering {
        match self.head.cmp(&other.head) {
            Ordering::Equal => order_of_rest(self.bytes, other.bytes),
            order => order,
        }
    }
}

/// Orders texts whose first eight bytes are alike, or what there is of them and zeros.
#[inline]
fn order_of_rest(one: &[u8], other: &[u8]) -> Ordering {
    let head = |text: &[u8]| text.len().min(8);
    let (mut one_rest, mut other_rest) = (&one[head(one)..], &other[head(other)..]);
    while let (Some((a, after_a)), Some((b, after_b))) = (
        one_rest.split_first_chunk::<8>(),
        other_rest.split_first_chunk::<8>(),
    ) {
        if a != b {
            return a.cmp(b);
        }
        (one_rest, other_rest) = (after_a, after_b);
    }
    // Zeros in place of what one does not have: the shorter one comes first.
    one_rest.cmp(other_rest).then(one.len().cmp(&other.len()))
}

impl Range {
    fn of(least: &[u8], greatest: &[u8], length: usize) -> Self {
        let beginning = |text: &[u8]| Box::from(&text[..text.len().min(length + 1)]);
        Range {
            least: beginning(least),
            greatest: beginning(greatest),
        }
    }

    fn bytes(&self) -> usize {
        self.least.len() + self.greatest.len()
    }

    /// Returns the range of all `runs`.
    fn around(runs: &[Run]) -> Option<Range> {
        let ranges = runs.iter().filter_map(|run| run.range.as_ref());
        Some(Range {
            least: ranges.clone().map(|range| &range.least).min()?.clone(),
            greatest: ranges.map(|range| &range.greatest).max()?.clone(),
        })
    }

    /// Cuts it to what statistics keep; nothing when no text of that length is above all.
    fn cut(&self, length: usize) -> Option<Bounds> {
        let lower = match beginning(&self.least, length) {
            None => (self.least.to_vec(), true),
            Some(text) => (text?.as_bytes().to_vec(), false),
        };
        let upper = match beginning(&self.greatest, length) {
            None => (self.greatest.to_vec(), true),
            Some(text) => (increment_text(text?)?.into_bytes(), false),
        };
        Some(Bounds { lower, upper })
    }
}

/// Returns the whole characters in the first `length` bytes of a text; nothing when it has no more.
fn beginning(text: &[u8], length: usize) -> Option<Option<&str>> {
    let mut end = text.get(length).map(|_| length)?;
    while end > 0 && text[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    Some(std::str::from_utf8(&text[..end]).ok())
}

impl TextBounds {
    /// Begins a row group in which statistics keep `length` bytes of a text.
    pub(super) fn new(length: usize) -> Self {
        TextBounds {
            length,
            runs: Vec::new(),
            text_bytes: 0,
            range_bytes: 0,
        }
    }

    /// Looks at texts that are written next, all at once.
    pub(super) fn observe(&mut self, texts: &StringArray) {
        for start in (0..texts.len()).step_by(RUN_ROWS) {
            let end = texts.len().min(start + RUN_ROWS);
            let run = self.run(texts, start..end);
            self.range_bytes += run.range.as_ref().map_or(0, Range::bytes);
            self.runs.push(run);
        }
    }

    fn run(&mut self, texts: &StringArray, rows: std::ops::Range<usize>) -> Run {
        let count = rows.len();
        let mut valid = rows.filter(|row| texts.is_valid(*row));
        let Some(first) = valid.next().map(|row| Text::of(texts, row)) else {
            return Run {
                rows: count,
                nulls: count,
                range: None,
            };
        };
        let (mut least, mut greatest, mut texts_seen) = (first, first, 1);
        self.text_bytes += first.bytes.len();
        for row in valid {
            let text = Text::of(texts, row);
            texts_seen += 1;
            self.text_bytes += text.bytes.len();
            if text.order(&least).is_lt() {
                least = text;
            }
            if text.order(&greatest).is_gt() {
                greatest = text;
            }
        }
        Run {
            rows: count,
            nulls: count - texts_seen,
            range: Some(Range::of(least.bytes, greatest.bytes, self.length)),
        }
    }

    /// Returns the bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.runs.capacity() * size_of::<Run>() + self.range_bytes
    }

    /// Puts the statistics of the row group where it ends.
    pub(super) fn put(&self, close: &mut ColumnCloseResult) -> Result<()> {
        let nulls = self.runs.iter().map(|run| run.nulls as u64).sum();
        let bounds = Range::around(&self.runs).and_then(|range| range.cut(self.length));
        let text = |(bytes, _): &(Vec<u8>, bool)| ByteArray::from(bytes.clone());
        let lower = bounds.as_ref().map(|bounds| text(&bounds.lower));
        let upper = bounds.as_ref().map(|bounds| text(&bounds.upper));
        let exact = bounds.map_or((false, false), |bounds| (bounds.lower.1, bounds.upper.1));
        let statistics = ValueStatistics::new(lower, upper, None, Some(nulls), false)
            .with_min_is_exact(exact.0)
            .with_max_is_exact(exact.1);
        let text_bytes = i64::try_from(self.text_bytes).ok();
        close.column_index = self.pages(close)?;
        let metadata = close.metadata.clone().into_builder();
        close.metadata = metadata
            .set_statistics(Statistics::ByteArray(statistics))
            .set_unencoded_byte_array_data_bytes(text_bytes)
            .build()?;
        Ok(())
    }

    /// Returns the statistics of the pages; nothing when these are not whole runs, or cannot have bounds.
    fn pages(&self, close: &ColumnCloseResult) -> Result<Option<ColumnIndexMetaData>> {
        let Some(offsets) = &close.offset_index else {
            return Ok(None);
        };
        let mut index = ColumnIndexBuilder::new(PhysicalType::BYTE_ARRAY);
        let (mut runs, mut rows) = (self.runs.as_slice(), 0);
        let starts = offsets.page_locations().iter().skip(1);
        let ends = starts.map(|page| usize::try_from(page.first_row_index).ok());
        let all = self.runs.iter().map(|run| run.rows).sum();
        let mut order = (true, true);
        let mut before: Option<Bounds> = None;
        for end in ends.chain([Some(all)]) {
            let mut count = 0;
            while end.is_some_and(|end| rows < end) && count < runs.len() {
                rows += runs[count].rows;
                count += 1;
            }
            if end != Some(rows) {
                return Ok(None);
            }
            let (page, rest) = runs.split_at(count);
            runs = rest;
            let nulls: usize = page.iter().map(|run| run.nulls).sum();
            let nulls = i64::try_from(nulls).unwrap_or(i64::MAX);
            let Some(range) = Range::around(page) else {
                index.append(true, Vec::new(), Vec::new(), nulls);
                continue;
            };
            let Some(bounds) = range.cut(self.length) else {
                return Ok(None);
            };
            if let Some(before) = &before {
                let pairs = [
                    before.lower.0.cmp(&bounds.lower.0),
                    before.upper.0.cmp(&bounds.upper.0),
                ];
                order.0 &= pairs.iter().all(|order| order.is_le());
                order.1 &= pairs.iter().all(|order| order.is_ge());
            }
            let (lower, upper) = (bounds.lower.0.clone(), bounds.upper.0.clone());
            index.append(false, lower, upper, nulls);
            before = Some(bounds);
        }
        index.set_boundary_order(match order {
            (true, _) => BoundaryOrder::ASCENDING,
            (false, true) => BoundaryOrder::DESCENDING,
            (false, false) => BoundaryOrder::UNORDERED,
        });
        index.build().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::RecordBatch;
    use arrow_schema::{DataType, Field, Schema};
    use parquet::arrow::ArrowSchemaConverter;
    use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
    use parquet::file::properties::{EnabledStatistics, WriterProperties};
    use proptest::prelude::*;

    use super::super::columns::ColumnsWriter;
    use super::super::cores::Cores;
    use super::*;

    fn texts() -> impl Strategy<Value = Vec<Option<String>>> {
        let text = "[ab\0é\u{10ffff}]{0,12}";
        prop::collection::vec(prop::option::weighted(0.9, text), 1..40)
    }

    #[test]
    fn texts_are_ordered_as_their_bytes_are() {
        let texts = [
            "",
            "\0",
            "a",
            "a\0",
            "a\0\0\0\0\0\0\0",
            "a\0\0\0\0\0\0\0\0",
            "aaaaaaaa",
            "aaaaaaaab",
            "aaaaaaaabbbbbbbb",
            "aaaaaaaabbbbbbbbc",
            "aaaaaaaabbbbbbbc",
            "b",
            "é",
        ];
        // Another one behind, and none.
        for last in ["zzzzzzzzz", ""] {
            let array = StringArray::from_iter_values(texts.iter().chain([&last]));
            for (one, text) in texts.iter().enumerate() {
                for (other, against) in texts.iter().enumerate() {
                    let order = Text::of(&array, one).order(&Text::of(&array, other));
                    assert_eq!(order, text.cmp(against), "{text:?} {against:?}");
                }
            }
        }
    }

    #[test]
    fn cut_bounds_are_told_from_whole_ones() {
        let cut = |least: &str, greatest: &str| {
            let range = Range::of(least.as_bytes(), greatest.as_bytes(), 4);
            let bounds = range.cut(4)?;
            let shown = |(bytes, exact)| (String::from_utf8(bytes).expect("text"), exact);
            Some((shown(bounds.lower), shown(bounds.upper)))
        };
        let pair = |text: &str, exact| (text.to_owned(), exact);
        assert_eq!(
            cut("abcd", "abcd"),
            Some((pair("abcd", true), pair("abcd", true)))
        );
        assert_eq!(
            cut("abcde", "abcde"),
            Some((pair("abcd", false), pair("abce", false)))
        );
        // A character that does not fit is left out whole.
        assert_eq!(
            cut("abcé", "abcé"),
            Some((pair("abc", false), pair("abd", false)))
        );
        assert_eq!(cut("a", "\u{10ffff}x"), None);
    }

    type Maker = Box<dyn Fn(usize) -> Option<String>>;

    /// What a file with these texts says of them: of the chunk, then of each page.
    fn said(texts: &[Option<String>], ours: bool) -> Vec<String> {
        let field = Field::new("s", DataType::Utf8, true);
        let schema = Arc::new(Schema::new(vec![field]));
        let parquet = ArrowSchemaConverter::new().convert(&schema).unwrap();
        let mut properties = WriterProperties::builder()
            .set_write_batch_size(RUN_ROWS)
            .set_data_page_row_count_limit(3_000)
            .set_dictionary_page_size_limit(20_000)
            .set_statistics_truncate_length(Some(64))
            .set_column_index_truncate_length(Some(64));
        if ours {
            properties = properties.set_statistics_enabled(EnabledStatistics::None);
        }
        let mut writer = ColumnsWriter::new(
            Vec::new(),
            parquet.root_schema_ptr(),
            Arc::clone(&schema),
            Arc::new(properties.build()),
            Cores::of_process(),
        )
        .unwrap();
        for texts in texts.chunks(5_000) {
            let array: StringArray = texts.iter().cloned().collect();
            let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(array)]);
            writer.write(&batch.unwrap()).unwrap();
        }
        writer.finish().unwrap();
        let file = bytes::Bytes::from(std::mem::take(writer.sink_mut()));
        let metadata = ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Required)
            .parse_and_finish(&file)
            .unwrap();
        let chunk = metadata.row_group(0).column(0);
        let mut said = vec![format!(
            "{:?} {:?}",
            chunk.statistics(),
            chunk.unencoded_byte_array_data_bytes()
        )];
        let index = &metadata.column_index().unwrap()[0][0];
        said.push(format!("{:?}", index.get_boundary_order()));
        let ColumnIndexMetaData::BYTE_ARRAY(pages) = index else {
            panic!("no statistics of pages");
        };
        let pages = (0..pages.num_pages() as usize).map(|page| {
            let (nulls, all_null) = (pages.null_count(page), pages.is_null_page(page));
            let text = |bytes: Option<&[u8]>| {
                bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            };
            let range = (text(pages.min_value(page)), text(pages.max_value(page)));
            format!("{nulls:?} {all_null} {range:?}")
        });
        said.extend(pages);
        said
    }

    // Promise: readers skip row groups and pages by the least and the greatest text of each, as by those of other
    // columns
    #[test]
    fn statistics_are_those_of_the_crate() {
        let some = |text: String| Some(text);
        let mixed = |n: usize| n.wrapping_mul(0x9e37_79b9) % 100_003;
        let cases: [(&str, Maker); 6] = [
            ("rising", Box::new(move |n| some(format!("{n:08}")))),
            (
                "falling",
                Box::new(move |n| some(format!("{:08}", 99_999 - n))),
            ),
            (
                "mixed",
                Box::new(move |n| some(format!("/shop/item/{}?ref=mail", mixed(n)))),
            ),
            (
                "few",
                Box::new(move |n| some(["", "a", "ab", "über"][mixed(n) % 4].to_owned())),
            ),
            (
                "long",
                Box::new(move |n| some(format!("{}é{n}", "x".repeat(mixed(n) % 70)))),
            ),
            (
                "nulls",
                Box::new(move |n| match n {
                    6_000..13_000 => None,
                    _ if mixed(n) % 3 == 0 => None,
                    _ => some(format!("{}", mixed(n))),
                }),
            ),
        ];
        for (name, text) in cases {
            let texts: Vec<Option<String>> = (0..17_500).map(text).collect();
            let ours = said(&texts, true);
            assert!(ours.len() > 5, "{name}: {ours:?}");
            assert_eq!(ours, said(&texts, false), "{name}");
        }
        let nulls = vec![None; 4_000];
        assert_eq!(said(&nulls, true), said(&nulls, false));
    }

    proptest! {
        #[test]
        fn bounds_hold_for_all_texts(texts in texts(), length in 1_usize..9) {
            let mut bounds = TextBounds::new(length);
            let array = StringArray::from(texts.clone());
            bounds.observe(&array);
            bounds.observe(&array.slice(1, array.len() - 1));
            let nulls = texts.iter().chain(&texts[1..]).filter(|text| text.is_none()).count();
            let all: usize = bounds.runs.iter().map(|run| run.nulls).sum();
            prop_assert_eq!(all, nulls);
            let valid: Vec<&str> = texts.iter().flatten().map(String::as_str).collect();
            let range = Range::around(&bounds.runs);
            prop_assert_eq!(range.is_some(), !valid.is_empty());
            if let Some(cut) = range.and_then(|range| range.cut(length)) {
                let least = valid.iter().map(|text| text.as_bytes()).min().expect("one");
                let greatest = valid.iter().map(|text| text.as_bytes()).max().expect("one");
                prop_assert!(&*cut.lower.0 <= least && greatest <= &*cut.upper.0);
                prop_assert_eq!(cut.lower.1, &*cut.lower.0 == least);
                prop_assert_eq!(cut.upper.1, &*cut.upper.0 == greatest);
            }
        }
    }
}
