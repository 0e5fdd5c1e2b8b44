//! Commits to tables: load, validate, build, submit once, resolve by reading back.
//!
//! Everything that is decided is decided in `frazil_core::commit`; this module loads metadata,
//! writes manifests and manifest lists, sends the request and asks the table what became of it.
//!
//! Architecture Invariant: nothing here deletes a file. A request that was given up may still be
//! applied by the catalog, and its files have to be there; only the orphan job removes files.

mod avro;
mod change;
mod changed;
mod committer;
mod compacted;
pub mod create;
mod kept;
mod list;
mod looks;
mod manifest;
mod merge;
mod replace;
mod rewrite;
mod run;
mod sealed;
#[cfg(test)]
mod tests;
mod wait;

pub use change::change_table;
pub use changed::ChangedTable;
pub use committer::{CommitSettings, TableCommitter};
pub(crate) use compacted::{Compacted, Replacement, Sighted};
pub(crate) use kept::Lists;
pub use kept::Sight;
pub use list::manifests_of;
pub(crate) use looks::Looks;
pub use manifest::{Layout, ManifestIdentity, metadata_location, write_manifest};
pub use replace::{Removed, ReplacePlace, Replaced, replace_entries};
pub use rewrite::{EntryKey, Rewritten, rewrite};
pub(crate) use run::{carry, now_ms};
pub use sealed::{Resealed, Unsealed, read_sealed};
pub use wait::Cancel;
pub(crate) use wait::pause;

use frazil_core::{Result, SinkError};
use iceberg::io::FileIO;

/// A file in memory that one of `iceberg`'s writers fills: its bytes are wanted before they are
/// stored, to be checked, extended and hashed.
struct Scratch {
    io: FileIO,
}

impl Scratch {
    const PATH: &'static str = "memory:///scratch.avro";

    fn new() -> Self {
        Scratch {
            io: FileIO::new_with_memory(),
        }
    }

    async fn bytes(&self) -> Result<Vec<u8>> {
        let read = async { self.io.new_input(Self::PATH)?.read().await };
        Ok(read.await.map_err(format_error)?.to_vec())
    }
}

/// Turns a failure of `iceberg`'s format code, which touches no network here, into ours.
pub(crate) fn format_error(error: iceberg::Error) -> SinkError {
    SinkError::fatal(
        "METADATA_FORMAT",
        "a manifest or manifest list of the table cannot be read or written as its format version demands",
    )
    .caused_by(error)
}
