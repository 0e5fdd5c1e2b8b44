//! Deleted rows as Iceberg keeps them: deletion vectors and the Puffin files that hold them.
//!
//! Bytes and values only: `engine::delete` stores them and lists them in manifests.

pub mod puffin;
pub mod vector;

pub use vector::DeletionVector;
