//! The commit loop over a real SQL catalog on files, and over one that fails on command.

mod cases;
mod changed;
mod changed_cases;
mod changed_index;
mod changed_keys;
mod changed_model;
mod changed_races;
mod compacted;
mod create;
mod deletes;
mod faults;
mod kept;
mod merge;
mod pending;
mod races;
mod rewrite;
mod sealed;
mod truncations;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use frazil_core::commit::outcome::SegmentOutcome;
use frazil_core::commit::recover::{parent_of, state_of};
use frazil_core::control::message::Ranges;
use frazil_core::control::segment::Segment;
use frazil_core::offsets::{SourceRange, TopicPartition};
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, FormatVersion, ManifestFile,
    NestedField, PrimitiveType, Schema, Struct, Type,
};
use iceberg::{NamespaceIdent, TableIdent};
use uuid::Uuid;

use super::list::manifests_of;
use super::{CommitSettings, Layout, ManifestIdentity, TableCommitter, write_manifest};
use crate::catalog::{Catalog, CreateTable, LoadedTable, open_sql};

const WID: &str = "00112233445566ff";

/// A catalog with one table, in a directory of its own.
struct World {
    _dir: tempfile::TempDir,
    catalog: Arc<dyn Catalog>,
    ident: TableIdent,
}

fn create_table(version: FormatVersion) -> CreateTable {
    let column = |id, name| NestedField::optional(id, name, Type::Primitive(PrimitiveType::Long));
    CreateTable {
        schema: Schema::builder()
            .with_fields([Arc::new(column(1, "id"))])
            .build()
            .unwrap(),
        partition_spec: None,
        sort_order: None,
        location: None,
        properties: BTreeMap::new(),
        format_version: version,
    }
}

fn open_catalog(dir: &tempfile::TempDir) -> Arc<dyn Catalog> {
    let path = dir.path().display();
    let properties = [
        ("uri".to_string(), format!("sqlite:{path}/catalog.db")),
        ("warehouse".to_string(), format!("file://{path}/warehouse")),
    ];
    open_sql("test", &properties.into()).unwrap()
}

impl World {
    async fn new(version: FormatVersion) -> World {
        let dir = tempfile::tempdir().unwrap();
        let catalog = open_catalog(&dir);
        let ident = TableIdent::new(NamespaceIdent::new("db".into()), "t".into());
        catalog.create_namespace(ident.namespace()).await.unwrap();
        catalog
            .create_table(&ident, create_table(version))
            .await
            .unwrap();
        World {
            _dir: dir,
            catalog,
            ident,
        }
    }

    async fn load(&self) -> LoadedTable {
        self.catalog.load_table(&self.ident).await.unwrap()
    }

    fn committer(&self, wid: &str) -> TableCommitter {
        committer(self.catalog.clone(), &self.ident, wid)
    }

    /// A segment whose files hold `[start, end)` of each partition; the file names say so.
    async fn segment(&self, session: u128, seq: u64, ranges: &[(i32, i64, i64)]) -> Segment {
        let mut files = Vec::new();
        for (partition, start, end) in ranges {
            files.push(file(
                &format!("{session}/{partition}_{start}_{end}"),
                end - start,
            ));
        }
        self.segment_of(session, seq, ranges, vec![files]).await
    }

    /// Like [`World::segment`], with the given files, one manifest for each list.
    async fn segment_of(
        &self,
        session: u128,
        seq: u64,
        ranges: &[(i32, i64, i64)],
        manifests: Vec<Vec<DataFile>>,
    ) -> Segment {
        let loaded = self.load().await;
        let range = |(partition, start, end): &(i32, i64, i64)| SourceRange {
            partition: TopicPartition::new("t", *partition),
            start: Some(*start),
            end: *end,
            lowest: Some(*start),
            timestamp_max_ms: None,
        };
        let rows = ranges.iter().map(|(_, start, end)| (end - start) as u64);
        let mut segment = Segment {
            session: Uuid::from_u128(session),
            seq,
            first_unacked: seq,
            epoch: 0,
            table: self.ident.clone(),
            table_uuid: loaded.metadata.uuid(),
            branch: "main".into(),
            ranges: ranges.iter().map(range).collect(),
            watermarks: BTreeMap::new(),
            topic_ids: BTreeMap::new(),
            rows: rows.sum(),
            bytes: 100,
            manifests: Vec::new(),
            key_run: None,
        };
        for (index, files) in (0..).zip(manifests) {
            let identity = ManifestIdentity {
                wid: WID.into(),
                session: segment.session,
                seq,
                index,
                ranges: Ranges::of(&segment),
            };
            let layout = Layout::of(&loaded.metadata);
            let written =
                write_manifest(&loaded.storage, &loaded.metadata, layout, files, &identity);
            segment.manifests.push(written.await.unwrap());
        }
        segment
    }

