//! Who may write what, and when: the pure state machines of exactly-once delivery.
//!
//! ```text
//!  records ─► writer (per task) ─► segment ─► coordinator (per table) ─► table commit
//!                 ▲                                      │
//!                 └────────────── outcome ◄──────────────┘
//! ```
//!
//! Invariant: an offset is given to Connect only when every row below it is in a table snapshot or
//! acknowledged by the dead letter queue. The rules have the numbers of `docs/exactly-once.md`.

pub mod absent;
pub mod channel;
pub mod coordinator;
pub mod message;
pub mod queue;
pub mod segment;
pub mod task;
pub mod writer;
