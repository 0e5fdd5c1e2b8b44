//! One run: whose turn it is, and what goes wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use frazil_core::SinkError;
use frazil_core::commit::action::{Action, Answer, CommitLimits, CommitSetup, Submission};
use frazil_core::commit::anchor::ResetOffsets;
use frazil_core::commit::attempt::CommitMachine;
use frazil_core::commit::location::StateLocation;
use frazil_core::commit::outcome::SegmentOutcome;
use frazil_core::commit::validate::RejectReason;
use frazil_core::commit::view::TableView;
use frazil_core::control::segment::{KeyRunRef, Segment};
use frazil_core::index::Location;
use frazil_core::offsets::{SourceRange, TopicPartition};
use uuid::Uuid;

use super::owner::{Owner, Sealed, Unbuilt, WINDOW_MS, run_of};
use super::source::{Key, Record, Source, What};
use super::table::{DataFile, Request, Table, View, foreign};
use crate::hub::Dice;
use crate::names::{Names, WID, identity, session_id, session_index};
use crate::rng::Rng;

/// What came of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) violation: Option<Violation>,
    pub(crate) commits: u64,
    pub(crate) changes: u64,
    /// Of all that happened, in its order.
    hash: u64,
}

/// A rule that was broken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) rule: &'static str,
    pub(crate) what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.rule, self.what)
    }
}

/// What may happen in a run, of 1,024 steps.
#[derive(Debug)]
struct Chances {
    foreign: u32,
    crash: u32,
    switch: u32,
    rebalance: u32,
    reset: u32,
    roll_back: u32,
    expire: u32,
    time: u32,
    /// Of 1,024 loads, reads of keys and requests.
    stale: u32,
    unread: u32,
    unclear: u32,
}

impl Chances {
    fn new(rng: &mut Rng) -> Self {
        let mut of = |chance: u32| if rng.chance(512) { chance } else { 0 };
        Chances {
            foreign: of(90),
            crash: of(12),
            switch: of(12),
            rebalance: of(30),
            reset: of(15),
            roll_back: of(12),
            expire: of(20),
            time: of(20),
            stale: of(60),
            unread: of(200),
            unclear: of(300),
        }
    }
}

/// A session of a task.
#[derive(Debug)]
struct Session {
    id: Uuid,
    epoch: u64,
    /// The next offset of each of its partitions.
    next: BTreeMap<usize, i64>,
    seq: u64,
    unacked: BTreeSet<u64>,
}

struct World {
    rng: Rng,
    names: Names,
    chances: Chances,
    is_calm: bool,
    table: Table,
    source: Source,
    owners: Vec<Owner>,
    active: usize,
    sessions: Vec<Session>,
    sessions_made: usize,
    queue: Vec<Segment>,
    sealed: BTreeMap<(Uuid, u64), Sealed>,
    /// Requests that the catalog may still get.
    late: Vec<Request>,
    now_ms: i64,
    epoch: u64,
    /// Truncations that went to the dead letters.
    refused: BTreeSet<(usize, i64)>,
    /// Keys that others have changed.
    touched: BTreeSet<Key>,
    /// A process has forgotten orders, as it may.
    is_forgetful: bool,
    was_rolled_back: bool,
    is_traced: bool,
    ended: Ended,
}

/// Says what happens, if somebody wants to know it, and counts it in.
macro_rules! tell {
    ($world:expr, $($text:tt)*) => {{
        let text = format!($($text)*);
        $world.note(&text);
    }};
}

/// Runs one seed.
pub(crate) fn run(seed: u64, is_traced: bool) -> Ended {
    let mut rng = Rng::new(seed ^ 0xcdc);
    let source = Source::new(&mut rng);
    let (chances, has_vectors) = (Chances::new(&mut rng), rng.chance(512));
    let steps = rng.between(40, 260);
    let mut world = World {
        rng,
        names: Names::new(),
        chances,
        is_calm: false,
        table: Table::new(has_vectors),
        source,
        owners: vec![Owner::new(1), Owner::new(2)],
        active: 0,
        sessions: Vec::new(),
        sessions_made: 0,
        queue: Vec::new(),
        sealed: BTreeMap::new(),
        late: Vec::new(),
        now_ms: 0,
        epoch: 0,
        refused: BTreeSet::new(),
        touched: BTreeSet::new(),
        is_forgetful: false,
        was_rolled_back: false,
        is_traced,
        ended: Ended::default(),
    };
    world.rebalance();
    for _ in 0..steps {
        if world.ended.violation.is_some() {
            return world.ended;
        }
        world.step();
    }
    world.end();
    world.ended
}

