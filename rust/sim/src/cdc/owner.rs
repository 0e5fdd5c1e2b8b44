//! A process that commits changes: what the engine does around the index, the orders and the attempts of a
//! commit, with tables of the simulator in place of manifests and files.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use frazil_core::change::Order;
use frazil_core::change::keyrun::{Effect, KeyRun, RunChange};
use frazil_core::change::window::KnownOrders;
use frazil_core::commit::action::Submission;
use frazil_core::commit::summary::FileChanges;
use frazil_core::commit::validate::RejectReason;
use frazil_core::commit::view::TableView;
use frazil_core::control::segment::{FileCounts, Segment};
use frazil_core::delete::DeletionVector;
use frazil_core::index::catch_up::CatchUp;
use frazil_core::index::changed::{LocatedChanges, Pending, SegmentChanges};
use frazil_core::index::files::IndexedFile;
use frazil_core::index::follow::{Followed, NewFile};
use frazil_core::index::orders::{Keys, Orders};
use frazil_core::index::resolve::Resolution;
use frazil_core::index::truncations::{Truncations, Unsure};
use frazil_core::index::{KeyForm, KeyNumber, Location};
use frazil_core::rules::{Rule, enforced};
use frazil_core::{Result, SinkError};

use super::model::{Change, Knowledge, SourceOf, source_of};
use super::source::{Key, OrderBytes, Record, What};
use super::table::{DataFile, DeleteFile, Files, Request, Table, View};
use crate::names::{WID, identity};
use crate::rng::Rng;

/// How long orders are remembered here.
pub(crate) const WINDOW_MS: i64 = 60_000;
const BRANCH: &str = "main";

/// What a segment of changes has beside what the coordinator knows of it.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) run: KeyRun,
    pub(crate) files: Vec<(Arc<str>, DataFile)>,
    /// Its records in the order in which they were read: partition, offset.
    pub(crate) records: Vec<(Record, usize, i64)>,
}

/// A process.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) hub: u32,
    followed: Option<Followed>,
    pub(crate) orders: Orders,
    pending: Option<Pending>,
    /// What it cannot have forgotten, with the time from which on it may.
    pub(crate) must_know: BTreeMap<(Key, SourceOf), (OrderBytes, i64)>,
    /// The newest snapshot that it has looked at.
    looked: Option<i64>,
    /// The rows that the attempt under way would leave.
    noted: Option<Attempted>,
}

/// What an attempt does, for the checkers.
#[derive(Debug)]
struct Attempted {
    commit_id: uuid::Uuid,
    snapshot_id: i64,
    orders: Vec<((Key, SourceOf), OrderBytes)>,
    forgets: bool,
}

/// Why there is no request.
#[derive(Debug)]
pub(crate) enum Unbuilt {
    Failed(SinkError),
    Unusable(usize, RejectReason),
    Violation(&'static str, String),
}

impl From<SinkError> for Unbuilt {
    fn from(error: SinkError) -> Self {
        Unbuilt::Failed(error)
    }
}

/// Returns the number of a key.
pub(crate) fn number(key: Key) -> KeyNumber {
    // Two of four keys are in each half of an index that was cut.
    KeyNumber(u128::from(key + 1).reverse_bits() >> 64 | 1 << 50)
}

/// Gives the parts of a segment its place in a run.
pub(crate) fn run_of(
    records: &[(Record, usize, i64)],
    places: &BTreeMap<usize, u32>,
    at: &[Option<Location>],
) -> Result<KeyRun> {
    let mut run = KeyRun::default();
    for ((record, partition, offset), at) in records.iter().zip(at) {
        let (key, effect) = match (record.what, at) {
            (What::Put(..), Some(at)) => (number(record.key), Effect::Upsert(*at)),
            (What::Truncate, _) => (KeyNumber(0), Effect::Truncate),
            _ => (number(record.key), Effect::Delete),
        };
        let partition = places.get(partition).copied().unwrap_or(0);
        let change = RunChange::new(key, effect, (partition, *offset));
        run.push(&change, record.order.as_deref().map(Order::of))?;
    }
    run.sort();
    Ok(run)
}

struct Known<'a> {
    known: &'a KnownOrders,
    keys: &'a BTreeMap<u128, Key>,
}

