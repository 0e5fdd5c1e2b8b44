//! What a task promises, over the real SQL catalog and local files: frames in, tables read back.

mod bed;
mod changes;
mod commits;
mod decoding;
mod evolution;
mod failures;
mod layout;
mod memory;
mod partitions;
mod rebuild;
mod registry;
mod resets;
mod routes;
mod sources;
mod starts;
mod store;
mod tables;
mod topic;
mod validate;
