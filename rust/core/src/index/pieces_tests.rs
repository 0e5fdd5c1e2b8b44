use super::*;
use crate::change::Order;
use crate::change::keyrun::{Effect, RunChange};
use crate::change::window::KnownOrders;
use crate::index::changed::{LocatedChanges, SegmentChanges};
use crate::index::files::IndexedFile;
use crate::index::resolve::Resolution;
use crate::index::{Index, KeyForm, Location};
use crate::offsets::{SourceRange, TopicPartition};

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A run that is read so many changes at a time.
struct Stored<'r> {
    run: &'r KeyRun,
    next: usize,
    step: usize,
}

impl MoreChanges for Stored<'_> {
    fn more(&mut self, run: &mut KeyRun) -> Result<bool> {
        let rest = self.run.changes().get(self.next..).unwrap_or_default();
        for change in rest.iter().take(self.step) {
            run.take(self.run, change)?;
        }
        let step = rest.len().min(self.step);
        self.next += step;
        Ok(step > 0)
    }
}

fn pieces<'r>(runs: &'r [KeyRun], step: usize) -> Pieces<Stored<'r>> {
    Pieces::new(runs.iter().map(|run| Stored { run, next: 0, step }))
}

/// A run of changes of some keys, each a row of the segment's one file or a delete.
fn random_run(random: &mut Random, count: u64) -> (KeyRun, u32) {
    let mut run = KeyRun::default();
    let mut rows = 0;
    for offset in 0..count as i64 {
        let key = KeyNumber(u128::from(random.below(9)) << 40);
        let effect = match random.below(9) {
            0 => Effect::Delete,
            1 if key.0 == 0 && random.below(4) == 0 => Effect::Truncate,
            _ => {
                rows += 1;
                let row = rows - 1;
                Effect::Upsert(Location { file: 0, row })
            }
        };
        let order = [0, 0, 0, 0, 0, 0, 0, 0, random.below(6) as u8];
        let order = (random.below(3) > 0).then_some(Order::of(&order));
        let change = RunChange::new(key, effect, (0, offset));
        run.push(&change, order).unwrap();
    }
    run.sort();
    (run, rows)
}

/// The same runs, with the orders where changes that are taken one after the other have them.
fn taken_anew(runs: &[KeyRun]) -> Vec<KeyRun> {
    let anew = runs.iter().map(|run| {
        let mut anew = KeyRun::default();
        for change in run.changes() {
            anew.take(run, change).unwrap();
        }
        anew
    });
    anew.collect()
}

#[test]
fn pieces_have_all_changes_and_part_no_key() {
    let mut random = Random(7);
    for case in 0..200 {
        let runs: Vec<KeyRun> = (0..random.below(4))
            .map(|_| {
                let count = random.below(20);
                random_run(&mut random, count).0
            })
            .collect();
        let mut pieces = pieces(&runs, 1 + case % 5);
        let mut whole = vec![KeyRun::default(); runs.len()];
        let mut last = None;
        while let Some(piece) = pieces.next_piece().unwrap() {
            let keys = || {
                piece
                    .iter()
                    .flat_map(KeyRun::changes)
                    .map(|change| change.key)
            };
            assert!(keys().min() > last && keys().count() > 0);
            last = keys().max();
            for (whole, part) in whole.iter_mut().zip(&piece) {
                for change in part.changes() {
                    whole.take(part, change).unwrap();
                }
            }
        }
        assert_eq!(whole, taken_anew(&runs), "case {case}");
        assert!(pieces.next_piece().unwrap().is_none());
    }
}

#[test]
fn the_number_of_pieces_does_not_grow_with_the_number_of_runs() {
    const CHANGES: usize = 6_400;
    const STEP: usize = 64;
    let mut random = Random(3);
    let runs = (0..32).map(|_| {
        let mut run = KeyRun::default();
        for offset in 0..CHANGES as i64 {
            let key = KeyNumber(u128::from(random.below(1 << 30)) + 1);
            let change = RunChange::new(key, Effect::Delete, (0, offset));
            run.push(&change, None).unwrap();
        }
        run.sort();
        run
    });
    let runs: Vec<KeyRun> = runs.collect();
    let (mut pieces, mut count) = (pieces(&runs, STEP), 0);
    while pieces.next_piece().unwrap().is_some() {
        count += 1;
    }
    // Each has a step of every run at best.
    assert!(count < 4 * CHANGES / STEP, "{count} pieces");
}