impl Knowledge for Known<'_> {
    fn order(&self, key: Key, order: &OrderBytes) -> Option<OrderBytes> {
        let all = self.all().into_iter();
        let mut of_key = all.filter(|(of, one)| *of == key && source_of(one) == source_of(order));
        of_key.next().map(|(_, order)| order)
    }

    fn is_emptied(&self, order: &OrderBytes) -> bool {
        // Of this key nothing is known.
        self.known.is_stale(KeyNumber(1), Order::of(order))
    }

    fn is_repeated(&self, order: &OrderBytes) -> bool {
        self.known.knows_truncation(Order::of(order))
    }

    fn all(&self) -> Vec<(Key, OrderBytes)> {
        let all = self.known.iter();
        all.filter_map(|(key, order)| Some((*self.keys.get(&key.0)?, order.bytes().to_vec())))
            .collect()
    }
}

impl Owner {
    pub(crate) fn new(hub: u32) -> Self {
        Owner {
            hub,
            followed: None,
            orders: Orders::new(WINDOW_MS, 1 << 20),
            pending: None,
            must_know: BTreeMap::new(),
            looked: None,
            noted: None,
        }
    }

    /// Another process commits from now on.
    pub(crate) fn let_go(&mut self) {
        self.followed = None;
        self.pending = None;
        self.noted = None;
        self.must_know.clear();
    }

    /// Tells whether it can tell, from what is left of a table of which snapshots have expired, that nobody has
    /// rolled it back.
    pub(crate) fn can_tell(&self, before: &View, now: &View) -> bool {
        let noted = self.noted.as_ref().map(|noted| noted.snapshot_id);
        let noted =
            noted.filter(|id| before.has_snapshot(*id) && before.is_in_history(BRANCH, *id));
        let mut all = [self.looked, noted].into_iter().flatten();
        all.all(|id| now.descends_from(BRANCH, id))
    }

    /// Takes in what the table shows of the last attempt.
    pub(crate) fn settle(&mut self, view: &View, now_ms: i64) -> Result<()> {
        let Some(mut pending) = self.pending.take() else {
            return Ok(());
        };
        let is_there = pending.settle(view, (WID, BRANCH), &mut self.orders, now_ms)?;
        if let Some(noted) = self.noted.take() {
            self.note(view, &noted, now_ms)?;
        }
        if let Some(mut followed) = self.followed.take_if(|_| is_there) {
            followed.apply(pending.delta, pending.snapshot_id)?;
            self.followed = Some(followed);
        }
        Ok(())
    }

    fn note(&mut self, view: &View, noted: &Attempted, now_ms: i64) -> Result<()> {
        let state = view.writer_state(WID, BRANCH)?;
        let is_last = state.is_some_and(|state| state.commit_id == noted.commit_id);
        let id = noted.snapshot_id;
        let is_there = view.has_snapshot(id) && view.is_in_history(BRANCH, id);
        if !is_last || !is_there {
            return Ok(());
        }
        self.looked = Some(id);
        if noted.forgets {
            self.must_know.clear();
        }
        for (place, order) in &noted.orders {
            let known = self.must_know.entry(*place).or_default();
            if known.0 <= *order {
                *known = (order.clone(), now_ms + WINDOW_MS);
            }
        }
        Ok(())
    }

    /// Builds an attempt, as the engine's `Changes::build`. `fails` says that the keys of new files cannot be
    /// read.
    pub(crate) fn build(
        &mut self,
        (table, rng): (&mut Table, &mut Rng),
        submission: &Submission<View>,
        segments: &[(usize, &Segment, &Sealed)],
        (now_ms, fails): (i64, bool),
    ) -> std::result::Result<Request, Unbuilt> {
        let view = &submission.base;
        self.settle(view, now_ms)?;
        let files = view.files();
        let keys = Keys {
            table: view.uuid(),
            form: KeyForm::Exact,
            key: "1:integer".to_owned(),
        };
        let head = view.0.head;
        let followed = self.followed.take();
        let followed = followed.filter(|known| known.unfit(view, (BRANCH, head), &keys).is_none());
        let mut followed = followed.unwrap_or_else(|| Followed::new(keys.clone()).with_dead_min(6));
        if let Err(error) = follow(&mut followed, &files, head, fails.then_some(rng)) {
            self.followed = Some(followed).filter(Followed::is_whole);
            return Err(error.into());
        }
        check_index(&followed, view)?;
        self.orders
            .follow(view, (WID, BRANCH, head), keys, now_ms)?;
        self.looked = head;
        if view.0.last_sequence == table.now.0.last_sequence {
            self.check_orders(view, now_ms)?;
        }
        let made = self.resolve(&followed, view, segments, submission, table);
        self.followed = Some(followed);
        made
    }

