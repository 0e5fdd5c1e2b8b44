//! The catalog: tables as metadata objects that never change, and the requests that replace them.
//!
//! A request is applied as a whole or not at all: its uuid and the head of its branch must be those
//! of the table, and its sequence number must be above the table's. What the client hears of it is
//! another matter ([`crate::wire`]). State and resets are the real properties, written and read by
//! the code under test.

use std::cell::OnceCell;
use std::rc::Rc;

use frazil_core::commit::anchor::{Anchor, anchor_key};
use frazil_core::commit::state::WriterState;
use frazil_core::commit::view::TableView;
use frazil_core::{Result, SinkError};
use uuid::Uuid;

use crate::check::{Applied, File, Ledger};
use crate::names::{CANARY, Names, WID};
use crate::swarm::{BRANCHES, PARTITIONS, Plan, TABLES};
use crate::upserts::Upserts;

/// Snapshots that a table keeps; older ones are expired as they would be by its owner.
const SNAPSHOTS_KEPT: usize = 24;

/// A snapshot, by what matters here.
#[derive(Debug)]
pub(crate) struct Snapshot {
    id: i64,
    parent: Option<i64>,
    /// Commits of others in its history.
    foreign: u32,
    timestamp_ms: i64,
}

/// A table's metadata, as one load returns it.
#[derive(Debug, Clone)]
pub(crate) struct Meta {
    uuid: Uuid,
    last_sequence: i64,
    spec: i32,
    /// One bit for each spec that the table has.
    specs: u32,
    heads: [Option<Rc<Snapshot>>; 2],
    snapshots: Vec<Rc<Snapshot>>,
    properties: Vec<(Rc<str>, Rc<str>)>,
    updated_ms: i64,
    states: [OnceCell<Option<WriterState>>; 2],
}

/// What the machines see of a table.
#[derive(Debug, Clone)]
pub(crate) struct View(Rc<Meta>);

impl View {
    /// Returns the id of the partition spec that new files are written with.
    pub(crate) fn spec(&self) -> i32 {
        self.0.spec
    }

    fn property(&self, key: &str) -> Option<&str> {
        let mut all = self.0.properties.iter();
        all.find(|(known, _)| **known == *key)
            .map(|(_, value)| &**value)
    }

    /// Returns the resets that the table knows of.
    pub(crate) fn anchor(&self) -> Result<Anchor> {
        self.property(&anchor_key(WID))
            .map_or_else(|| Ok(Anchor::default()), Anchor::parse)
    }

    /// Returns the state as the last commit wrote it.
    pub(crate) fn stored_state(&self, branch: usize) -> Result<Option<WriterState>> {
        WriterState::read(|key| self.property(key), WID, BRANCHES[branch], self.0.uuid)
    }
}

impl TableView for View {
    fn uuid(&self) -> Uuid {
        self.0.uuid
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn writer_state(&self, _wid: &str, branch: &str) -> Result<Option<WriterState>> {
        let branch = usize::from(branch != BRANCHES[0]);
        if let Some(known) = self.0.states[branch].get() {
            return Ok(known.clone());
        }
        let stored = self.stored_state(branch)?;
        let state = self.anchor()?.effective(stored, self.0.uuid);
        Ok(self.0.states[branch].get_or_init(|| state).clone())
    }

    fn has_moved(&self, now: &Self) -> bool {
        self.0.uuid != now.0.uuid
            || self.0.last_sequence != now.0.last_sequence
            || self.0.spec != now.0.spec
    }

    fn is_in_history(&self, branch: &str, snapshot_id: i64) -> bool {
        let head = self.0.heads[usize::from(branch != BRANCHES[0])].as_ref();
        let mut next = head.map(|head| head.id);
        while let Some(id) = next {
            if id == snapshot_id {
                return true;
            }
            next = find(&self.0.snapshots, id).and_then(|snapshot| snapshot.parent);
        }
        false
    }

    fn has_snapshot(&self, snapshot_id: i64) -> bool {
        find(&self.0.snapshots, snapshot_id).is_some()
    }

    fn has_spec(&self, spec_id: i32) -> bool {
        self.0.specs & (1 << spec_id) != 0
    }
}

fn find(snapshots: &[Rc<Snapshot>], id: i64) -> Option<&Rc<Snapshot>> {
    snapshots.iter().rev().find(|snapshot| snapshot.id == id)
}

/// A commit on its way.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) table: usize,
    pub(crate) branch: usize,
    pub(crate) base: View,
    pub(crate) snapshot_id: i64,
    pub(crate) files: Vec<usize>,
    /// The state that the request sets, signed.
    pub(crate) state: WriterState,
    pub(crate) now_ms: i64,
}

