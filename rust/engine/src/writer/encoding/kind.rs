//! The encodings of Parquet that a column may get.

use std::str::FromStr;

use parquet::basic::{Encoding, PageType, Type as PhysicalType};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::WriterPropertiesBuilder;
use parquet::schema::types::ColumnDescriptor;

/// How the values of a column are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::writer) enum ColumnEncoding {
    /// Each value once, and numbers in its place; plain from where the dictionary is full.
    Dictionary,
    /// One value after the other.
    Plain,
    /// Differences of numbers, in as many bits as they need.
    DeltaBinaryPacked,
    /// The lengths of texts, packed, and then the texts.
    DeltaLengthByteArray,
    /// Of each text only what is not the beginning of the one before.
    DeltaByteArray,
    /// The first bytes of all floats, then their second ones, and so on.
    ByteStreamSplit,
}

impl FromStr for ColumnEncoding {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Ok(match text {
            "dictionary" => ColumnEncoding::Dictionary,
            "plain" => ColumnEncoding::Plain,
            "delta_binary_packed" => ColumnEncoding::DeltaBinaryPacked,
            "delta_length_byte_array" => ColumnEncoding::DeltaLengthByteArray,
            "delta_byte_array" => ColumnEncoding::DeltaByteArray,
            "byte_stream_split" => ColumnEncoding::ByteStreamSplit,
            _ => return Err(()),
        })
    }
}

impl ColumnEncoding {
    /// Tells whether values of a physical type can be laid out so.
    pub(in crate::writer) fn fits(self, physical: PhysicalType) -> bool {
        use PhysicalType as P;
        match self {
            ColumnEncoding::Plain => true,
            ColumnEncoding::Dictionary => physical != P::BOOLEAN,
            ColumnEncoding::DeltaBinaryPacked => matches!(physical, P::INT32 | P::INT64),
            ColumnEncoding::DeltaLengthByteArray | ColumnEncoding::DeltaByteArray => {
                physical == P::BYTE_ARRAY
            }
            // Parquet has it for whole numbers too, and DuckDB does not read them.
            ColumnEncoding::ByteStreamSplit => matches!(physical, P::FLOAT | P::DOUBLE),
        }
    }

    /// Tells whether it needs the packer, of which every column has its own.
    pub(super) fn packs(self) -> bool {
        use ColumnEncoding as E;
        matches!(
            self,
            E::DeltaBinaryPacked | E::DeltaLengthByteArray | E::DeltaByteArray
        )
    }

    /// Sets it for a column.
    pub(super) fn apply(
        self,
        builder: WriterPropertiesBuilder,
        column: &ColumnDescriptor,
    ) -> WriterPropertiesBuilder {
        let path = column.path().clone();
        let encoding = match self {
            // Booleans, which have none, stay what they are.
            ColumnEncoding::Dictionary => {
                return builder.set_column_dictionary_enabled(path, true);
            }
            ColumnEncoding::Plain => Encoding::PLAIN,
            ColumnEncoding::DeltaBinaryPacked => Encoding::DELTA_BINARY_PACKED,
            ColumnEncoding::DeltaLengthByteArray => Encoding::DELTA_LENGTH_BYTE_ARRAY,
            ColumnEncoding::DeltaByteArray => Encoding::DELTA_BYTE_ARRAY,
            ColumnEncoding::ByteStreamSplit => Encoding::BYTE_STREAM_SPLIT,
        };
        builder
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, encoding)
    }
}

/// Tells whether a chunk has a dictionary and values that found no room in it.
pub(super) fn has_spilled(chunk: &ColumnChunkMetaData) -> bool {
    let of_data = |page: PageType| matches!(page, PageType::DATA_PAGE | PageType::DATA_PAGE_V2);
    let is_index = |encoding| {
        matches!(
            encoding,
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY
        )
    };
    chunk.dictionary_page_offset().is_some()
        && chunk.page_encoding_stats().is_some_and(|pages| {
            let mut data = pages.iter().filter(|page| of_data(page.page_type));
            data.any(|page| !is_index(page.encoding))
        })
}
