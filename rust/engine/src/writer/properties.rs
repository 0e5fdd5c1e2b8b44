//! The `write.*` table properties that shape data files.

use std::collections::HashMap;
use std::str::FromStr;

use frazil_core::{Result, SinkError};
use parquet::basic::{Compression, GzipLevel, ZstdLevel};

use super::encoding::ColumnEncoding;
use super::schema::FileSchema;

const BLOOM_ENABLED: &str = "write.parquet.bloom-filter-enabled.column.";
const BLOOM_FPP: &str = "write.parquet.bloom-filter-fpp.column.";
/// Whether encodings are chosen among all that the readers of docs/compatibility.md read, or only
/// among those that every reader does. Iceberg has no property for it.
const ENCODINGS: &str = "frazil.parquet.encodings";
const ENCODING_COLUMN: &str = "frazil.parquet.encoding.column.";
const METRICS_DEFAULT: &str = "write.metadata.metrics.default";
const METRICS_COLUMN: &str = "write.metadata.metrics.column.";
const METRICS_COLUMNS_MAX: &str = "write.metadata.metrics.max-inferred-column-defaults";

/// What is kept about a column in a file's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricsMode {
    /// Nothing.
    None,
    /// Counts of values, nulls and NaNs.
    Counts,
    /// Counts and bounds of at most so many code points or bytes.
    Truncate(usize),
    /// Counts and whole bounds.
    Full,
}

impl FromStr for MetricsMode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let text = text.trim().to_ascii_lowercase();
        match text.as_str() {
            "none" => Ok(MetricsMode::None),
            "counts" => Ok(MetricsMode::Counts),
            "full" => Ok(MetricsMode::Full),
            _ => {
                let length = text
                    .strip_prefix("truncate(")
                    .and_then(|t| t.strip_suffix(')'));
                match length.and_then(|length| length.trim().parse().ok()) {
                    Some(length) if length > 0 => Ok(MetricsMode::Truncate(length)),
                    _ => Err(()),
                }
            }
        }
    }
}

/// A bloom filter that the table asks for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BloomFilter {
    /// The column's full name.
    pub(super) column: String,
    /// Its share of false positives.
    pub(super) fpp: f64,
}

/// How data files are to be written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FileProperties {
    pub(super) compression: Compression,
    pub(super) row_group_bytes: usize,
    pub(super) page_bytes: usize,
    pub(super) page_rows: usize,
    pub(super) dictionary_bytes: usize,
    pub(super) bloom_filters: Vec<BloomFilter>,
    pub(super) bloom_bytes_max: usize,
    pub(super) target_file_bytes: u64,
    /// Delta encodings may be chosen.
    pub(super) deltas: bool,
    /// The encodings of columns, by name, that are not chosen.
    pub(super) column_encodings: HashMap<String, ColumnEncoding>,
    metrics_default: Option<MetricsMode>,
    metrics_columns: HashMap<String, MetricsMode>,
    metrics_columns_max: usize,
}

impl FileProperties {
    /// Reads the properties of a table; `target` and `zstd_level` hold where it says nothing.
    pub(super) fn read(
        table: &HashMap<String, String>,
        target: u64,
        zstd_level: i32,
    ) -> Result<Self> {
        if table.contains_key("encryption.key-id") {
            return Err(SinkError::fatal(
                "TABLE_PROPERTY_UNSUPPORTED",
                "the table is encrypted (`encryption.key-id`), which is not supported; \
                 its files would be written in the clear",
            ));
        }
        refuse_other_formats(table)?;
        Ok(FileProperties {
            compression: compression(table, zstd_level)?,
            row_group_bytes: number(table, "write.parquet.row-group-size-bytes", 128 << 20)?,
            page_bytes: number(table, "write.parquet.page-size-bytes", 1 << 20)?,
            page_rows: number(table, "write.parquet.page-row-limit", 20_000)?,
            dictionary_bytes: number(table, "write.parquet.dict-size-bytes", 2 << 20)?,
            bloom_filters: bloom_filters(table)?,
            bloom_bytes_max: number(table, "write.parquet.bloom-filter-max-bytes", 1 << 20)?,
            target_file_bytes: number(table, "write.target-file-size-bytes", target)?,
            deltas: deltas(table)?,
            column_encodings: columns(table, ENCODING_COLUMN)?,
            metrics_default: parse(table, METRICS_DEFAULT)?,
            metrics_columns: columns(table, METRICS_COLUMN)?,
            metrics_columns_max: parse(table, METRICS_COLUMNS_MAX)?.unwrap_or(100),
        })
    }