/// Why the catalog does not apply a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The table is not what the request asserts.
    Changed,
    /// There is no such table.
    Missing,
}

/// A table and its past.
#[derive(Debug, Default)]
struct Slot {
    current: Option<View>,
    before: Option<View>,
    incarnation: u32,
    upserts: Upserts,
}

/// All tables.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    slots: [Slot; TABLES],
    foreign_ids: i64,
}

impl Catalog {
    /// Creates the tables of `plan`, empty.
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut catalog = Catalog::default();
        for table in 0..plan.tables.len() {
            catalog.create(table);
        }
        catalog
    }

    /// Returns the table as it is.
    pub(crate) fn load(&self, table: usize) -> Option<&View> {
        self.slots[table].current.as_ref()
    }

    /// Returns the table as a cache may still have it.
    pub(crate) fn load_stale(&self, table: usize) -> Option<&View> {
        let slot = &self.slots[table];
        slot.before.as_ref().or(slot.current.as_ref())
    }

    /// Creates a table, or another one of the same name.
    pub(crate) fn create(&mut self, table: usize) {
        let slot = &mut self.slots[table];
        slot.incarnation += 1;
        slot.upserts = Upserts::default();
        slot.before = None;
        slot.current = Some(View(Rc::new(Meta {
            uuid: Uuid::from_u128((table as u128 + 1) << 64 | u128::from(slot.incarnation)),
            last_sequence: 0,
            spec: 0,
            specs: 1,
            heads: [None, None],
            snapshots: Vec::new(),
            properties: Vec::new(),
            updated_ms: 0,
            states: Default::default(),
        })));
    }

    /// Drops the table.
    pub(crate) fn drop_table(&mut self, table: usize) {
        let slot = &mut self.slots[table];
        slot.current = None;
        slot.before = None;
    }

    fn change(&mut self, table: usize, change: impl FnOnce(&mut Meta) -> bool) -> bool {
        let slot = &mut self.slots[table];
        let Some(current) = &slot.current else {
            return false;
        };
        let mut meta = Meta::clone(&current.0);
        meta.states = Default::default();
        if !change(&mut meta) {
            return false;
        }
        slot.before = slot.current.take();
        slot.current = Some(View(Rc::new(meta)));
        true
    }

    /// Somebody else appends to a branch.
    pub(crate) fn foreign_append(&mut self, table: usize, branch: usize, now_ms: i64) -> bool {
        self.foreign_ids -= 1;
        let id = self.foreign_ids;
        self.change(table, |meta| {
            let parent = meta.heads[branch].clone().or_else(|| meta.heads[0].clone());
            let foreign = parent.as_ref().map_or(0, |parent| parent.foreign) + 1;
            meta.add(branch, id, parent.map(|parent| parent.id), foreign, now_ms);
            true
        })
    }

    /// Removes all snapshots but the heads of branches.
    pub(crate) fn expire(&mut self, table: usize) -> bool {
        self.change(table, |meta| {
            let before = meta.snapshots.len();
            let heads: Vec<i64> = meta.heads.iter().flatten().map(|head| head.id).collect();
            meta.snapshots.retain(|kept| heads.contains(&kept.id));
            meta.snapshots.len() < before
        })
    }

    /// Sets the branch back to the parent of its head, `steps` times.
    pub(crate) fn roll_back(&mut self, table: usize, branch: usize, steps: u64) -> bool {
        let rolled = self.change(table, |meta| {
            for _ in 0..steps {
                let head = meta.heads[branch].as_ref();
                let parent = head.and_then(|head| head.parent);
                let Some(parent) = parent.and_then(|id| find(&meta.snapshots, id)).cloned() else {
                    return false;
                };
                meta.heads[branch] = Some(parent);
            }
            true
        });
        if rolled {
            self.slots[table].upserts.give_up();
        }
        rolled
    }

    /// `CREATE OR REPLACE`: the branch `main` is gone, the rest of the metadata stays.
    pub(crate) fn replace(&mut self, table: usize) -> bool {
        let replaced = self.change(table, |meta| {
            meta.heads[0] = None;
            true
        });
        if replaced {
            self.slots[table].upserts.give_up();
        }
        replaced
    }

    /// Adds a partition spec, and removes the one before when `remove`.
    pub(crate) fn evolve_spec(&mut self, table: usize, remove: bool) -> bool {
        self.change(table, |meta| {
            if meta.spec >= 30 {
                return false;
            }
            let before = meta.spec;
            meta.spec += 1;
            meta.specs |= 1 << meta.spec;
            if remove {
                meta.specs &= !(1 << before);
            }
            true
        })
    }

    /// Sets the record of resets, and moves the branch where the writer has committed to it.
    pub(crate) fn set_anchor(
        &mut self,
        (table, branch): (usize, usize),
        anchor: &Anchor,
        now_ms: i64,
        ledger: &mut Ledger,
    ) -> Result<()> {
        let text = anchor.write()?;
        let known = self.slots[table].current.as_ref();
        let has_committed =
            known.is_some_and(|view| !matches!(view.stored_state(branch), Ok(None)));
        self.foreign_ids -= 1;
        let id = self.foreign_ids;
        let changed = self.change(table, |meta| {
            meta.set_property(&anchor_key(WID), &text);
            if has_committed {
                let parent = meta.heads[branch].clone().or_else(|| meta.heads[0].clone());
                let foreign = parent.as_ref().map_or(0, |parent| parent.foreign);
                meta.add(branch, id, parent.map(|parent| parent.id), foreign, now_ms);
            }
            true
        });
        if changed && has_committed {
            ledger.anchored(table, anchor.epoch());
        }
        Ok(())
    }

    /// Applies a request, or does not.
    pub(crate) fn apply(
        &mut self,
        plan: &Plan,
        names: &Names,
        (ledger, files): (&mut Ledger, &mut [File]),
        request: &Request,
    ) -> std::result::Result<View, Refusal> {
        let (table, branch) = (request.table, request.branch);
        let current = self.slots[table].current.clone().ok_or(Refusal::Missing)?;
        let head = |view: &View| view.0.heads[branch].as_ref().map(|head| head.id);
        if current.0.uuid != request.base.0.uuid
            || head(&current) != head(&request.base)
            || current.0.last_sequence > request.base.0.last_sequence
        {
            return Err(Refusal::Changed);
        }
        let foreign_before = current.0.heads[branch]
            .as_ref()
            .map_or(0, |head| head.foreign);
        let change = request.state.write(WID, BRANCHES[branch], 0).ok();
        let mut leak = false;
        self.change(table, |meta| {
            let base = &request.base.0;
            let parent = base.heads[branch].clone().or_else(|| base.heads[0].clone());
            let foreign = parent.as_ref().map_or(0, |parent| parent.foreign);
            let parent = parent.map(|parent| parent.id);
            meta.add(branch, request.snapshot_id, parent, foreign, request.now_ms);
            for (key, value) in change.iter().flat_map(|change| &change.set) {
                leak |= value.contains(CANARY);
                meta.set_property(key, value);
            }
            true
        });
        let slot = &mut self.slots[table];
        let view = slot.current.clone().ok_or(Refusal::Missing)?;
        if leak {
            ledger.violated("S26", format!("table {table}: a secret is in the state"));
        }
        let foreign_now = view.0.heads[branch].as_ref().map_or(0, |head| head.foreign);
        match view.stored_state(branch) {
            Ok(Some(state)) => {
                let applied = Applied {
                    table,
                    incarnation: slot.incarnation,
                    snapshot_id: request.snapshot_id,
                    state_snapshot_id: state.snapshot_id,
                    files: &request.files,
                    epoch: state.epoch,
                    bounds: bounds(names, &state),
                    valid_through: state.valid_through_ms(),
                    foreign: (foreign_before.max(foreign_now), foreign_now),
                };
                ledger.applied(plan, files, &applied);
            }
            _ => ledger.violated("S6", format!("table {table}: a snapshot without a state")),
        }
        let head = view.0.heads[branch].as_ref();
        if head.is_some_and(|head| head.timestamp_ms < current.0.updated_ms) {
            ledger.violated(
                "S20",
                format!("table {table}: a snapshot is older than the last"),
            );
        }
        if plan.tables[table].upsert {
            let sequence = view.0.last_sequence;
            slot.upserts
                .applied(plan, ledger, files, (table, sequence), &request.files);
        }
        Ok(view)
    }

    /// Compares change logs with current states, once nothing moves any more.
    pub(crate) fn check_pairs(&self, plan: &Plan, ledger: &mut Ledger) {
        for (table, slot) in self.slots.iter().enumerate().take(plan.tables.len()) {
            if plan.tables[table].upsert {
                slot.upserts.check_pairs(plan, ledger, table);
            }
        }
    }

    /// Returns the incarnation of the table.
    pub(crate) fn incarnation(&self, table: usize) -> u32 {
        self.slots[table].incarnation
    }
}

