//! What the same rows cost as a Parquet file with each of two versions of the crate.
//!
//! The columns and their encodings are those of the records of `./x bench`, as Frazil chooses them: with
//! delta encodings and without. Prints nanoseconds of this thread's CPU time per row, the median of the
//! rounds, the least and the most; each round runs all of them once, each time beginning with another one.

use std::error::Error;

const BATCHES: u64 = 64;
const BATCH_ROWS: u64 = 4_096;
const ROUNDS: usize = 15;
/// Rounds before those that count.
const WARM_UP: usize = 2;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How a column is written.
#[derive(Clone, Copy)]
enum Form {
    Dictionary,
    Plain,
    Numbers,
    Lengths,
    Prefixes,
}

/// The names of the columns, with and without delta encodings.
const COLUMNS: [(&str, Form, Form); 8] = [
    ("id", Form::Numbers, Form::Plain),
    ("user_id", Form::Numbers, Form::Plain),
    ("event_type", Form::Dictionary, Form::Dictionary),
    ("ts", Form::Numbers, Form::Plain),
    ("amount", Form::Plain, Form::Plain),
    ("country", Form::Dictionary, Form::Dictionary),
    ("session", Form::Lengths, Form::Plain),
    ("url", Form::Prefixes, Form::Plain),
];

/// The values of one batch, column by column.
struct Values {
    id: Vec<i64>,
    user_id: Vec<i64>,
    event_type: Vec<&'static str>,
    ts: Vec<i64>,
    amount: Vec<f64>,
    country: Vec<&'static str>,
    session: Vec<String>,
    url: Vec<String>,
}