impl World {
    fn note(&mut self, text: &str) {
        if self.is_traced {
            println!("{:>7} {text}", self.now_ms);
        }
        for byte in text.bytes() {
            self.ended.hash = (self.ended.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn violated(&mut self, rule: &'static str, what: String) {
        tell!(self, "{rule} is broken: {what}");
        self.ended.violation.get_or_insert(Violation { rule, what });
    }

    fn happens(&mut self, chance: impl Fn(&Chances) -> u32) -> bool {
        !self.is_calm && self.rng.chance(chance(&self.chances))
    }

    fn step(&mut self) {
        self.now_ms += self.rng.below(200) as i64;
        self.trouble();
        match self.rng.below(10) {
            0..4 => self.source.go_on(&mut self.rng),
            4..7 if !self.sessions.is_empty() => {
                let session = self.rng.index(self.sessions.len());
                self.seal(session);
            }
            _ => self.commit(),
        }
    }

    fn trouble(&mut self) {
        if self.happens(|of| of.foreign) {
            self.foreign();
        }
        if self.happens(|of| of.rebalance) {
            self.rebalance();
        }
        if self.happens(|of| of.crash) {
            tell!(self, "process {} dies", self.active);
            let hub = self.rng.between(10, 1_000_000) as u32;
            self.owners[self.active] = Owner::new(hub);
            self.is_forgetful = true;
            self.rebalance();
        }
        if self.happens(|of| of.switch) {
            if self.rng.chance(700) {
                self.owners[self.active].let_go();
            }
            self.active = 1 - self.active;
            self.is_forgetful = true;
            self.owners
                .iter_mut()
                .for_each(|owner| owner.must_know.clear());
            tell!(self, "process {} commits from now on", self.active);
        }
        if self.happens(|of| of.reset) {
            self.reset();
        }
        if self.happens(|of| of.roll_back) {
            let steps = self.rng.between(1, 3);
            if self.table.roll_back(steps) {
                (self.was_rolled_back, self.is_forgetful) = (true, true);
                // Of rows that are older than what went it forgets the orders too.
                self.owners
                    .iter_mut()
                    .for_each(|owner| owner.must_know.clear());
                tell!(
                    self,
                    "rolled back by {steps} to {:?}",
                    self.table.now.0.head
                );
            }
        }
        if self.happens(|of| of.expire) {
            let kept = self.rng.between(1, 4) as usize;
            let before = self.table.now.clone();
            self.table.expire(kept);
            for owner in &mut self.owners {
                if !owner.can_tell(&before, &self.table.now) {
                    owner.must_know.clear();
                    self.is_forgetful = true;
                }
            }
            tell!(self, "expired but for {kept}");
        }
        if self.happens(|of| of.time) {
            self.now_ms += self.rng.below(2 * WINDOW_MS as u64) as i64;
            self.is_forgetful = true;
        }
        self.land();
    }

    /// A request that was given up arrives.
    fn land(&mut self) {
        if !self.late.is_empty() && self.rng.chance(300) {
            let request = self.late.swap_remove(self.rng.index(self.late.len()));
            if self.table.apply(&request) {
                // Its process may have given it up.
                self.is_forgetful = true;
                tell!(self, "late: snapshot {}", request.snapshot_id);
            }
        }
    }

    fn foreign(&mut self) {
        if let Some(keys) = foreign(&mut self.table, &mut self.rng) {
            tell!(self, "others change {keys:?}: {:?}", self.table.now.0.head);
            self.touched.extend(keys);
        }
    }

    /// New sessions read the partitions, from where the table stands.
    fn rebalance(&mut self) {
        self.queue.clear();
        self.sealed.clear();
        self.sessions.clear();
        let count = self.rng.index(self.source.partitions()) + 1;
        for _ in 0..count {
            self.sessions.push(Session {
                id: session_id(self.sessions_made),
                epoch: self.epoch,
                next: BTreeMap::new(),
                seq: 0,
                unacked: BTreeSet::new(),
            });
            self.sessions_made += 1;
        }
        let state = self.table.now.writer_state(WID, "main").ok().flatten();
        for partition in 0..self.source.partitions() {
            let place = self.rng.index(count);
            let name = &self.names.partitions[partition];
            let bound = state.as_ref().and_then(|state| state.bound(name));
            let next = bound.unwrap_or(0);
            self.sessions[place].next.insert(partition, next);
        }
        tell!(self, "{count} new sessions");
    }

    /// The offsets are reset: everything, or some partitions to somewhere.
    fn reset(&mut self) {
        let mut asked: Vec<(TopicPartition, Option<i64>)> = Vec::new();
        if self.rng.chance(600) && !self.is_calm {
            for partition in 0..self.source.partitions() {
                let end = self.source.log(partition).len() as u64;
                let to = self.rng.below(end + 1) as i64;
                asked.push((self.names.partitions[partition].clone(), Some(to)));
            }
        }
        tell!(self, "reset to {asked:?}");
        let Ok(offsets) = ResetOffsets::new(asked) else {
            return self.violated("C8", "a reset is refused".to_owned());
        };
        let mut anchor = self.table.now.0.anchor.clone();
        anchor.append(offsets, self.now_ms, self.epoch);
        self.epoch = anchor.epoch();
        self.table.reset(anchor);
        self.rebalance();
    }

    /// A session reads some records and hands them over.
    fn seal(&mut self, at: usize) {
        let mut records: Vec<(Record, usize, i64)> = Vec::new();
        let session = &mut self.sessions[at];
        let partitions: Vec<usize> = session.next.keys().copied().collect();
        if partitions.is_empty() {
            return;
        }
        let begun = session.next.clone();
        for _ in 0..self.rng.between(1, 8) {
            let partition = self.rng.pick(&partitions);
            let offset = session.next[&partition];
            let Some(record) = self.source.log(partition).get(offset as usize) else {
                continue;
            };
            session.next.insert(partition, offset + 1);
            if !self.refused.contains(&(partition, offset)) {
                records.push((record.clone(), partition, offset));
            }
        }
        if records.is_empty() {
            return;
        }
        let ranges: Vec<SourceRange> = begun
            .iter()
            .filter(|(partition, start)| session.next[*partition] > **start)
            .map(|(partition, start)| SourceRange {
                partition: self.names.partitions[*partition].clone(),
                start: Some(*start),
                end: session.next[partition],
                lowest: records
                    .iter()
                    .filter(|one| one.1 == *partition)
                    .map(|one| one.2)
                    .min(),
                timestamp_max_ms: None,
            })
            .collect();
        let seq = session.seq;
        session.seq += 1;
        session.unacked.insert(seq);
        let (id, epoch) = (session.id, session.epoch);
        let first_unacked = session.unacked.first().copied().unwrap_or(seq);
        self.hand_over((id, seq), (epoch, first_unacked), ranges, records);
    }

    fn hand_over(
        &mut self,
        (session, seq): (Uuid, u64),
        (epoch, first_unacked): (u64, u64),
        ranges: Vec<SourceRange>,
        records: Vec<(Record, usize, i64)>,
    ) {
        let mut open: BTreeMap<u8, usize> = BTreeMap::new();
        let mut files: Vec<(u8, Vec<(Key, u32)>)> = Vec::new();
        let rows_max = self.rng.between(1, 4) as usize;
        let mut at = Vec::with_capacity(records.len());
        for (record, ..) in &records {
            let What::Put(value, part) = record.what else {
                at.push(None);
                continue;
            };
            let full = open
                .get(&part)
                .is_none_or(|file| files[*file].1.len() >= rows_max);
            if full {
                open.insert(part, files.len());
                files.push((part, Vec::new()));
            }
            let file = open[&part];
            at.push(Some(Location {
                file: file as u32,
                row: files[file].1.len() as u32,
            }));
            files[file].1.push((record.key, value));
        }
        let places = (0u32..).zip(&ranges).map(|(place, range)| {
            let partition = self.names.partition(&range.partition);
            (partition.unwrap_or(0), place)
        });
        let run = match run_of(&records, &places.collect(), &at) {
            Ok(run) => run,
            Err(error) => return self.violated("C8", error.report()),
        };
        let files = files.into_iter().map(|(_, rows)| {
            let file = DataFile {
                rows: Rc::new(rows),
                sequence: 0,
                deletes: Vec::new(),
            };
            (self.table.name("own"), file)
        });
        let files: Vec<_> = files.collect();
        tell!(self, "{} seals {seq}: {records:?}", session_index(session));
        let rows = records.len() as u64;
        self.queue.push(Segment {
            session,
            seq,
            first_unacked,
            epoch,
            table: self.names.tables[0].clone(),
            table_uuid: self.table.now.uuid(),
            branch: "main".to_owned(),
            ranges,
            watermarks: BTreeMap::new(),
            topic_ids: BTreeMap::new(),
            manifests: Vec::new(),
            key_run: Some(KeyRunRef {
                path: format!("{session}-{seq}"),
                len: 1,
                sha256: [0; 32],
                rows,
            }),
            rows,
            bytes: rows,
        });
        self.sealed.insert(
            (session, seq),
            Sealed {
                run,
                files,
                records,
            },
        );
    }

    /// The active process commits what waits.
    fn commit(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        let count = self.rng.index(self.queue.len()) + 1;
        let segments: Vec<Segment> = self.queue[..count].to_vec();
        let setup = CommitSetup {
            table: self.names.tables[0].clone(),
            identity: identity(self.owners[self.active].hub, 0),
            limits: CommitLimits {
                state_location: StateLocation::Property,
                unbuilt_max: Some(3),
                ..CommitLimits::default()
            },
        };
        let dice = Dice(Rng::new(self.rng.bits()));
        let remembered = self.rng.chance(400).then(|| self.table.now.clone());
        let mut machine =
            CommitMachine::new(setup, segments.clone(), dice).with_remembered(remembered);
        let mut action = machine.start();
        loop {
            if self.ended.violation.is_some() {
                return;
            }
            action = match action {
                Action::Load if self.happens(|of| of.stale) => {
                    // A commit whose answer was lost does not show here, and passes for another's then.
                    self.is_forgetful = true;
                    self.owners[self.active].must_know.clear();
                    machine.loaded(self.table.before.clone())
                }
                Action::Load => machine.loaded(self.table.now.clone()),
                Action::CheckManifests(all) => {
                    machine.checked(all.into_iter().map(|index| (index, Ok(None))).collect())
                }
                Action::Sleep { ms } => {
                    self.now_ms += ms as i64 / 100;
                    self.land();
                    if self.happens(|of| of.unclear / 8) {
                        machine.cancelled()
                    } else {
                        machine.slept()
                    }
                }
                Action::Submit(submission) => machine.answered(self.submit(&segments, &submission)),
                Action::Done(outcomes) => return self.done(&segments, outcomes),
            };
        }
    }

    fn submit(&mut self, segments: &[Segment], submission: &Submission<View>) -> Answer<View> {
        let parts: Vec<(usize, &Segment, &Sealed)> = submission
            .batch
            .iter()
            .filter_map(|index| {
                let segment = &segments[*index];
                let sealed = self.sealed.get(&(segment.session, segment.seq))?;
                Some((*index, segment, sealed))
            })
            .collect();
        let fails = !self.is_calm && self.rng.chance(self.chances.unread);
        let made = self.owners[self.active].build(
            (&mut self.table, &mut self.rng),
            submission,
            &parts,
            (self.now_ms, fails),
        );
        let request = match made {
            Ok(request) => request,
            Err(Unbuilt::Unusable(index, reason)) => return Answer::Unusable(index, reason),
            Err(Unbuilt::Violation(rule, what)) => {
                self.violated(rule, what);
                return Answer::NotSent(SinkError::internal("a rule is broken"));
            }
            Err(Unbuilt::Failed(error)) => {
                if error.code() == "INTERNAL" {
                    self.violated("C8", error.report());
                }
                return Answer::NotSent(error);
            }
        };
        if self.happens(|of| of.foreign) {
            self.foreign();
        }
        self.send(request)
    }

    fn send(&mut self, request: Request) -> Answer<View> {
        let unclear = || SinkError::retriable("CATALOG_UNREACHABLE", "no answer");
        if self.happens(|of| of.unclear) {
            match self.rng.below(3) {
                0 => _ = self.table.apply(&request),
                1 => self.late.push(request),
                _ => {}
            }
            tell!(self, "no answer; the head is {:?}", self.table.now.0.head);
            return Answer::Unknown(unclear());
        }
        if !self.table.apply(&request) {
            return Answer::Conflict(SinkError::retriable("COMMIT_CONFLICT", "another was first"));
        }
        self.ended.commits += 1;
        tell!(
            self,
            "snapshot {} with {:?}",
            request.snapshot_id,
            request.model.rows
        );
        let view = self.table.now.clone();
        if let Err(error) = self.owners[self.active].settle(&view, self.now_ms) {
            self.violated("C8", error.report());
        }
        Answer::Committed(view)
    }

    fn done(&mut self, segments: &[Segment], outcomes: Vec<(usize, SegmentOutcome)>) {
        let mut ends = false;
        for (index, outcome) in outcomes {
            let segment = &segments[index];
            let place = (segment.session, segment.seq);
            tell!(self, "{} {}: {outcome:?}", session_index(place.0), place.1);
            match outcome {
                SegmentOutcome::Durable { .. } | SegmentOutcome::Covered => {
                    self.queue.retain(|one| (one.session, one.seq) != place);
                    for session in self.sessions.iter_mut().filter(|one| one.id == place.0) {
                        session.unacked.remove(&place.1);
                    }
                    let sealed = self.sealed.remove(&place);
                    self.ended.changes += sealed.map_or(0, |sealed| sealed.records.len() as u64);
                }
                SegmentOutcome::Rejected(reason) => {
                    ends = true;
                    self.rejected(place, &reason);
                }
                SegmentOutcome::Fenced { .. } => ends = true,
                SegmentOutcome::Blocked(error) => {
                    // It is tried again. Given up, it may have been applied.
                    if error.code() == "INTERNAL" {
                        self.violated("C8", error.report());
                    }
                    ends |= self.rng.chance(300);
                }
            }
        }
        if ends {
            self.rebalance();
        }
    }

    fn rejected(&mut self, place: (Uuid, u64), reason: &RejectReason) {
        match reason {
            RejectReason::TruncationUnsure { .. } => {
                let sealed = self.sealed.get(&place);
                let records = sealed.iter().flat_map(|sealed| &sealed.records);
                let truncations = records.filter(|one| one.0.what == What::Truncate);
                let truncations: Vec<_> = truncations.map(|one| (one.1, one.2)).collect();
                self.refused.extend(truncations);
                self.source.is_told = false;
            }
            RejectReason::Overlap { .. } | RejectReason::SessionRejected => {}
            other => self.violated("C8", format!("rejected: {other}")),
        }
    }

    /// Everything comes to rest, and the table is compared with the source.
    fn end(&mut self) {
        self.is_calm = true;
        self.late.clear();
        self.source.release();
        if self.was_rolled_back {
            self.reset();
        } else {
            self.rebalance();
        }
        for _ in 0..4_000 {
            if self.ended.violation.is_some() {
                return;
            }
            let is_read = self.sessions.iter().all(|session| {
                let mut next = session.next.iter();
                next.all(|(partition, next)| *next >= self.source.log(*partition).len() as i64)
            });
            if is_read && self.queue.is_empty() {
                return self.compare();
            }
            for session in 0..self.sessions.len() {
                self.seal(session);
            }
            self.commit();
        }
        self.violated("C8", "it comes to no end".to_owned());
    }

    /// C7.
    fn compare(&mut self) {
        let is_told = self.source.is_told && (self.source.is_in_order || !self.is_forgetful);
        if !is_told {
            return;
        }
        let mut rows: BTreeMap<Key, Vec<u32>> = BTreeMap::new();
        for file in self.table.now.files().values() {
            for (_, key, value) in file.live() {
                rows.entry(key).or_default().push(value);
            }
        }
        rows.retain(|key, _| !self.touched.contains(key));
        let expected: BTreeMap<Key, Vec<u32>> = self
            .source
            .rows
            .iter()
            .filter(|(key, _)| !self.touched.contains(key))
            .map(|(key, value)| (*key, vec![*value]))
            .collect();
        if rows != expected {
            let what = format!("the table has {rows:?}, the source {expected:?}");
            self.violated("C7", what);
        }
    }
}
