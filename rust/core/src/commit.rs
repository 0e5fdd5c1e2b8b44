//! Table commits as values: from segments and table metadata to requirements and updates.
//!
//! Architecture Invariant: a snapshot and the offsets it covers change in one request, and the
//! check `T <= lowest offset` is made against the same metadata object that the request asserts
//! (rule R1). [`attempt`] decides and sends nothing; `engine::commit` executes what it says.

pub mod action;
pub mod anchor;
pub mod attempt;
pub mod batch;
pub mod home;
pub mod location;
pub mod merge;
pub mod outcome;
pub mod owner;
pub mod partitions;
pub mod plan;
pub mod recover;
pub mod remembered;
pub mod state;
mod stored;
pub mod summary;
pub mod upkeep;
pub mod validate;
pub mod view;

#[cfg(test)]
mod cost_tests;
#[cfg(test)]
pub(crate) mod test_support;
