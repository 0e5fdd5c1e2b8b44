//! What the writers of a connector hand to its coordinator.

pub mod segment;
