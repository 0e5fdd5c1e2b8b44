//! Upkeep of tables beside their writer: which files are worth writing again, and where their rows
//! are then (`docs/maintenance.md`).

pub mod compact;
pub mod moved;