    async fn manifests(&self, branch: &str) -> Vec<ManifestFile> {
        let loaded = self.load().await;
        let metadata = &loaded.metadata;
        match parent_of(metadata, branch) {
            Some(head) => manifests_of(&loaded.storage, head, metadata.format_version())
                .await
                .unwrap(),
            None => Vec::new(),
        }
    }

    /// How often the branch holds each offset, read from the names of its data files.
    async fn offsets(&self, branch: &str) -> BTreeMap<(i32, i64), u32> {
        let io = self.load().await.storage.file_io();
        let mut offsets = BTreeMap::new();
        for manifest in self.manifests(branch).await {
            let loaded = manifest.load_manifest(&io).await.unwrap();
            for entry in loaded.entries() {
                if entry.content_type() != DataContentType::Data {
                    continue;
                }
                let name = entry.file_path().rsplit('/').next().unwrap();
                let parts: Vec<i64> = name
                    .trim_end_matches(".parquet")
                    .split('_')
                    .map(|part| part.parse().unwrap())
                    .collect();
                for offset in parts[1]..parts[2] {
                    *offsets.entry((parts[0] as i32, offset)).or_default() += 1;
                }
            }
        }
        offsets
    }

    /// Checks that the branch holds `[0, end)` of each partition once, and that T says so.
    async fn assert_exactly_once(&self, branch: &str, ends: &[(i32, i64)]) {
        let offsets = self.offsets(branch).await;
        let loaded = self.load().await;
        let state = state_of(&loaded.metadata, WID, branch).unwrap().unwrap();
        let mut rows = 0;
        for (partition, end) in ends {
            rows += end;
            assert_eq!(
                state.bound(&TopicPartition::new("t", *partition)),
                Some(*end)
            );
            for offset in 0..*end {
                let times = offsets.get(&(*partition, offset));
                assert_eq!(times, Some(&1), "partition {partition} offset {offset}");
            }
        }
        assert_eq!(offsets.len() as i64, rows);
    }

    async fn snapshots(&self) -> usize {
        self.load().await.metadata.snapshots().len()
    }
}

fn committer(catalog: Arc<dyn Catalog>, ident: &TableIdent, wid: &str) -> TableCommitter {
    TableCommitter::new(catalog, ident.clone(), "main", wid, "test-sink")
        .with_hub_id("host-1")
        .with_settings(CommitSettings {
            conflicts_max: 500,
            conflict_pause_min: Duration::from_millis(1),
            conflict_pause_max: Duration::from_millis(20),
            unknown_pause_min: Duration::from_millis(1),
            unknown_pause_max: Duration::from_millis(20),
            ..CommitSettings::default()
        })
}

fn file(name: &str, rows: i64) -> DataFile {
    file_of(name, rows, DataContentType::Data)
}

fn file_of(name: &str, rows: i64, content: DataContentType) -> DataFile {
    DataFileBuilder::default()
        .content(content)
        .file_path(format!("file:///nowhere/{name}.parquet"))
        .file_format(DataFileFormat::Parquet)
        .partition(Struct::empty())
        .record_count(rows as u64)
        .file_size_in_bytes(10)
        .build()
        .unwrap()
}

/// One letter for each outcome: D(urable), C(overed), R(ejected), F(enced), B(locked).
fn letters(outcomes: &[(usize, SegmentOutcome)]) -> String {
    assert!(
        outcomes
            .iter()
            .map(|(index, _)| *index)
            .eq(0..outcomes.len())
    );
    outcomes
        .iter()
        .map(|(_, outcome)| match outcome {
            SegmentOutcome::Durable { .. } => 'D',
            SegmentOutcome::Covered => 'C',
            SegmentOutcome::Rejected(_) => 'R',
            SegmentOutcome::Fenced { .. } => 'F',
            SegmentOutcome::Blocked(_) => 'B',
        })
        .collect()
}
