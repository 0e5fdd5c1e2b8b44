//! Records of change streams: which row each is about, what it does to it, and in which order.
//!
//! ```text
//!  frame ─► ChangePlan (per table) ─► Changes: op, key, order, image, unavailable columns per row
//!             │ an Envelope (JSON)        │
//!             │ a KeyPlan (the table)     ├─► image(After) ─► a frame of rows ─► convert, partition, write
//!                                         └─► key and order ─► key runs ─► resolve, with the index
//! ```
//!
//! A format of changes is an [`Envelope`]: data, of which the presets are files. One evaluator reads
//! all of them. What it yields per record is a [`Change`], a reason why the record changes nothing
//! (counted), or an error of the record; nothing else becomes of a record.
//!
//! Where rows are found and deletes are written is not here: keys become positions where the commit
//! is made (`index`, `delete`), and there too it is found where rows that lack values take them from
//! (`index::bases`). [`resolve`] decides the same over whole changes in memory: the model that tests hold the commit
//! against.

mod by_columns;
mod changes;
mod columns;
mod domain;
pub mod envelope;
mod evaluate;
mod form;
mod images;
pub mod key;
mod keyed;
pub mod keyrun;
pub mod order;
pub mod pending;
mod place;
pub mod plan;
pub mod resolve;
#[cfg(test)]
mod tests;
mod unavailable;
pub mod window;

pub use changes::{Change, Changes, Image, OldRow};
pub use envelope::{Envelope, Meaning, Op, PRESETS, Skip};
pub use images::{EmptyRows, ImageRows};
pub use key::{KeyPlan, KeyRows};
pub use order::{Form, Order, OrderRule, is_older};
pub use pending::{Lacks, PendingFile};
pub use place::Place;
pub use plan::{AbsentPolicy, ChangeConfig, ChangePlan, DeleteMode, TruncatePolicy, Unavailable};
