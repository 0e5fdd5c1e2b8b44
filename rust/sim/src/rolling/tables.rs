//! The tables of the rolling restart: their metadata as the commit loop sees it, and the books of
//! which rows each of them has.
//!
//! The path of a manifest says which rows it stands for, so that a commit can be checked by what it
//! names and by nothing else.

use std::collections::VecDeque;
use std::rc::Rc;

use frazil_core::Result;
use frazil_core::commit::state::WriterState;
use frazil_core::commit::view::TableView;
use frazil_core::control::segment::{FileCounts, SealedManifest, Segment};
use iceberg::spec::{ManifestContentType, ManifestFile};
use uuid::Uuid;

use super::Fault;

/// Snapshots that a table remembers.
const SNAPSHOTS_KEPT: usize = 512;

/// Rows of one partition, both ends included.
pub(super) type Rows = (usize, i64, i64);

#[derive(Debug, Clone)]
struct Meta {
    uuid: Uuid,
    sequence: u64,
    state: Option<WriterState>,
    snapshots: VecDeque<i64>,
}

/// A table's metadata, as one load returns it.
#[derive(Debug, Clone)]
pub(super) struct View(Rc<Meta>);

impl View {
    /// Returns what the table says of this writer.
    pub(super) fn state(&self) -> Option<&WriterState> {
        self.0.state.as_ref()
    }
}

impl TableView for View {
    fn uuid(&self) -> Uuid {
        self.0.uuid
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn writer_state(&self, _wid: &str, _branch: &str) -> Result<Option<WriterState>> {
        Ok(self.0.state.clone())
    }

    fn has_moved(&self, now: &Self) -> bool {
        self.0.sequence != now.0.sequence
    }

    fn is_in_history(&self, _branch: &str, snapshot_id: i64) -> bool {
        self.has_snapshot(snapshot_id)
    }

    fn has_snapshot(&self, snapshot_id: i64) -> bool {
        self.0.snapshots.contains(&snapshot_id)
    }

    fn has_spec(&self, _spec_id: i32) -> bool {
        true
    }
}

/// A commit that was applied.
#[derive(Debug, Clone, Copy)]
pub(super) struct Applied {
    pub(super) at_ms: u64,
    /// How long the oldest row of it was underway.
    pub(super) age_ms: u64,
}

/// A table and what came into it.
#[derive(Debug)]
pub(super) struct Table {
    view: View,
    /// The first offset of each partition that is not in.
    pub(super) next: Vec<i64>,
    pub(super) applied: Vec<Applied>,
    /// Rows that came twice, or after a gap.
    pub(super) wrong: Vec<String>,
}

/// A request to the catalog.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) base: View,
    pub(super) snapshot_id: i64,
    /// The state that it sets, signed.
    pub(super) state: WriterState,
    pub(super) rows: Vec<Rows>,
}

impl Table {
    /// Makes table number `index`, which is empty.
    pub(super) fn new(index: usize, partitions: usize) -> Self {
        Table {
            view: View(Rc::new(Meta {
                uuid: Uuid::from_u128(index as u128 + 1),
                sequence: 0,
                state: None,
                snapshots: VecDeque::new(),
            })),
            next: vec![0; partitions],
            applied: Vec::new(),
            wrong: Vec::new(),
        }
    }

    /// Loads the table.
    pub(super) fn load(&self) -> View {
        self.view.clone()
    }

