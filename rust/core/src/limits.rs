//! Every bound of Frazil in one place. Reaching one is back-pressure or a typed error.

use std::time::Duration;

/// Rows of one Struct or Map block that Java hands over.
pub const BLOCK_ROWS_MAX: usize = 256;
/// Bytes of one frame.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// Bytes of the buffer for frames that Java keeps; a larger one is let go after its frame.
pub const FRAME_BUFFER_KEPT: usize = 4 << 20;
/// Nesting of values and schemas; deeper is an error, never a stack overflow.
pub const NESTING_MAX: usize = 64;
/// Values that the lists and maps of one decoded block may have, the fields of structs in them
/// counted too; each takes at most 8 bytes and a bit beside its text.
pub const BLOCK_SLOTS_MAX: usize = 4 << 20;
/// Columns of one source schema, all levels together.
pub const SCHEMA_FIELDS_MAX: usize = 10_000;
/// Source schemas that one session remembers.
pub const SCHEMAS_MAX: usize = 4_096;
/// Writer schemas of registries that one session compiles, and their texts that one process keeps.
pub const WRITER_SCHEMAS_MAX: usize = 4_096;
/// Schemas that one schema of a registry refers to, directly and by others.
pub const SCHEMA_REFERENCES_MAX: usize = 256;
/// Rows that a table gathers before they become an Arrow batch for the writers.
pub const BATCH_ROWS: usize = 8_192;
/// Bytes of such rows after which they become one earlier.
pub const BATCH_BYTES: usize = 8 << 20;
/// Segments of one table and session that may wait for their commit.
pub const SEGMENTS_IN_FLIGHT_MAX: usize = 4;
/// Bytes of the writer state in one table property before it is cut into shards.
pub const STATE_BYTES_MAX: usize = 32 << 10;
/// Bytes of segments that wait with one coordinator; more are sent again later.
pub const HELD_BYTES_MAX: usize = 64 << 20;
/// Manifests that a process reads, or looks for, at the same time.
pub const MANIFEST_TURNS: usize = 128;
/// Those of one table.
pub const MANIFEST_TABLE_TURNS: usize = 16;
/// Bytes of manifest lists that a process keeps for the next commits of their tables.
pub const LISTS_KEPT_BYTES_MAX: usize = 16 << 20;
/// Segments of one table whose manifests a process remembers to have seen just now.
pub const SEEN_SEGMENTS_MAX: usize = 4_096;
/// The time for which a commit may build on the table as the process's last commit left it. Within it a
/// change by others that moves neither the branch nor the schema, such as that of a branch's
/// retention, may be undone.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(30);
/// Commits, or loads for one, that a process has with catalog and storage at the same time.
pub const COMMITS_AT_ONCE: usize = 64;
/// Tables of a process whose manifests are merged at the same time.
pub const MANIFEST_MERGES: usize = 2;
/// Bytes of native memory that a merge takes of a pool which has no room left.
pub const MANIFEST_MERGE_MEMORY: u64 = 16 << 20;
/// Manifests that one commit reads to merge them; a long list is made short over several commits.
pub const MANIFESTS_MERGED_MAX: usize = 2_000;
/// Bytes of the largest manifest that is made by a merge: all its entries are in memory.
pub const MANIFEST_MERGED_BYTES_MAX: u64 = 32 << 20;
/// Bytes of the key of one row.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// Bytes of what orders one change.
pub const ORDER_BYTES_MAX: usize = 1 << 10;
/// Changes of one segment; what is more goes into the next one.
pub const KEY_RUN_ROWS_MAX: usize = 16 << 20;
/// Bytes of the file with their keys.
pub const KEY_RUN_BYTES_MAX: u64 = 1 << 30;
/// Bytes of one deletion vector, its length and checksum included: Iceberg's Java library reads none
/// that is longer.
pub const DELETION_VECTOR_BYTES_MAX: usize = i32::MAX as usize;
/// Bytes of the footer of a Puffin file that is read.
pub const PUFFIN_FOOTER_BYTES_MAX: usize = 64 << 20;
/// Keys of one shard of a primary-key index; a larger one is cut in two.
pub const INDEX_SHARD_KEYS_MAX: usize = 2 << 20;
/// Changes of one commit, unless a segment alone has more; other segments wait for the next one.
pub const COMMIT_CHANGES_MAX: u64 = 4 << 20;
/// Files of a table with changes whose keys are read at the same time.
pub const INDEX_READS: usize = 4;
/// How long the order of the last change of a key is kept in mind.
pub const ORDER_WINDOW_MS: i64 = 60 * 60 * 1_000;
/// Bytes of such orders of one table.
pub const ORDER_WINDOW_BYTES_MAX: usize = 32 << 20;
/// Bytes of manifests that a table with changes keeps for its next commits, and of deleted rows.
pub const CHANGES_KEPT_BYTES_MAX: usize = 8 << 20;
/// The number of times that the shards of a primary-key index may be cut in two.
pub const INDEX_SHARD_BITS_MAX: u32 = 12;
/// Bytes of native memory of which each task is sure; a task without them does not start.
pub const TASK_MEMORY_MIN: u64 = 32 << 20;

/// Records that one rejection of a segment names whose values no row has, and that a session keeps in mind.
/// More are found the next time.
pub const ABSENT_RECORDS_MAX: usize = 10_000;
