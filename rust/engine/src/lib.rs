//! x
pub mod writer;
