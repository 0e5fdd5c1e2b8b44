//! Writes the batches of one table into Parquet files.
//!
//! [`TableWriter`] cuts each batch by partition, gathers rows per partition until they are worth
//! encoding, and encodes them into open Parquet files. All of that runs on the caller's thread, the
//! encoding of columns on idle cores as well, which the caller waits for;
//! only uploads run on tokio, part by part as row groups close.
//! [`TableWriter::seal`] ends all files; [`SealedFiles::wait`] returns their metadata once every
//! byte is durable. A writer that is dropped instead aborts its uploads.
//!
//! Architecture Invariant: an upload that failed is reported by `wait`; no file is ever returned
//! whose bytes are not stored.

mod columns;
mod cores;
mod encoding;
mod fanout;
mod file;
mod location;
mod metrics;
mod properties;
mod schema;
mod texts;
mod upload;

pub use encoding::Lessons;
pub use fanout::{SealedFiles, TableWriter, TableWriterConfig};
pub use location::beside_data;
pub use upload::FileStore;

#[cfg(test)]
mod tests;
