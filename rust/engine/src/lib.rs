//! x

pub mod catalog;
pub mod commit;
mod redact;
pub mod storage;
#[cfg(test)]
mod test_server;