/// Spreads the bits of a number.
fn mixed(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Values {
    fn of(batch: u64) -> Self {
        const TYPES: [&str; 5] = ["page_view", "click", "add_to_cart", "purchase", "logout"];
        const COUNTRIES: [&str; 6] = ["DE", "US", "FR", "JP", "BR", "IN"];
        let numbers = batch * BATCH_ROWS..(batch + 1) * BATCH_ROWS;
        let bits: Vec<u64> = numbers
            .clone()
            .map(|number| mixed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
            .collect();
        let pick = |of: &[&'static str], shift: u32| -> Vec<&'static str> {
            bits.iter()
                .map(|bits| of[(bits >> shift) as usize % of.len()])
                .collect()
        };
        Values {
            id: numbers.clone().map(|number| number as i64).collect(),
            user_id: bits.iter().map(|bits| (bits % 1_000_000) as i64).collect(),
            event_type: pick(&TYPES, 7),
            ts: numbers
                .map(|number| 1_767_225_600_000 + number as i64)
                .collect(),
            amount: bits
                .iter()
                .map(|bits| ((bits >> 13) % 100_000) as f64 / 100.0)
                .collect(),
            country: pick(&COUNTRIES, 17),
            session: bits
                .iter()
                .map(|bits| format!("{bits:x}{:x}", bits.wrapping_mul(31)))
                .collect(),
            url: bits
                .iter()
                .map(|bits| format!("/shop/item/{}?ref=mail", (bits >> 29) % 50_000))
                .collect(),
        }
    }
}

/// Returns the nanoseconds that this thread has been on a core.
fn cpu_ns() -> Outcome<u64> {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = line.split_whitespace().next();
    Ok(first.ok_or("an empty schedstat")?.parse()?)
}

/// The same writer against one version of the crates.
macro_rules! version {
    ($version:ident, $array:ident, $schema:ident, $parquet:ident) => {
        mod $version {
            use std::sync::Arc;

            use $array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
            use $parquet::arrow::ArrowWriter;
            use $parquet::basic::{Compression, Encoding, ZstdLevel};
            use $parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
            use $parquet::schema::types::ColumnPath;
            use $schema::{DataType, Field, Schema};

            use super::{COLUMNS, Form, Outcome, Values};

            /// The batches of this version's arrays.
            pub fn batches(values: &[Values]) -> Outcome<Vec<RecordBatch>> {
                let fields = COLUMNS.map(|(name, ..)| {
                    let kind = match name {
                        "id" | "user_id" | "ts" => DataType::Int64,
                        "amount" => DataType::Float64,
                        _ => DataType::Utf8,
                    };
                    Field::new(name, kind, true)
                });
                let schema = Arc::new(Schema::new(fields.to_vec()));
                let batch = |v: &Values| {
                    let columns: Vec<ArrayRef> = vec![
                        Arc::new(Int64Array::from(v.id.clone())),
                        Arc::new(Int64Array::from(v.user_id.clone())),
                        Arc::new(StringArray::from(v.event_type.clone())),
                        Arc::new(Int64Array::from(v.ts.clone())),
                        Arc::new(Float64Array::from(v.amount.clone())),
                        Arc::new(StringArray::from(v.country.clone())),
                        Arc::new(StringArray::from(v.session.clone())),
                        Arc::new(StringArray::from(v.url.clone())),
                    ];
                    Ok(RecordBatch::try_new(Arc::clone(&schema), columns)?)
                };
                values.iter().map(batch).collect()
            }

            fn set(
                builder: WriterPropertiesBuilder,
                name: &str,
                form: Form,
            ) -> WriterPropertiesBuilder {
                let path = ColumnPath::from(name);
                let encoding = match form {
                    Form::Dictionary => return builder.set_column_dictionary_enabled(path, true),
                    Form::Plain => Encoding::PLAIN,
                    Form::Numbers => Encoding::DELTA_BINARY_PACKED,
                    Form::Lengths => Encoding::DELTA_LENGTH_BYTE_ARRAY,
                    Form::Prefixes => Encoding::DELTA_BYTE_ARRAY,
                };
                builder
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, encoding)
            }

            /// Writes the file into memory and returns its length.
            pub fn write(batches: &[RecordBatch], deltas: bool) -> Outcome<u64> {
                let mut builder = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(ZstdLevel::try_new(super::ZSTD_LEVEL)?))
                    .set_data_page_size_limit(1 << 20)
                    .set_data_page_row_count_limit(20_000)
                    .set_dictionary_page_size_limit(2 << 20)
                    .set_statistics_truncate_length(Some(64))
                    .set_column_index_truncate_length(Some(64));
                for (name, with, without) in COLUMNS {
                    builder = set(builder, name, if deltas { with } else { without });
                }
                let first = batches.first().ok_or("no batches")?;
                let mut writer =
                    ArrowWriter::try_new(Vec::new(), first.schema(), Some(builder.build()))?;
                for batch in batches {
                    writer.write(batch)?;
                }
                Ok(writer.into_inner()?.len() as u64)
            }
        }
    };
}

const ZSTD_LEVEL: i32 = 1;

version!(v58, arrow_array_58, arrow_schema_58, parquet_58);
version!(v60, arrow_array_60, arrow_schema_60, parquet_60);

struct Line<'a> {
    name: &'static str,
    run: Box<dyn Fn() -> Outcome<u64> + 'a>,
    costs: Vec<u64>,
    bytes: u64,
}

fn main() -> Outcome<()> {
    let values: Vec<Values> = (0..BATCHES).map(Values::of).collect();
    let (old, new) = (v58::batches(&values)?, v60::batches(&values)?);
    let line = |name, run| Line {
        name,
        run,
        costs: Vec::new(),
        bytes: 0,
    };
    let mut lines = [
        line(
            "58, deltas",
            Box::new(|| v58::write(&old, true)) as Box<dyn Fn() -> Outcome<u64>>,
        ),
        line("60, deltas", Box::new(|| v60::write(&new, true))),
        line("58, plain", Box::new(|| v58::write(&old, false))),
        line("60, plain", Box::new(|| v60::write(&new, false))),
    ];
    let rows = BATCHES * BATCH_ROWS;
    for round in 0..WARM_UP + ROUNDS {
        for turn in 0..lines.len() {
            let count = lines.len();
            let line = &mut lines[(round + turn) % count];
            let before = cpu_ns()?;
            line.bytes = (line.run)()?;
            let spent = cpu_ns()? - before;
            if round >= WARM_UP {
                line.costs.push(spent / rows);
            }
        }
    }
    for line in &mut lines {
        line.costs.sort_unstable();
        let (least, median, most) = (
            line.costs[0],
            line.costs[ROUNDS / 2],
            line.costs[ROUNDS - 1],
        );
        let bytes = line.bytes as f64 / rows as f64;
        println!(
            "{:12} {median:5} ns/row ({least} to {most})  {bytes:6.2} bytes/row",
            line.name
        );
    }
    Ok(())
}
