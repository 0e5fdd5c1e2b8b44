//! x

pub mod catalog;
mod redact;
pub mod storage;
#[cfg(test)]
mod test_server;
