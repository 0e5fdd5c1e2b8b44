//! The bytes between Java and Rust: frames and requests in, effects out.
//!
//! Layout and versions are in `docs/wire-format.md`; Java's half is `BatchEncoder`, `Requests` and
//! `Effects`. Everything is little-endian and self-delimiting.
//!
//! Invariant: no bytes, however broken, make these decoders panic, recurse without bound or
//! allocate more than a small multiple of their own length. After `Frame::decode` said `Ok`, every
//! access to the frame is total.
//!
//! Not here: what a value means for a table (`convert`), which table it goes to (`route`).

mod bare;
pub mod column;
pub mod effects;
pub mod frame;
pub mod maps;
pub(crate) mod read;
pub mod replay;
pub mod request;
pub mod schema;
mod string_map;
pub(crate) mod tagged;
pub(crate) mod tagged_build;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
pub mod value;
pub(crate) mod write;

pub use bare::BareValues;
pub use column::{ColumnData, SourceColumn};
pub use effects::{
    Effects, FrameParts, LogLevel, ParkedError, Rejected, ValidationLevel, encode_validation,
};
pub use frame::{Decoded, Frame, Run, Slice, TaggedValues};
pub use maps::{MapColumn, MapRows};
pub use request::{ChannelRecord, Request, SourceTopic};
pub use schema::{LogicalType, SchemaRegistry, SourceField, SourceKind, SourceSchema};
pub use string_map::decode_string_map;
pub use value::{ArrayCell, Cell, MapCell, MapEntry, StructCell};
