//! The impure part of Frazil: it executes what `frazil-core` decides.
//!
//! ```text
//!  jni ─► session ─► core::{wire, convert, partition} ─► writer ─► storage
//!            │                                                    │ sealed manifest
//!            └── core::control ◄── hub ◄── commit ◄── catalog ◄───┘
//! ```
//!
//! Architecture Invariant: no thread of this crate ever calls Java, and no outcome is logged and
//! dropped: each failure is retried, reported for a record, or stops the task.

pub mod admin;
pub mod catalog;
pub mod channel;
pub mod commit;
pub mod compat;
pub mod delete;
mod failpoint;
pub mod handle;
mod http;
pub mod hub;
pub mod index;
pub mod keyrun;
pub mod logs;
pub mod memory;
mod metrics;
pub mod preflight;
mod redact;
pub mod registry;
pub mod runtime;
pub mod session;
pub mod storage;
#[cfg(test)]
mod test_config;
#[cfg(test)]
mod test_server;
pub mod writer;

pub use handle::Handle;
pub use preflight::validate;
pub use session::Session;