    /// Refuses an encoding that the type of its column cannot have.
    pub(super) fn check(&self, schema: &FileSchema) -> Result<()> {
        for (leaf, column) in schema.leaves.iter().zip(schema.parquet.columns()) {
            let encoding = self.column_encodings.get(&leaf.name);
            if encoding.is_some_and(|encoding| !encoding.fits(column.physical_type())) {
                return Err(invalid(&format!("{ENCODING_COLUMN}{}", leaf.name)));
            }
        }
        Ok(())
    }

    /// Returns the mode of the column called `name`, the `index`th of all.
    pub(super) fn metrics_mode(&self, name: &str, index: usize) -> MetricsMode {
        match (self.metrics_columns.get(name), self.metrics_default) {
            (Some(mode), _) => *mode,
            (None, Some(mode)) => mode,
            (None, None) if index >= self.metrics_columns_max => MetricsMode::None,
            (None, None) => MetricsMode::Truncate(16),
        }
    }
}

fn refuse_other_formats(table: &HashMap<String, String>) -> Result<()> {
    let key = "write.format.default";
    match table
        .get(key)
        .map(|format| format.trim().to_ascii_lowercase())
    {
        None => Ok(()),
        Some(format) if format == "parquet" => Ok(()),
        Some(format) if format == "avro" || format == "orc" => Err(SinkError::fatal(
            "TABLE_PROPERTY_UNSUPPORTED",
            format!(
                "the table wants its files as {format} (`{key}`), and Frazil writes Parquet only: \
                 change the property, or set it for this sink with \
                 `iceberg.tables.write-props.{key}=parquet`"
            ),
        )),
        Some(_) => Err(invalid(key)),
    }
}

fn compression(table: &HashMap<String, String>, zstd_level: i32) -> Result<Compression> {
    let key = "write.parquet.compression-codec";
    let level: Option<i32> = parse(table, "write.parquet.compression-level")?;
    let bad_level = |_| invalid("write.parquet.compression-level");
    let codec = table.get(key).map(|codec| codec.to_ascii_lowercase());
    Ok(match codec.as_deref() {
        None | Some("zstd") => {
            let level = level.unwrap_or(zstd_level);
            Compression::ZSTD(ZstdLevel::try_new(level).map_err(bad_level)?)
        }
        Some("gzip") => {
            let level = level.unwrap_or(6).try_into().map_err(|_| ());
            let level = level.and_then(|level| GzipLevel::try_new(level).map_err(|_| ()));
            Compression::GZIP(level.map_err(|()| invalid("write.parquet.compression-level"))?)
        }
        Some("snappy") => Compression::SNAPPY,
        // The framed LZ4 of Hadoop is deprecated and read by few; every reader of it takes this.
        Some("lz4" | "lz4_raw") => Compression::LZ4_RAW,
        Some("none" | "uncompressed") => Compression::UNCOMPRESSED,
        Some("brotli" | "lzo") => {
            return Err(SinkError::fatal(
                "TABLE_PROPERTY_UNSUPPORTED",
                format!(
                    "the codec of `{key}` is not supported: use `zstd`, `gzip`, `snappy`, `lz4` or `uncompressed`"
                ),
            ));
        }
        Some(_) => return Err(invalid(key)),
    })
}

fn deltas(table: &HashMap<String, String>) -> Result<bool> {
    let text = table.get(ENCODINGS).map(|text| text.to_ascii_lowercase());
    match text.as_deref() {
        None | Some("auto") => Ok(true),
        Some("plain-dictionary") => Ok(false),
        Some(_) => Err(invalid(ENCODINGS)),
    }
}

fn bloom_filters(table: &HashMap<String, String>) -> Result<Vec<BloomFilter>> {
    let mut filters = Vec::new();
    for (column, enabled) in columns::<bool>(table, BLOOM_ENABLED)? {
        let fpp = parse(table, &format!("{BLOOM_FPP}{column}"))?.unwrap_or(0.01);
        if !(fpp > 0.0 && fpp < 1.0) {
            return Err(invalid(&format!("{BLOOM_FPP}{column}")));
        }
        if enabled {
            filters.push(BloomFilter { column, fpp });
        }
    }
    filters.sort_by(|a, b| a.column.cmp(&b.column));
    Ok(filters)
}

/// Reads a flag.
pub(super) fn flag(table: &HashMap<String, String>, key: &str, default: bool) -> Result<bool> {
    match table.get(key) {
        None => Ok(default),
        Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(_) => Err(invalid(key)),
    }
}

/// Reads a number of at least 1.
fn number<T: FromStr + PartialOrd + From<u8>>(
    table: &HashMap<String, String>,
    key: &str,
    default: T,
) -> Result<T> {
    match parse::<T>(table, key)? {
        Some(number) if number < T::from(1) => Err(invalid(key)),
        number => Ok(number.unwrap_or(default)),
    }
}

