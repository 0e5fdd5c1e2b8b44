//! The table: snapshots of data files with their delete files, the requests that make them, and what other
//! writers do to it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use frazil_core::Result;
use frazil_core::commit::anchor::Anchor;
use frazil_core::commit::state::WriterState;
use frazil_core::commit::view::TableView;
use frazil_core::delete::DeletionVector;
use uuid::Uuid;

use super::model::Model;
use super::source::Key;
use crate::rng::Rng;

/// A delete file, or a vector of one.
#[derive(Debug, Clone)]
pub(crate) struct DeleteFile {
    pub(crate) id: u64,
    pub(crate) rows: Rc<DeletionVector>,
}

/// A data file with the delete files that are about it.
#[derive(Debug, Clone)]
pub(crate) struct DataFile {
    pub(crate) rows: Rc<Vec<(Key, u32)>>,
    pub(crate) sequence: i64,
    pub(crate) deletes: Vec<DeleteFile>,
}

impl DataFile {
    pub(crate) fn is_deleted(&self, row: usize) -> bool {
        let mut deletes = self.deletes.iter();
        deletes.any(|file| file.rows.contains(row as u64))
    }

    /// Returns the rows that are there, with their places.
    pub(crate) fn live(&self) -> impl Iterator<Item = (usize, Key, u32)> + '_ {
        let rows = self.rows.iter().enumerate();
        let live = rows.filter(|(row, _)| !self.is_deleted(*row));
        live.map(|(row, (key, value))| (row, *key, *value))
    }

    /// Returns all deleted rows.
    pub(crate) fn deleted(&self) -> DeletionVector {
        let mut all = DeletionVector::new();
        self.deletes.iter().for_each(|file| all.union(&file.rows));
        all
    }
}

/// The data files of a snapshot.
pub(crate) type Files = BTreeMap<Arc<str>, DataFile>;

/// A snapshot.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) parent: Option<i64>,
    pub(crate) files: Files,
    /// What it has to hold.
    pub(crate) model: Model,
}

/// The metadata, as one load returns it.
#[derive(Debug, Clone)]
pub(crate) struct Meta {
    uuid: Uuid,
    pub(crate) last_sequence: i64,
    pub(crate) head: Option<i64>,
    snapshots: BTreeMap<i64, Rc<Snapshot>>,
    pub(crate) state: Option<WriterState>,
    pub(crate) anchor: Anchor,
}

/// What is seen of a table.
#[derive(Debug, Clone)]
pub(crate) struct View(pub(crate) Rc<Meta>);

impl View {
    pub(crate) fn head(&self) -> Option<&Rc<Snapshot>> {
        self.0.snapshots.get(&self.0.head?)
    }

    /// Returns the files of the newest snapshot.
    pub(crate) fn files(&self) -> Files {
        self.head()
            .map_or_else(Files::new, |head| head.files.clone())
    }

    /// Returns what the newest snapshot has to hold.
    pub(crate) fn model(&self) -> Model {
        self.head()
            .map_or_else(Model::default, |head| head.model.clone())
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
        let stored = self.0.state.clone();
        Ok(self.0.anchor.effective(stored, self.0.uuid))
    }

    fn has_moved(&self, now: &Self) -> bool {
        self.0.last_sequence != now.0.last_sequence
    }

    fn is_in_history(&self, _branch: &str, snapshot_id: i64) -> bool {
        let mut next = self.0.head;
        while let Some(id) = next {
            if id == snapshot_id {
                return true;
            }
            next = self.0.snapshots.get(&id).and_then(|one| one.parent);
        }
        false
    }

    fn descends_from(&self, branch: &str, snapshot_id: i64) -> bool {
        if self.has_snapshot(snapshot_id) {
            return self.is_in_history(branch, snapshot_id);
        }
        let mut next = self.0.head;
        while let Some(known) = next.and_then(|id| self.0.snapshots.get(&id)) {
            next = known.parent;
        }
        next == Some(snapshot_id)
    }

    fn has_snapshot(&self, snapshot_id: i64) -> bool {
        self.0.snapshots.contains_key(&snapshot_id)
    }

    fn has_spec(&self, _spec_id: i32) -> bool {
        true
    }
}

/// A commit on its way.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) base: View,
    pub(crate) snapshot_id: i64,
    pub(crate) files: Files,
    pub(crate) model: Model,
    pub(crate) state: WriterState,
}

