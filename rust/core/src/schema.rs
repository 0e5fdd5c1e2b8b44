//! Schemas of sources and tables: what a new table or column looks like, and how tables grow.
//!
//! Not here: what a single value becomes (`convert`), how a change is committed (the engine).

pub mod arrow;
pub mod contract;
mod defaults;
pub mod evolve;
mod ids;
pub mod metadata;
pub mod names;
pub mod semantic;
#[cfg(test)]
mod tests;
pub mod types;

pub use arrow::arrow_schema;
pub use evolve::{Addition, Change, Evolution};
pub use metadata::{MetadataColumn, MetadataSource};
pub use types::{CreateOptions, table_schema};