fn parse<T: FromStr>(table: &HashMap<String, String>, key: &str) -> Result<Option<T>> {
    let text = table.get(key);
    text.map(|text| text.trim().parse().map_err(|_| invalid(key)))
        .transpose()
}

fn columns<T: FromStr>(
    table: &HashMap<String, String>,
    prefix: &str,
) -> Result<HashMap<String, T>> {
    table
        .iter()
        .filter_map(|(key, text)| Some((key, key.strip_prefix(prefix)?, text)))
        .map(|(key, column, text)| {
            let value = text.trim().to_ascii_lowercase();
            let value = value.parse().map_err(|_| invalid(key))?;
            Ok((column.to_string(), value))
        })
        .collect()
}

fn invalid(key: &str) -> SinkError {
    SinkError::fatal(
        "TABLE_PROPERTY_INVALID",
        format!(
            "the table property `{key}` has a value that does not fit it; correct or remove it"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(properties: &[(&str, &str)]) -> Result<FileProperties> {
        let properties = properties
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect();
        FileProperties::read(&properties, 256 << 20, 1)
    }

    #[test]
    fn a_silent_table_gets_zstd_1_and_large_row_groups() {
        let properties = read(&[]).unwrap();
        assert_eq!(
            properties.compression,
            Compression::ZSTD(ZstdLevel::try_new(1).unwrap())
        );
        assert_eq!(properties.row_group_bytes, 128 << 20);
        assert_eq!(properties.target_file_bytes, 256 << 20);
        assert!(properties.deltas);
        assert_eq!(properties.metrics_mode("x", 99), MetricsMode::Truncate(16));
        assert_eq!(properties.metrics_mode("x", 100), MetricsMode::None);
    }

    #[test]
    fn table_properties_are_honoured() {
        let properties = read(&[
            ("write.parquet.compression-codec", "ZSTD"),
            ("write.parquet.compression-level", "7"),
            ("write.parquet.row-group-size-bytes", "1048576"),
            ("write.target-file-size-bytes", "5000"),
            ("write.parquet.bloom-filter-enabled.column.id", "true"),
            ("write.parquet.bloom-filter-enabled.column.x", "false"),
            ("write.parquet.bloom-filter-fpp.column.id", "0.05"),
            ("frazil.parquet.encodings", "plain-dictionary"),
            ("frazil.parquet.encoding.column.a.b", "DELTA_BYTE_ARRAY"),
            ("write.metadata.metrics.default", "counts"),
            ("write.metadata.metrics.column.id", "truncate(4)"),
        ])
        .unwrap();
        assert_eq!(
            properties.compression,
            Compression::ZSTD(ZstdLevel::try_new(7).unwrap())
        );
        assert_eq!(properties.row_group_bytes, 1 << 20);
        assert_eq!(properties.target_file_bytes, 5000);
        let column = "id".to_string();
        assert_eq!(
            properties.bloom_filters,
            [BloomFilter { column, fpp: 0.05 }]
        );
        assert!(!properties.deltas);
        let encodings = [("a.b".to_string(), ColumnEncoding::DeltaByteArray)];
        assert_eq!(properties.column_encodings, encodings.into());
        assert_eq!(properties.metrics_mode("id", 500), MetricsMode::Truncate(4));
        assert_eq!(properties.metrics_mode("x", 0), MetricsMode::Counts);
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        for (key, value) in [
            ("write.parquet.compression-codec", "zip"),
            ("write.parquet.compression-level", "99"),
            ("write.parquet.row-group-size-bytes", "0"),
            ("write.parquet.page-size-bytes", "1MB"),
            ("write.parquet.bloom-filter-fpp.column.id", "2"),
            ("write.metadata.metrics.default", "truncate(0)"),
            ("frazil.parquet.encodings", "delta"),
            ("frazil.parquet.encoding.column.id", "rle"),
        ] {
            let enabled = ("write.parquet.bloom-filter-enabled.column.id", "true");
            let error = read(&[(key, value), enabled]).unwrap_err();
            assert_eq!(error.code(), "TABLE_PROPERTY_INVALID", "{key}");
            assert!(error.message().contains(key), "{error}");
        }
        for format in ["avro", "ORC"] {
            let error = read(&[("write.format.default", format)]).unwrap_err();
            assert_eq!(error.code(), "TABLE_PROPERTY_UNSUPPORTED");
        }
        read(&[("write.format.default", "PARQUET")]).unwrap();
        let error = read(&[("encryption.key-id", "k")]).unwrap_err();
        assert_eq!(error.code(), "TABLE_PROPERTY_UNSUPPORTED");
    }
}
