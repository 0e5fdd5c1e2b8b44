//! Schemas of sources and tables.