/// The table and the names of its files.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) now: View,
    pub(crate) before: View,
    /// Whether deletes are vectors.
    pub(crate) has_vectors: bool,
    names: u64,
    ids: i64,
}

impl Table {
    pub(crate) fn new(has_vectors: bool) -> Self {
        let meta = Meta {
            uuid: Uuid::from_u128(7),
            last_sequence: 0,
            head: None,
            snapshots: BTreeMap::new(),
            state: None,
            anchor: Anchor::default(),
        };
        let view = View(Rc::new(meta));
        Table {
            now: view.clone(),
            before: view,
            has_vectors,
            names: 0,
            // Below what stands for no snapshot.
            ids: -1_000,
        }
    }

    /// Returns a name that no file had.
    pub(crate) fn name(&mut self, by: &str) -> Arc<str> {
        self.names += 1;
        // Names say nothing about the age of a file.
        let mixed = self.names.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        format!("{mixed:06x}-{by}-{}", self.names).into()
    }

    /// Returns the number of a new delete file.
    pub(crate) fn delete_id(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    fn set(&mut self, meta: Meta) {
        let before = std::mem::replace(&mut self.now, View(Rc::new(meta)));
        self.before = before;
    }

    fn add(&mut self, id: i64, files: Files, model: Model, state: Option<WriterState>) {
        let mut meta = Meta::clone(&self.now.0);
        meta.last_sequence += 1;
        let snapshot = Snapshot {
            parent: meta.head,
            files,
            model,
        };
        meta.head = Some(id);
        meta.snapshots.insert(id, Rc::new(snapshot));
        if state.is_some() {
            meta.state = state;
        }
        self.set(meta);
    }

    /// Applies a request, if the table is what it asserts.
    pub(crate) fn apply(&mut self, request: &Request) -> bool {
        let is_same = self.now.0.head == request.base.0.head
            && self.now.0.last_sequence == request.base.0.last_sequence;
        if is_same {
            let Request {
                snapshot_id,
                files,
                model,
                state,
                ..
            } = request.clone();
            self.add(snapshot_id, files, model, Some(state));
        }
        is_same
    }

    /// Another writer commits.
    pub(crate) fn foreign(&mut self, files: Files, model: Model) {
        self.ids -= 1;
        self.add(self.ids, files, model, None);
    }

    /// Sets the record of resets, and moves the branch where the writer has committed to it.
    pub(crate) fn reset(&mut self, anchor: Anchor) {
        let mut meta = Meta::clone(&self.now.0);
        meta.anchor = anchor;
        self.set(meta);
        if self.now.0.state.is_some() {
            self.foreign(self.now.files(), self.now.model());
        }
    }

    /// Sets the branch back; tells whether there was somewhere to go.
    pub(crate) fn roll_back(&mut self, steps: u64) -> bool {
        let mut meta = Meta::clone(&self.now.0);
        for _ in 0..steps {
            let head = meta.head.and_then(|id| meta.snapshots.get(&id));
            let parent = head.and_then(|head| head.parent);
            let Some(parent) = parent.filter(|id| meta.snapshots.contains_key(id)) else {
                return false;
            };
            meta.head = Some(parent);
        }
        self.set(meta);
        true
    }

    /// Removes snapshots but the head and those that a number of steps reaches.
    pub(crate) fn expire(&mut self, kept: usize) {
        let mut meta = Meta::clone(&self.now.0);
        let mut stays = BTreeSet::new();
        let mut next = meta.head;
        while let Some(id) = next.filter(|_| stays.len() < kept) {
            stays.insert(id);
            next = meta.snapshots.get(&id).and_then(|one| one.parent);
        }
        meta.snapshots.retain(|id, _| stays.contains(id));
        self.set(meta);
    }
}

/// What another writer does to the rows of a table, by chance. Returns the keys that it changed; `None` when
/// there was nothing to do.
pub(crate) fn foreign(table: &mut Table, rng: &mut Rng) -> Option<Vec<Key>> {
    let (mut files, mut model) = (table.now.files(), table.now.model());
    let keys: Vec<Key> = model.rows.keys().copied().collect();
    let changed = match rng.below(8) {
        0..3 => return compact(table, rng).then(Vec::new),
        3 if !keys.is_empty() => {
            let key = rng.pick(&keys);
            delete_newest(table, rng, &mut files, key);
            model.remove_newest(key);
            vec![key]
        }
        4 if !keys.is_empty() => {
            // A change of its own: the row goes, and another one comes, in one snapshot.
            let key = rng.pick(&keys);
            delete_newest(table, rng, &mut files, key);
            model.remove_newest(key);
            add_row(table, rng, &mut files, &mut model, key);
            vec![key]
        }
        5 if !keys.is_empty() && rng.chance(400) => {
            // A second row of a key.
            let key = rng.pick(&keys);
            add_row(table, rng, &mut files, &mut model, key);
            vec![key]
        }
        6 => {
            // A whole file goes.
            let names: Vec<Arc<str>> = files.keys().cloned().collect();
            let name = (!names.is_empty()).then(|| names[rng.index(names.len())].clone())?;
            let file = files.remove(&name)?;
            let gone: Vec<Key> = file.live().map(|(_, key, _)| key).collect();
            for (_, key, value) in file.live() {
                model.remove(key, value);
            }
            gone
        }
        _ => {
            let key = rng.below(12) as Key;
            if model.rows.contains_key(&key) {
                return None;
            }
            add_row(table, rng, &mut files, &mut model, key);
            vec![key]
        }
    };
    table.foreign(files, model);
    Some(changed)
}

fn add_row(table: &mut Table, rng: &mut Rng, files: &mut Files, model: &mut Model, key: Key) {
    let value = 1_000_000 + rng.below(1_000_000) as u32;
    let file = DataFile {
        rows: Rc::new(vec![(key, value)]),
        sequence: table.now.0.last_sequence + 1,
        deletes: Vec::new(),
    };
    files.insert(table.name("foreign"), file);
    model.rows.entry(key).or_default().push(value);
}

/// Returns the place of the newest row of a key: of the file that came last, and there the last.
pub(crate) fn newest(files: &Files, key: Key) -> Option<(Arc<str>, usize)> {
    let mut found: Option<((i64, Arc<str>), usize)> = None;
    for (path, file) in files {
        for (row, of, _) in file.live() {
            let place = (file.sequence, Arc::clone(path));
            if of == key && found.as_ref().is_none_or(|(known, _)| *known <= place) {
                found = Some((place, row));
            }
        }
    }
    found.map(|((_, path), row)| (path, row))
}

fn delete_newest(table: &mut Table, rng: &mut Rng, files: &mut Files, key: Key) {
    let Some((path, row)) = newest(files, key) else {
        return;
    };
    let Some(file) = files.get_mut(&path) else {
        return;
    };
    let is_own = !table.has_vectors && rng.chance(512);
    let mut rows = match is_own {
        // A further position delete file, beside those that are there.
        true => DeletionVector::new(),
        false => file.deleted(),
    };
    if rows.insert(row as u64).is_ok() {
        if !is_own {
            file.deletes.clear();
        }
        file.deletes.push(DeleteFile {
            id: table.delete_id(),
            rows: Rc::new(rows),
        });
    }
    if rng.chance(512) && file.live().next().is_none() {
        files.remove(&path);
    }
}

/// Rewrites some files into one, without their deleted rows.
fn compact(table: &mut Table, rng: &mut Rng) -> bool {
    let (mut files, model) = (table.now.files(), table.now.model());
    // Which of several rows of a key is the newest is nothing that a compaction keeps.
    let has_several = model.rows.values().any(|rows| rows.len() > 1);
    let names: Vec<Arc<str>> = files.keys().filter(|_| rng.chance(600)).cloned().collect();
    if names.is_empty() || has_several {
        return false;
    }
    let mut rows = Vec::new();
    let mut sequence = 0;
    for name in names {
        if let Some(file) = files.remove(&name) {
            rows.extend(file.live().map(|(_, key, value)| (key, value)));
            sequence = file.sequence.max(sequence);
        }
    }
    if rng.chance(512) {
        sequence = table.now.0.last_sequence + 1;
    }
    if rng.chance(512) {
        rows.sort_unstable();
    }
    if !rows.is_empty() {
        let file = DataFile {
            rows: Rc::new(rows),
            sequence,
            deletes: Vec::new(),
        };
        files.insert(table.name("compacted"), file);
    }
    table.foreign(files, model);
    true
}
