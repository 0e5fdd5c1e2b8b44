//! A segment: sealed files of one table and the source offsets that they cover, as one value.
//!
//! Architecture Invariant: nothing says "written" without the offset ranges it covers. A segment
//! belongs to one table and branch; `seq` counts per session and table.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use iceberg::TableIdent;
use iceberg::spec::{
    DataContentType, DataFile, DataFileFormat, ManifestContentType, ManifestFile, Struct,
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::offsets::{SourceRange, TopicPartition};

/// Sealed data and delete files of one table with the offsets they cover.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// The session that wrote it.
    pub session: Uuid,
    /// Its place among the segments of this session and table, from 0.
    pub seq: u64,
    /// The lowest `seq` of this session and table that the task has no result for.
    pub first_unacked: u64,
    /// The writer epoch of the session; raised only by an offset reset.
    pub epoch: u64,
    /// The table.
    pub table: TableIdent,
    /// The table's UUID when the files were written.
    pub table_uuid: Uuid,
    /// The branch that the files go to.
    pub branch: String,
    /// What the files claim about each source partition.
    pub ranges: Vec<SourceRange>,
    /// The lowest offset that the connector still needs of a partition, over all its tables; only
    /// kept for people and for a group whose offsets expired. May be empty.
    pub watermarks: BTreeMap<TopicPartition, i64>,
    /// The ids of the source topics, as far as they are known.
    pub topic_ids: BTreeMap<Arc<str>, Uuid>,
    /// The manifests, none of them in a snapshot yet.
    pub manifests: Vec<SealedManifest>,
    /// What the changes of a table with changes are about; `None` for a table that is appended to.
    pub key_run: Option<KeyRunRef>,
    /// Rows in the files, deletes included; changes of a table with changes.
    pub rows: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

impl Segment {
    /// Returns the id of a source topic, if it is known.
    pub fn topic_id(&self, topic: &str) -> Option<Uuid> {
        self.topic_ids.get(topic).copied()
    }

    /// Returns how many partitions a source topic of its changes had, if that is known.
    pub fn partitions_of(&self, topic: &str) -> Option<u32> {
        self.key_run.as_ref()?.topic_partitions.get(topic).copied()
    }

    /// Returns the ranges that have a row in the files.
    pub fn ranges_with_rows(&self) -> impl Iterator<Item = &SourceRange> {
        self.ranges.iter().filter(|range| range.has_rows())
    }

    /// Returns how many changes it has of a table with changes: all of them are looked at by its commit.
    pub fn changes(&self) -> u64 {
        self.key_run.as_ref().map_or(0, |run| run.rows)
    }

    /// Tells whether a manifest holds equality deletes: such a segment is a commit of its own
    /// (rule R8), because a delete does not reach rows of the same sequence number.
    pub fn has_equality_deletes(&self) -> bool {
        self.manifests
            .iter()
            .any(|manifest| manifest.counts.equality_delete_files > 0)
    }

    /// Returns about how many bytes the segment takes in memory: it is what waits, not its files.
    pub fn memory_bytes(&self) -> usize {
        let manifests = self.manifests.iter().map(|sealed| {
            let fields = sealed.manifest.partitions.iter().flatten();
            let bounds: usize = fields
                .flat_map(|field| [&field.lower_bound, &field.upper_bound])
                .map(|bound| 64 + bound.as_ref().map_or(0, |bytes| bytes.len()))
                .sum();
            512 + sealed.manifest.manifest_path.len() + 16 * sealed.partitions.len() + bounds
        });
        let key_run = self.key_run.as_ref().map_or(0, |run| {
            128 + run.path.len() + 64 * run.topic_partitions.len()
        });
        let ranges = 96 * self.ranges.len() + 96 * self.watermarks.len();
        512 + ranges + manifests.sum::<usize>() + key_run
    }

    /// Tells whether ranges and files fit together: rows have offsets and offsets have files. Changes
    /// that only delete have no manifest, and rows of a table with changes are changes.
    pub fn is_consistent(&self) -> bool {
        let has_rows = self.ranges_with_rows().next().is_some();
        let has_files = match &self.key_run {
            Some(run) => run.rows > 0 && run.rows == self.rows,
            None => !self.manifests.is_empty(),
        };
        has_rows == has_files
            && self.ranges.iter().all(|range| {
                range.end >= 0
                    && range.partition.partition >= 0
                    && range
                        .lowest
                        .is_none_or(|lowest| (0..range.end).contains(&lowest))
            })
    }
}

/// The file that says which key each change of a segment is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRunRef {
    /// Its location.
    pub path: String,
    /// Its length in bytes.
    pub len: u64,
    /// The SHA-256 of its bytes.
    pub sha256: [u8; 32],
    /// The changes in it.
    pub rows: u64,
    /// How many partitions the topics of its changes had when they were read, as far as that is known:
    /// changes of a key keep their order only while that stays so.
    pub topic_partitions: BTreeMap<Arc<str>, u32>,
}