    fn resolve(
        &mut self,
        followed: &Followed,
        view: &View,
        segments: &[(usize, &Segment, &Sealed)],
        submission: &Submission<View>,
        table: &mut Table,
    ) -> std::result::Result<Request, Unbuilt> {
        let files = view.files();
        let new: Vec<Vec<IndexedFile>> = segments
            .iter()
            .map(|(_, _, sealed)| {
                let files = sealed.files.iter();
                let files = files
                    .map(|(path, file)| IndexedFile::new(Arc::clone(path), file.rows.len() as u64));
                files.collect::<Result<_>>()
            })
            .collect::<Result<_>>()?;
        let parts: Vec<SegmentChanges<'_>> = segments
            .iter()
            .zip(&new)
            .map(|((_, segment, sealed), files)| SegmentChanges {
                run: &sealed.run,
                ranges: &segment.ranges,
                files,
            })
            .collect();
        let state = view.writer_state(WID, BRANCH)?;
        let bounds = state.iter().flat_map(|state| state.bounds());
        let bounds = bounds.map(|(partition, _)| partition);
        let found = Truncations::begin(&parts, self.orders.known(), bounds);
        if let Err(unsure) = found.and_then(|all| all.check(&parts)) {
            let Unsure {
                segment,
                partition,
                other,
            } = unsure;
            let reason = RejectReason::TruncationUnsure { partition, other };
            return Err(Unbuilt::Unusable(segments[segment].0, reason));
        }
        let new = parts.iter().flat_map(|part| part.files).cloned();
        let mut located = LocatedChanges::begin(followed.index(), new.collect());
        located.add(followed.index(), self.orders.known(), &parts)?;
        located.finish();
        let path_of = |number: u32| followed.index().files().get(number).map(|file| &file.path);
        let vectors: BTreeMap<u32, DeletionVector> = located
            .files()
            .into_iter()
            .filter_map(|number| Some((number, files.get(path_of(number)?)?.deleted())))
            .filter(|(_, vector)| !vector.is_empty())
            .collect();
        let (made, noted) = located.resolve(followed.index(), |number| vectors.get(&number))?;
        let after = write(table, &files, followed, &made, segments)?;
        let changes: Vec<Change<'_>> = segments
            .iter()
            .flat_map(|(_, _, sealed)| &sealed.records)
            .map(|(record, partition, offset)| (record, *partition, *offset))
            .collect();
        let keys = (0..=Key::MAX - 1).map(|key| (number(key).0, key)).collect();
        let known = Known {
            known: self.orders.known(),
            keys: &keys,
        };
        let before = view.model();
        let epoch = state.map_or(0, |state| state.epoch);
        let (model, unsound) = before.after(&changes, epoch, &known);
        let is_newest = view.0.last_sequence == table.now.0.last_sequence;
        if let Some(what) = unsound.filter(|_| is_newest) {
            return Err(Unbuilt::Violation("C4", what));
        }
        let mut counts = made.counts;
        counts.count_emptied(&after.1);
        check_rows(&after.0, &model)?;
        check_files(&files, &after.0)?;
        check_counts(&files, &after.0, &counts)?;
        let forgets = changes
            .iter()
            .any(|(one, ..)| one.what == What::Truncate && one.order.is_none());
        let changed = model.orders.iter();
        let changed = changed.filter(|(place, order)| before.orders.get(*place) != Some(*order));
        self.noted = Some(Attempted {
            commit_id: submission.commit_id,
            snapshot_id: submission.snapshot_id,
            orders: changed
                .map(|(place, order)| (*place, order.clone()))
                .collect(),
            forgets,
        });
        self.pending = Some(Pending {
            commit_id: submission.commit_id,
            snapshot_id: submission.snapshot_id,
            delta: made.delta,
            noted,
            counts: made.counts,
        });
        let identity = identity(self.hub, 0);
        let (commit_id, snapshot_id) = (submission.commit_id, submission.snapshot_id);
        Ok(Request {
            base: view.clone(),
            snapshot_id,
            files: after.0,
            model,
            state: identity.sign(submission.state.clone(), commit_id, snapshot_id, 0),
        })
    }