impl Meta {
    fn add(&mut self, branch: usize, id: i64, parent: Option<i64>, foreign: u32, now_ms: i64) {
        self.last_sequence += 1;
        // As the real plan does: a slow clock must not stop commits.
        self.updated_ms = self.updated_ms.max(now_ms);
        let snapshot = Rc::new(Snapshot {
            id,
            parent,
            foreign,
            timestamp_ms: self.updated_ms,
        });
        if self.snapshots.len() >= SNAPSHOTS_KEPT {
            let heads = &self.heads;
            let is_head =
                |snapshot: &Rc<Snapshot>| heads.iter().flatten().any(|head| head.id == snapshot.id);
            if let Some(oldest) = self.snapshots.iter().position(|kept| !is_head(kept)) {
                self.snapshots.remove(oldest);
            }
        }
        self.snapshots.push(Rc::clone(&snapshot));
        self.heads[branch] = Some(snapshot);
    }

    fn set_property(&mut self, key: &str, value: &str) {
        match self
            .properties
            .iter_mut()
            .find(|(known, _)| **known == *key)
        {
            Some((_, known)) => *known = value.into(),
            None => self.properties.push((key.into(), value.into())),
        }
    }
}

/// The error of a table that does not exist, as both catalogs of the engine give it.
pub(crate) fn not_found() -> SinkError {
    SinkError::config("TABLE_NOT_FOUND", "the table does not exist")
}

/// The offsets that `state` holds of all partitions.
fn bounds(names: &Names, state: &WriterState) -> [i64; PARTITIONS] {
    let mut bounds = [-1; PARTITIONS];
    for (bound, partition) in bounds.iter_mut().zip(&names.partitions) {
        *bound = state.bound(partition).unwrap_or(-1);
    }
    bounds
}
