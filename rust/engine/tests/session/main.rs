//! What a task promises, over the real SQL catalog and local files: frames in, tables read back.

mod bed;
mod commits;
mod decoding;
mod evolution;
mod failures;
mod layout;
mod partitions;
mod registry;
mod resets;
mod routes;
mod sources;
mod tables;
mod topic;
mod validate;