#[test]
fn what_is_held_does_not_grow_with_the_number_of_changes() {
    let mut run = KeyRun::default();
    for key in 0..100_000u32 {
        let change = RunChange::new(KeyNumber(key.into()), Effect::Delete, (0, key.into()));
        run.push(&change, None).unwrap();
    }
    let whole = run.memory_bytes();
    let runs = [run.clone(), run];
    let mut pieces = pieces(&runs, 100);
    let mut most = 0;
    while let Some(piece) = pieces.next_piece().unwrap() {
        let piece = piece.iter().map(KeyRun::memory_bytes).sum::<usize>();
        most = most.max(piece + pieces.memory_bytes());
    }
    assert!(most > 0 && most < whole / 100, "{most} of {whole}");
}

/// Resolves the changes of `runs`, so many of each at a time, on an index with some keys.
fn resolved(
    index: &Index,
    known: &KnownOrders,
    runs: &[KeyRun],
    files: &[Vec<IndexedFile>],
    step: usize,
) -> (Resolution, crate::index::changed::Noted) {
    let ranges = [SourceRange {
        partition: TopicPartition::new("t", 0),
        start: Some(0),
        end: 100,
        lowest: Some(0),
        timestamp_max_ms: None,
    }];
    let mut located = LocatedChanges::begin(index, files.iter().flatten().cloned().collect());
    let mut pieces = pieces(runs, step);
    while let Some(piece) = pieces.next_piece().unwrap() {
        let parts = piece.iter().zip(files);
        let parts: Vec<_> = parts
            .map(|(run, files)| SegmentChanges {
                run,
                ranges: &ranges,
                files,
            })
            .collect();
        located.add(index, known, &parts).unwrap();
    }
    located.resolve(index, |_| None).unwrap()
}

// Promise: A commit of many changes holds a piece of them at a time, and does the same as if it held them all.
#[test]
fn changes_in_pieces_do_what_they_do_at_once() {
    let mut random = Random(11);
    for case in 0..300 {
        let mut index = Index::new(KeyForm::Exact);
        let file = index.add_file(IndexedFile::new("old", 9).unwrap()).unwrap();
        let keys = (0..9u32).step_by(1 + random.below(3) as usize).map(|row| {
            let key = KeyNumber(u128::from(row) << 40);
            (key, Some(Location { file, row }))
        });
        index.put(&keys.collect::<Vec<_>>()).unwrap();
        let mut known = KnownOrders::new(1_000, 1 << 20);
        for key in 0..random.below(6) {
            let order = [0, 0, 0, 0, 0, 0, 0, 0, random.below(6) as u8];
            known.note(KeyNumber(u128::from(key) << 40), Order::of(&order), 0);
        }
        let mut runs = Vec::new();
        let mut files = Vec::new();
        for number in 0..1 + random.below(3) {
            let count = 1 + random.below(12);
            let (run, rows) = random_run(&mut random, count);
            let file = IndexedFile::new(format!("new-{number}"), rows.into()).unwrap();
            files.push(if rows > 0 { vec![file] } else { vec![] });
            runs.push(run);
        }
        let (whole, noted) = resolved(&index, &known, &runs, &files, 100);
        for step in 1..4 {
            let (made, orders) = resolved(&index, &known, &runs, &files, step);
            let all = |made: &Resolution| made.delta.changes.concat();
            assert_eq!(all(&made), all(&whole), "case {case}");
            assert_eq!(made.deletes, whole.deletes, "case {case}");
            assert_eq!(made.counts, whole.counts, "case {case}");
            assert_eq!(
                (&made.dropped, &made.unneeded),
                (&whole.dropped, &whole.unneeded)
            );
            assert_eq!(orders, noted, "case {case}");
        }
    }
}