    /// C4 and C5.
    fn check_orders(&mut self, view: &View, now_ms: i64) -> std::result::Result<(), Unbuilt> {
        let keys = (0..=Key::MAX - 1).map(|key| (number(key).0, key)).collect();
        let known = Known {
            known: self.orders.known(),
            keys: &keys,
        };
        let model = view.model();
        let all: BTreeMap<(Key, SourceOf), OrderBytes> = known
            .all()
            .into_iter()
            .map(|(key, order)| ((key, source_of(&order)), order))
            .collect();
        for (place, order) in &all {
            if model.orders.get(place).is_none_or(|has| has < order) {
                let what = format!("{place:?} is remembered at {order:?}, which the table has not");
                return Err(Unbuilt::Violation("C4", what));
            }
        }
        // Where the table went back, or another process committed, it is forgotten.
        self.must_know.retain(|place, (order, until)| {
            *until >= now_ms && model.orders.get(place).is_some_and(|has| has == order)
        });
        for (place, (order, _)) in &self.must_know {
            if all.get(place) != Some(order) {
                let what = format!("{place:?} at {order:?} is forgotten");
                return Err(Unbuilt::Violation("C5", what));
            }
        }
        Ok(())
    }
}

/// Makes the index true to the files of `head`. With `fails` the keys cannot be read.
fn follow(
    followed: &mut Followed,
    files: &Files,
    head: Option<i64>,
    fails: Option<&mut Rng>,
) -> Result<()> {
    let mut new = followed.follow(head, files, |file| (file.rows.len() as u64, file.sequence))?;
    if !enforced(Rule::FilesOfOthers) {
        new.clear();
    }
    if new.is_empty() {
        followed.has_read(false);
        return Ok(());
    }
    let reads = match fails {
        Some(rng) => rng.index(new.len() + 1),
        None => new.len(),
    };
    let has_several = read_keys(followed, files, &new, reads)?;
    match reads == new.len() {
        true => {
            followed.has_read(has_several);
            Ok(())
        }
        false => {
            followed.read_failed(&new);
            Err(SinkError::retriable("STORAGE_UNREACHABLE", "no answer"))
        }
    }
}

fn read_keys(
    followed: &mut Followed,
    files: &Files,
    new: &[NewFile],
    reads: usize,
) -> Result<bool> {
    let paths: BTreeMap<u32, Arc<str>> = followed
        .index()
        .files()
        .iter()
        .map(|(number, file)| (number, Arc::clone(&file.path)))
        .collect();
    let vectors: BTreeMap<u32, DeletionVector> = new
        .iter()
        .filter_map(|file| Some((file.number, files.get(&file.path)?.deleted())))
        .collect();
    let mut catch = CatchUp::new(followed.index_mut(), |number| vectors.get(&number));
    catch = catch.with_pending_max(3);
    for file in new.iter().take(reads) {
        let rows = files.get(&file.path).map(|file| Rc::clone(&file.rows));
        let keys: Vec<KeyNumber> = rows
            .iter()
            .flat_map(|rows| rows.iter())
            .map(|row| number(row.0))
            .collect();
        catch.add(file.number, 0, &keys)?;
    }
    let caught = catch.finish()?;
    let is_live = |at: Location| {
        let file = paths.get(&at.file).and_then(|path| files.get(path));
        file.is_some_and(|file| !file.is_deleted(at.row as usize))
    };
    let mut named = caught.named.iter();
    Ok(named.any(|one| is_live(one.older)) || caught.duplicates > caught.named.len() as u64)
}

/// Writes what a commit comes to, as the engine's manifests: each data file with deletes gets one delete file
/// in place of those that it had.
fn write(
    table: &mut Table,
    files: &Files,
    followed: &Followed,
    made: &Resolution,
    segments: &[(usize, &Segment, &Sealed)],
) -> Result<(Files, FileChanges)> {
    let mut after = files.clone();
    let mut changes = FileChanges::default();
    let nowhere = || SinkError::internal("a file that a commit deletes rows of is not known");
    let path_of = |number: u32| {
        let file = followed.index().files().get(number);
        file.map(|file| Arc::clone(&file.path)).ok_or_else(nowhere)
    };
    for number in &made.dropped {
        let file = after.remove(&path_of(*number)?).ok_or_else(nowhere)?;
        count(&mut changes.removed, &file, true);
    }
    let new = segments.iter().flat_map(|(_, _, sealed)| &sealed.files);
    let unneeded: BTreeSet<u32> = made.unneeded.iter().copied().collect();
    let mut names = Vec::new();
    for (number, (path, file)) in (0u32..).zip(new) {
        names.push(Arc::clone(path));
        if !unneeded.contains(&number) {
            let mut file = file.clone();
            file.sequence = table.now.0.last_sequence + 1;
            count(&mut changes.added, &file, true);
            after.insert(Arc::clone(path), file);
        }
    }
    for (number, deletes) in &made.deletes {
        let path = match number.checked_sub(made.first_new) {
            Some(new) => names.get(new as usize).cloned().ok_or_else(nowhere)?,
            None => path_of(*number)?,
        };
        let file = after.get_mut(&path).ok_or_else(nowhere)?;
        let before = file.clone();
        count(&mut changes.removed, &before, false);
        file.deletes = vec![DeleteFile {
            id: table.delete_id(),
            rows: Rc::new(deletes.vector.clone()),
        }];
        count(&mut changes.added, file, false);
    }
    Ok((after, changes))
}