    /// Applies a request, if the table is still what the request was built on. `written_ms` tells
    /// when a record was written.
    pub(super) fn apply(
        &mut self,
        request: Request,
        now_ms: u64,
        written_ms: impl Fn(usize, i64) -> u64,
        fault: Fault,
    ) -> Option<View> {
        if self.view.0.sequence != request.base.0.sequence {
            return None;
        }
        let mut age_ms = 0;
        let mut rows = request.rows;
        if fault == Fault::RowsForgotten {
            rows.clear();
        }
        rows.sort_unstable();
        for (partition, first, last) in rows {
            let next = &mut self.next[partition];
            if first != *next {
                self.wrong.push(format!(
                    "partition {partition}: rows {first} to {last} came when {next} was due"
                ));
            }
            age_ms = age_ms.max(now_ms.saturating_sub(written_ms(partition, *next)));
            *next = last + 1;
        }
        self.applied.push(Applied {
            at_ms: now_ms,
            age_ms,
        });
        let mut meta = Meta::clone(&self.view.0);
        meta.sequence += 1;
        if fault == Fault::StateForgotten {
            self.view = View(Rc::new(meta));
            return None;
        }
        meta.state = Some(request.state);
        meta.snapshots.push_back(request.snapshot_id);
        if meta.snapshots.len() > SNAPSHOTS_KEPT {
            meta.snapshots.pop_front();
        }
        self.view = View(Rc::new(meta));
        Some(self.view.clone())
    }
}

/// Makes the manifest of a file with these rows.
pub(super) fn manifest(path: String, rows: u64) -> SealedManifest {
    SealedManifest {
        manifest: ManifestFile {
            manifest_path: path,
            manifest_length: 8_000,
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
            bytes: rows * 100,
            ..FileCounts::default()
        },
        partitions: [0].into(),
        sha256: [0; 32],
    }
}

/// Returns a path as long as they are in stores, which ends with the rows.
pub(super) fn path(table: usize, session: Uuid, sequence: u64, rows: &[Rows]) -> String {
    use std::fmt::Write as _;
    let mut path = format!(
        "s3://warehouse/namespace/t{table:02}-{session}/metadata/frazil-{session}-{sequence}-"
    );
    for (partition, first, last) in rows {
        // Writing into a string cannot fail.
        let _ = write!(path, "/{partition}:{first}:{last}");
    }
    path
}

/// Returns the rows of a segment, as its manifests' paths say them.
pub(super) fn rows_of(segment: &Segment) -> Vec<Rows> {
    let paths = segment
        .manifests
        .iter()
        .map(|sealed| &sealed.manifest.manifest_path);
    paths
        .flat_map(|path| path.split('/').filter_map(rows_in))
        .collect()
}

fn rows_in(part: &str) -> Option<Rows> {
    let mut numbers = part.split(':');
    let partition = numbers.next()?.parse().ok()?;
    let first = numbers.next()?.parse().ok()?;
    let last = numbers.next()?.parse().ok()?;
    Some((partition, first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_its_rows() {
        let rows = [(3, 0, 4), (17, 9, 9)];
        let path = path(1, Uuid::nil(), 2, &rows);
        let found: Vec<Rows> = path.split('/').filter_map(rows_in).collect();
        assert_eq!(found, rows);
    }

    #[test]
    fn the_books_see_rows_that_come_twice_or_too_early() {
        let mut table = Table::new(0, 2);
        let mut commit = |rows: Rows| {
            let base = table.load();
            let request = Request {
                state: WriterState::new(base.uuid()),
                base,
                snapshot_id: 1,
                rows: vec![rows],
            };
            let applied = table.apply(request, 100, |_, _| 40, Fault::None);
            (applied.is_some(), table.wrong.len())
        };
        assert_eq!(commit((0, 0, 4)), (true, 0));
        assert_eq!(commit((0, 4, 5)), (true, 1), "offset 4 came twice");
        assert_eq!(commit((1, 1, 1)), (true, 2), "offset 0 is missing");
        assert_eq!(table.applied[0].age_ms, 60);
    }

    #[test]
    fn a_request_on_an_old_table_is_not_applied() {
        let mut table = Table::new(0, 1);
        let base = table.load();
        let request = |base: &View| Request {
            base: base.clone(),
            snapshot_id: 1,
            state: WriterState::new(base.uuid()),
            rows: vec![],
        };
        let mut apply = |at_ms| table.apply(request(&base), at_ms, |_, _| 0, Fault::None);
        assert!(apply(1).is_some());
        assert!(apply(2).is_none());
    }
}
