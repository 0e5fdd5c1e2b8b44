//! The connector's configuration: one table of keys, and the parser that obeys it.
//!
//! Every key falls into one of five classes. *Own* keys have a meaning here: the Apache sink's name
//! with its meaning, or a name of ours. *Passed* keys go to the catalog, the storage, the Kafka
//! clients or the tables; those that the table lists are typed, others are passed on and reported
//! once. *Inert* keys belong to the Apache sink and mean nothing here: accepted, one warning each.
//! *Legacy* keys are other sinks' names: read under ours with a warning, or refused by name.
//! A key under `iceberg.` or `frazil.` that is in none of them is *unknown*: refused, with the
//! nearest name suggested. Every other key belongs to Connect and is never judged here.
//!
//! [`SinkConfig::parse`] reports all problems at once, each on its key. No message shows the value
//! of a secret, nor of anything that is passed on.

pub mod catalog;
pub mod columns;
pub mod engines;
pub mod format;
pub mod keys;
pub mod layout;
pub mod partition;
pub mod problem;
pub mod sink;
pub mod sort;
pub mod table;

mod changes;
mod framework;
mod kafka;
mod legacy;
mod reader;
mod registry;
mod routing;
mod suggest;

#[cfg(test)]
mod generated;
#[cfg(test)]
mod tests;

pub use catalog::{CatalogConfig, CatalogKind};
pub use columns::{ColumnConfig, HashSalt};
pub use engines::Engine;
pub use format::{DataFormat, Formats};
pub use layout::{LayoutConfig, SpecPolicy};
pub use legacy::submitted;
pub use partition::PartitionTerm;
pub use problem::{ConfigProblem, Level, refusal};
pub use registry::RegistryConfig;
pub use routing::{DynamicTables, too_many_tables};
pub use sink::{ControlConfig, Coordination, ErrorPolicy, MemoryConfig, Role, SinkConfig};
pub use sort::SortTerm;
pub use suggest::nearest;
pub use table::{
    BreakingPolicy, EvolutionConfig, EvolutionMode, MetadataColumn, MetadataSource, NullValues,
    TableConfig,
};
