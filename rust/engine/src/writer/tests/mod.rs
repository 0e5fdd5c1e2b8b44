//! Whole tables written to a directory and read back with the Parquet reader.

mod encodings;
mod fixture;
mod order;
mod stores;
mod tables;
mod uploads;
