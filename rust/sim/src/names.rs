//! The names that machines want and the world does without: made once for all runs.

use frazil_core::commit::plan::CommitIdentity;
use frazil_core::offsets::TopicPartition;
use iceberg::TableIdent;
use uuid::Uuid;

use crate::swarm::{BRANCHES, PARTITIONS, TABLES};

/// The writer's id.
pub(crate) const WID: &str = "00000000000000a1";
/// Something that must never be in a message or in a state (S26).
pub(crate) const CANARY: &str = "hush-0f1e2d3c";

/// Names of partitions and tables.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) partitions: [TopicPartition; PARTITIONS],
    pub(crate) tables: [TableIdent; TABLES],
}

impl Names {
    /// Makes them.
    pub(crate) fn new() -> Self {
        let table = |index: usize| {
            let name = format!("t{index}");
            TableIdent::new(iceberg::NamespaceIdent::new("db".to_owned()), name)
        };
        Names {
            partitions: std::array::from_fn(|index| TopicPartition::new("t", index as i32)),
            tables: std::array::from_fn(table),
        }
    }

    /// Returns the index of a partition of the source topic.
    pub(crate) fn partition(&self, partition: &TopicPartition) -> Option<usize> {
        usize::try_from(partition.partition)
            .ok()
            .filter(|index| *index < PARTITIONS)
    }

    /// Returns the index of a table.
    pub(crate) fn table(&self, ident: &TableIdent) -> Option<usize> {
        self.tables.iter().position(|known| known == ident)
    }
}

/// Returns the id of session number `index`; ids are ordered by their time, as UUIDv7 are.
pub(crate) fn session_id(index: usize) -> Uuid {
    Uuid::from_u128(0x7000_0000_0000_0000 | index as u128)
}

/// Returns the number of a session.
pub(crate) fn session_index(id: Uuid) -> usize {
    (id.as_u128() & 0xffff_ffff) as usize
}

/// Returns under which name process `hub` commits to `branch`.
pub(crate) fn identity(hub: u32, branch: usize) -> CommitIdentity {
    CommitIdentity {
        wid: WID.to_owned(),
        connector: "sim".to_owned(),
        hub_id: format!("host/{hub:08x}"),
        branch: BRANCHES[branch].to_owned(),
        state_bytes_max: 32 << 10,
    }
}
