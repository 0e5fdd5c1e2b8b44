//! Every bound of Frazil in one place. Reaching one is back-pressure or a typed error.

/// Rows of one Struct or Map block that Java hands over.
pub const BLOCK_ROWS_MAX: usize = 256;
/// Bytes of one frame.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
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
/// Tables of a process whose manifests are merged at the same time.
pub const MANIFEST_MERGES: usize = 2;
/// Manifests that one commit reads to merge them; a long list is made short over several commits.
pub const MANIFESTS_MERGED_MAX: usize = 2_000;
/// Bytes of the largest manifest that is made by a merge: all its entries are in memory.
pub const MANIFEST_MERGED_BYTES_MAX: u64 = 32 << 20;
