//! Envelopes as their sources write them.

mod cases;
mod fixture;
mod keys;
mod order_columns;
mod places;
mod presets;
mod samples;
mod sources;
