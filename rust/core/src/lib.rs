//! The pure part of Frazil: bytes and values in, bytes and values out.
//!
//! The modules stand in the order in which data walks through them:
//! `wire → decode → route → change → convert → partition → (engine writes) → control → commit`.
//!
//! Architecture Invariant: nothing here reads a clock, draws a random number, opens a file or a
//! socket, starts a thread or logs. Time, ids and table metadata arrive as arguments; decisions
//! leave as values. `clippy.toml` beside `Cargo.toml` is the wall.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod change;
pub mod commit;
pub mod config;
pub mod control;
pub mod convert;
pub mod decode;
pub mod delete;
pub mod error;
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
pub mod index;
pub mod layout;
pub mod limits;
pub mod maintain;
pub mod memory;
pub mod metrics;
pub mod offsets;
pub mod panics;
pub mod partition;
pub mod route;
pub mod rules;
pub mod schema;
pub mod secret;
pub mod wire;

pub use error::{ErrorKind, Result, SinkError};
