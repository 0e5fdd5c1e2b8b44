//! Whose changes a key run has, read from the end of its file alone: what a message about it claims is
//! checked before its segment waits for a commit, which reads the changes.

use frazil_core::Result;
use frazil_core::control::message::Ranges;
use frazil_core::control::segment::KeyRunRef;
use parquet::file::metadata::ParquetMetaData;
use uuid::Uuid;

use super::{
    RANGES, RANGES_DIGEST, SEQUENCE, SESSION, TABLE, WID, check_length, damaged, said, unusable,
};
use crate::redact;
use crate::rows::read_footer;
use crate::storage::{TableStorage, find_sink_error};

/// What a key run says of itself.
#[derive(Debug)]
pub struct KeyRunOwner {
    footer: ParquetMetaData,
}

/// Reads whose changes the run has that `announced` names.
///
/// # Errors
///
/// `KEY_RUN_UNUSABLE`, or what the store says.
pub async fn read_owner(storage: &TableStorage, announced: &KeyRunRef) -> Result<KeyRunOwner> {
    check_length(storage, announced).await?;
    let footer = read_footer(storage, &announced.path, announced.len).await;
    let footer = footer.map_err(|error| match find_sink_error(&error) {
        Some(store) => store.again(),
        None => damaged(&error).with("file", redact::foreign(&announced.path)),
    })?;
    Ok(KeyRunOwner { footer })
}

impl KeyRunOwner {
    /// Tells whether these are changes of `table`, in segment `seq` of `session` of the writer `wid`.
    pub fn is(&self, table: Uuid, wid: &str, (session, seq): (Uuid, u64)) -> bool {
        let expected = [
            (TABLE, table.to_string()),
            (WID, wid.to_owned()),
            (SESSION, session.to_string()),
            (SEQUENCE, seq.to_string()),
        ];
        let mut expected = expected.iter();
        expected.all(|(key, value)| said(&self.footer, key) == Some(value))
    }

    /// Returns how many changes there are.
    pub fn rows(&self) -> Option<u64> {
        u64::try_from(self.footer.file_metadata().num_rows()).ok()
    }

    /// Tells whether the run vouches for these offsets.
    pub fn vouches_for(&self, ranges: &Ranges) -> bool {
        said(&self.footer, RANGES_DIGEST) == Some(&ranges.digest())
    }

    /// Returns the offsets that stand in the run: those that are too long for a message.
    ///
    /// # Errors
    ///
    /// `KEY_RUN_UNUSABLE` when they are malformed.
    pub fn ranges(&self) -> Result<Option<Ranges>> {
        let text = said(&self.footer, RANGES);
        let ranges = text.map(|text| {
            let ranges = Ranges::from_text(text);
            ranges.ok_or_else(|| unusable("the offsets in it are malformed"))
        });
        ranges.transpose()
    }
}