/// A manifest that was written and is not in a snapshot yet.
#[derive(Debug, Clone, PartialEq)]
pub struct SealedManifest {
    /// The entry for a manifest list, without snapshot id and sequence numbers.
    pub manifest: ManifestFile,
    /// What its files add to the counters of a snapshot summary.
    pub counts: FileCounts,
    /// One number for each partition value among its files; equal values have equal numbers.
    pub partitions: BTreeSet<u64>,
    /// The SHA-256 of the manifest's bytes.
    pub sha256: [u8; 32],
}

impl SealedManifest {
    /// Returns what the manifest tracks: data files or delete files.
    pub fn content(&self) -> ManifestContentType {
        self.manifest.content
    }
}

/// What files add to the counters of a snapshot summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Data files.
    pub data_files: u64,
    /// Rows of the data files.
    pub records: u64,
    /// Position delete files that are not deletion vectors.
    pub position_delete_files: u64,
    /// Deletion vectors.
    pub deletion_vectors: u64,
    /// Deleted positions, deletion vectors included.
    pub position_deletes: u64,
    /// Equality delete files.
    pub equality_delete_files: u64,
    /// Rows of the equality delete files.
    pub equality_deletes: u64,
    /// Bytes of all files; of a deletion vector its own bytes, not its container's.
    pub bytes: u64,
}

impl FileCounts {
    /// Returns the counters of one file.
    pub fn of_file(file: &DataFile) -> Self {
        let rows = file.record_count();
        let mut counts = FileCounts {
            bytes: file.file_size_in_bytes(),
            ..FileCounts::default()
        };
        match (file.content_type(), file.file_format()) {
            (DataContentType::Data, _) => {
                counts.data_files = 1;
                counts.records = rows;
            }
            (DataContentType::EqualityDeletes, _) => {
                counts.equality_delete_files = 1;
                counts.equality_deletes = rows;
            }
            (DataContentType::PositionDeletes, DataFileFormat::Puffin) => {
                counts.deletion_vectors = 1;
                counts.position_deletes = rows;
                let own = file.content_size_in_bytes().map(u64::try_from);
                if let Some(Ok(bytes)) = own {
                    counts.bytes = bytes;
                }
            }
            (DataContentType::PositionDeletes, _) => {
                counts.position_delete_files = 1;
                counts.position_deletes = rows;
            }
        }
        counts
    }

    /// Returns the number of delete files, deletion vectors included.
    pub fn delete_files(&self) -> u64 {
        self.position_delete_files + self.deletion_vectors + self.equality_delete_files
    }

    /// Adds the counters of `other`.
    pub fn add(&mut self, other: &FileCounts) {
        self.data_files += other.data_files;
        self.records += other.records;
        self.position_delete_files += other.position_delete_files;
        self.deletion_vectors += other.deletion_vectors;
        self.position_deletes += other.position_deletes;
        self.equality_delete_files += other.equality_delete_files;
        self.equality_deletes += other.equality_deletes;
        self.bytes += other.bytes;
    }
}

/// Returns a number that is equal for files with equal spec and partition values.
pub fn partition_number(spec_id: i32, partition: &Struct) -> u64 {
    let text = format!("{spec_id}|{partition:?}");
    let mut number = [0; 8];
    for (to, from) in number.iter_mut().zip(Sha256::digest(text.as_bytes())) {
        *to = from;
    }
    u64::from_le_bytes(number)
}
