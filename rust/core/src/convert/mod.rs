//! Records become Arrow columns.
pub mod decimal;
pub mod misfit;
pub mod number;
pub mod temporal;