fn count(counts: &mut FileCounts, file: &DataFile, with_data: bool) {
    if with_data {
        counts.data_files += 1;
        counts.records += file.rows.len() as u64;
    }
    let deletes = file.deletes.iter().map(|one| one.rows.len());
    counts.position_deletes += deletes.sum::<u64>();
}

/// C3.
fn check_index(followed: &Followed, view: &View) -> std::result::Result<(), Unbuilt> {
    let wrong = |what: String| Err(Unbuilt::Violation("C3", what));
    let (index, files, model) = (followed.index(), view.files(), view.model());
    for key in 0..16 {
        let found = index.get(number(key)).and_then(|at| {
            let path = &index.files().get(at.file)?.path;
            let is_live = !files.get(path)?.is_deleted(at.row as usize);
            is_live.then(|| (Arc::clone(path), at.row as usize))
        });
        let expected = super::table::newest(&files, key);
        if found != expected && !model.unsure.contains(&key) {
            return wrong(format!(
                "key {key} is at {expected:?}, the index says {found:?}"
            ));
        }
    }
    let dead = followed.dead();
    match dead <= 6.max(index.entries() as u64 / 4 + 1) {
        true => Ok(()),
        false => wrong(format!("{dead} of {} entries are dead", index.entries())),
    }
}

/// C1.
fn check_rows(files: &Files, model: &super::model::Model) -> std::result::Result<(), Unbuilt> {
    let mut rows: BTreeMap<Key, Vec<u32>> = BTreeMap::new();
    for (_, key, value) in files.values().flat_map(DataFile::live) {
        rows.entry(key).or_default().push(value);
    }
    let mut expected = model.rows.clone();
    for all in [&mut rows, &mut expected] {
        all.retain(|key, _| !model.unsure.contains(key));
        all.values_mut().for_each(|values| values.sort_unstable());
    }
    match rows == expected {
        true => Ok(()),
        false => Err(Unbuilt::Violation(
            "C1",
            format!("the rows are {rows:?}, the model has {expected:?}"),
        )),
    }
}

/// C2.
fn check_files(before: &Files, after: &Files) -> std::result::Result<(), Unbuilt> {
    for (path, file) in after {
        let ids = |file: &DataFile| file.deletes.iter().map(|one| one.id).collect::<Vec<_>>();
        let known = before.get(path);
        if known.is_some_and(|known| ids(known) == ids(file)) {
            continue;
        }
        let is_less = known.is_some_and(|known| {
            let mut rows = known.rows.iter().enumerate();
            rows.any(|(row, _)| known.is_deleted(row) && !file.is_deleted(row))
        });
        if file.deletes.len() > 1 || is_less || file.live().next().is_none() {
            let what = format!(
                "{path} with {} rows has {:?}",
                file.rows.len(),
                file.deletes
            );
            return Err(Unbuilt::Violation("C2", what));
        }
    }
    Ok(())
}

/// C6.
fn check_counts(
    before: &Files,
    after: &Files,
    counts: &frazil_core::index::resolve::Counts,
) -> std::result::Result<(), Unbuilt> {
    let rows = |files: &Files| files.values().flat_map(DataFile::live).count() as i64;
    let told = counts.inserted as i64 - counts.deleted as i64 - counts.emptied_rows as i64;
    match rows(after) - rows(before) == told {
        true => Ok(()),
        false => Err(Unbuilt::Violation(
            "C6",
            format!("{} rows became {}: {counts:?}", rows(before), rows(after)),
        )),
    }
}
