//! Small segments for the tests of this module.

use iceberg::spec::{ManifestContentType, ManifestFile};
use iceberg::{NamespaceIdent, TableIdent};
use uuid::Uuid;

use crate::control::segment::{FileCounts, SealedManifest, Segment};
use crate::offsets::{SourceRange, TopicPartition};

pub(crate) fn range(
    topic: &str,
    partition: i32,
    start: i64,
    end: i64,
    lowest: Option<i64>,
) -> SourceRange {
    SourceRange {
        partition: TopicPartition::new(topic, partition),
        start: Some(start),
        end,
        lowest,
        timestamp_max_ms: Some(1_000 + end),
    }
}

pub(crate) fn segment(seq: u64, ranges: Vec<SourceRange>) -> Segment {
    let rows: u64 = ranges
        .iter()
        .filter_map(|range| range.lowest.map(|lowest| (range.end - lowest) as u64))
        .sum();
    let manifests = if ranges.iter().any(SourceRange::has_rows) {
        vec![manifest(seq, rows)]
    } else {
        Vec::new()
    };
    Segment {
        session: Uuid::from_u128(1),
        seq,
        first_unacked: seq,
        epoch: 0,
        table: TableIdent::new(NamespaceIdent::new("db".into()), "t".into()),
        table_uuid: Uuid::from_u128(7),
        branch: "main".into(),
        ranges,
        watermarks: Default::default(),
        topic_ids: Default::default(),
        manifests,
        key_run: None,
        rows,
        bytes: rows * 10,
    }
}

pub(crate) fn manifest(seq: u64, rows: u64) -> SealedManifest {
    SealedManifest {
        manifest: ManifestFile {
            manifest_path: format!("memory:///t/metadata/{seq}-m.avro"),
            manifest_length: 100,
            partition_spec_id: 0,
            content: ManifestContentType::Data,
            sequence_number: -1,
            min_sequence_number: -1,
            added_snapshot_id: -1,
            added_files_count: Some(1),
            existing_files_count: Some(0),
            deleted_files_count: Some(0),
            added_rows_count: Some(rows),
            existing_rows_count: Some(0),
            deleted_rows_count: Some(0),
            partitions: Some(Vec::new()),
            key_metadata: None,
            first_row_id: None,
        },
        counts: FileCounts {
            data_files: 1,
            records: rows,
            bytes: rows * 10,
            ..FileCounts::default()
        },
        partitions: [0].into(),
        sha256: [0; 32],
    }
}
