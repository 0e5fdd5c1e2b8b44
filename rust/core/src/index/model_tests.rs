//! Random streams of changes against a model: a table is its files, their keys and their vectors.

use std::collections::BTreeMap;

use proptest::prelude::*;
use uuid::Uuid;

use super::catch_up::CatchUp;
use super::files::IndexedFile;
use super::resolve::{Change, KeyChange, Resolution, locate};
use super::table::{Moves, Span};
use super::test_support::Random;
use super::*;
use crate::delete::DeletionVector;

const KEYS: u32 = 60;

/// A table as a reader sees it: the key and the value of each row of each file.
#[derive(Debug, Clone, Default)]
struct Table {
    files: BTreeMap<String, Vec<(u32, u32)>>,
    vectors: BTreeMap<String, DeletionVector>,
    named: u32,
}

impl Table {
    fn name(&mut self) -> String {
        self.named += 1;
        format!("s3://b/t/data/{}.parquet", self.named)
    }

    fn rows(&self) -> BTreeMap<u32, u32> {
        let mut rows = BTreeMap::new();
        for (name, file) in &self.files {
            for (row, (key, value)) in file.iter().enumerate() {
                if !self.is_deleted(name, row) {
                    assert_eq!(rows.insert(*key, *value), None, "key {key} is there twice");
                }
            }
        }
        rows
    }

    fn is_deleted(&self, name: &str, row: usize) -> bool {
        let vector = self.vectors.get(name);
        vector.is_some_and(|vector| vector.contains(row as u64))
    }

    /// Does what a commit says, as Iceberg would.
    fn commit(&mut self, index: &Index, new: Vec<(String, Vec<(u32, u32)>)>, made: &Resolution) {
        let name_of = |number: u32| match number.checked_sub(made.first_new) {
            Some(new_number) => new[new_number as usize].0.clone(),
            None => index.files().get(number).unwrap().path.to_string(),
        };
        for number in &made.dropped {
            self.files.remove(&name_of(*number)).unwrap();
            self.vectors.remove(&name_of(*number));
        }
        for (number, deletes) in &made.deletes {
            let name = name_of(*number);
            let before = self.vectors.get(&name).map_or(0, DeletionVector::len);
            assert_eq!(deletes.vector.len(), before + deletes.added);
            assert!(deletes.added > 0, "a vector that says nothing new");
            self.vectors.insert(name, deletes.vector.clone());
        }
        for (number, (name, rows)) in new.into_iter().enumerate() {
            match made.unneeded.contains(&(number as u32)) {
                true => assert_eq!(self.vectors.get(&name), None),
                false => assert_eq!(self.files.insert(name, rows), None),
            }
        }
        for (name, vector) in &self.vectors {
            let rows = self.files[name].len() as u64;
            assert!(vector.len() < rows, "a file without rows is dropped");
        }
    }

    fn vectors_of<'t>(
        &'t self,
        numbers: &'t BTreeMap<u32, String>,
    ) -> impl Fn(u32) -> Option<&'t DeletionVector> {
        move |number| self.vectors.get(numbers.get(&number)?)
    }
}

struct World {
    hasher: KeyHasher,
    table: Table,
    index: Index,
    model: BTreeMap<u32, u32>,
    value: u32,
}

fn names(index: &Index) -> BTreeMap<u32, String> {
    let files = index.files().iter();
    files
        .map(|(number, file)| (number, file.path.to_string()))
        .collect()
}

impl World {
    fn new(form: KeyForm) -> World {
        World {
            hasher: KeyHasher::new(form, Uuid::from_u128(3)),
            table: Table::default(),
            index: Index::new(form).with_shard_keys_max(20),
            model: BTreeMap::new(),
            value: 0,
        }
    }

    fn key(&self, key: u32) -> KeyNumber {
        self.hasher.number(&key.to_be_bytes()).unwrap()
    }

    /// Writes random changes as `segments` segments of one or two files, and commits them; a commit
    /// that is lost is resolved again.
    fn commit(&mut self, rng: &mut Random, segments: u32) {
        let mut new = Vec::new();
        let mut runs: Vec<Vec<KeyChange<()>>> = Vec::new();
        for _ in 0..segments {
            let mut run = Vec::new();
            for _ in 0..1 + rng.next_u32() % 2 {
                let (number, name) = (new.len() as u32, self.table.name());
                let mut rows = Vec::new();
                for _ in 0..rng.next_u32() % 12 {
                    let key = rng.next_u32() % KEYS;
                    let change = match rng.next_u32() % 4 {
                        0 => {
                            self.model.remove(&key);
                            Change::Delete
                        }
                        _ => {
                            self.value += 1;
                            self.model.insert(key, self.value);
                            rows.push((key, self.value));
                            let row = rows.len() as u32 - 1;
                            Change::Upsert(Location { file: number, row })
                        }
                    };
                    let key = self.key(key);
                    run.push(KeyChange {
                        key,
                        order: (),
                        change,
                    });
                }
                if !rows.is_empty() {
                    new.push((name, rows));
                }
            }
            run.sort_by_key(|change| change.key);
            runs.push(run);
        }
        let runs: Vec<&[KeyChange<()>]> = runs.iter().map(Vec::as_slice).collect();
        let files = || {
            let files = new.iter();
            files.map(|(name, rows)| IndexedFile::new(&**name, rows.len() as u64).unwrap())
        };
        for attempt in 0..2 {
            let located = locate(
                &self.index,
                files().collect(),
                &runs,
                &|(): &(), (): &()| false,
                |_| (),
            )
            .unwrap();
            let named = names(&self.index);
            let made = located
                .resolve(&self.index, self.table.vectors_of(&named))
                .unwrap();
            if attempt == 0 && rng.next_u32().is_multiple_of(2) {
                // The commit is lost: its delta is dropped, and others may have won.
                drop(made);
                if rng.next_u32().is_multiple_of(2) {
                    self.foreign_delete(rng, &runs);
                }
                continue;
            }
            self.table.commit(&self.index, new.clone(), &made);
            self.index.apply(made.delta).unwrap();
            break;
        }
        assert_eq!(self.table.rows(), self.model);
    }

    /// Another writer deletes a row, by its position; changes that wait come after it.
    fn foreign_delete(&mut self, rng: &mut Random, waiting: &[&[KeyChange<()>]]) {
        let Some((name, rows)) = self.table.files.iter().nth(rng.next_u32() as usize % 7) else {
            return;
        };
        let (name, row) = (name.clone(), rng.next_u32() as usize % rows.len());
        let key = rows[row].0;
        let gone = self.table.vectors.get(&name).map_or(0, DeletionVector::len);
        if self.table.is_deleted(&name, row) || gone + 1 == rows.len() as u64 {
            return;
        }
        let number = self.key(key);
        let is_waiting = waiting
            .iter()
            .any(|run| run.iter().any(|change| change.key == number));
        if !is_waiting {
            self.model.remove(&key);
        }
        self.table
            .vectors
            .entry(name)
            .or_default()
            .insert(row as u64)
            .unwrap();
    }

    /// Another writer appends a file, updates a key by position and row, or compacts two files.
    fn foreign(&mut self, rng: &mut Random) {
        let key = rng.next_u32() % KEYS;
        self.value += 1;
        let live = self.table.files.iter().find_map(|(name, rows)| {
            let row = (0..rows.len())
                .find(|row| rows[*row].0 == key && !self.table.is_deleted(name, *row))?;
            Some((name.clone(), row, rows.len() as u64))
        });
        if let Some((name, row, rows)) = live {
            let vector = self.table.vectors.entry(name.clone()).or_default();
            vector.insert(row as u64).unwrap();
            if vector.len() == rows {
                self.table.files.remove(&name);
                self.table.vectors.remove(&name);
            }
        }
        let name = self.table.name();
        self.table.files.insert(name, vec![(key, self.value)]);
        self.model.insert(key, self.value);
        self.catch_up();
    }

    /// Makes the index follow the table: files that are gone, then files that are new.
    fn catch_up(&mut self) {
        let gone: Vec<u32> = names(&self.index)
            .into_iter()
            .filter(|(_, name)| !self.table.files.contains_key(name))
            .map(|(number, _)| number)
            .collect();
        for number in gone {
            self.index.drop_file(number).unwrap();
        }
        let mut added = Vec::new();
        for (name, rows) in &self.table.files {
            if self.index.files().number(name).is_none() {
                let file = IndexedFile::new(&**name, rows.len() as u64).unwrap();
                let keys = rows
                    .iter()
                    .map(|(key, _)| self.key(*key))
                    .collect::<Vec<_>>();
                added.push((self.index.add_file(file).unwrap(), keys));
            }
        }
        let named = names(&self.index);
        let table = &self.table;
        let vector_of = |number: u32| table.vectors.get(named.get(&number)?);
        let mut catch_up = CatchUp::new(&mut self.index, vector_of).with_pending_max(3);
        for (number, keys) in &added {
            catch_up.add(*number, 0, keys).unwrap();
        }
        let caught = catch_up.finish().unwrap();
        assert_eq!(caught.duplicates, 0, "{:?}", caught.named);
    }

    /// Compacts two files into one, in the other order, and moves the keys.
    fn compact(&mut self) {
        let both: Vec<String> = self.table.files.keys().take(2).cloned().collect();
        let name = self.table.name();
        let mut rows = Vec::new();
        let mut moved: Vec<(u32, Vec<(u32, u32)>)> = Vec::new();
        for old in both.iter().rev() {
            let mut kept = Vec::new();
            for (row, pair) in self.table.files[old].iter().enumerate() {
                if !self.table.is_deleted(old, row) {
                    kept.push((row as u32, rows.len() as u32));
                    rows.push(*pair);
                }
            }
            moved.push((self.index.files().number(old).unwrap(), kept));
        }
        if rows.is_empty() {
            return;
        }
        let file = IndexedFile::new(&*name, rows.len() as u64).unwrap();
        let file = self.index.add_file(file).unwrap();
        let mut moves = Moves::default();
        for (old, kept) in moved {
            let spans = kept.into_iter().map(|(row, to)| Span {
                row,
                count: 1,
                to: Location { file, row: to },
            });
            moves.add(old, spans.collect()).unwrap();
        }
        self.index.remap(&moves).unwrap();
        for old in both {
            self.table.files.remove(&old);
            self.table.vectors.remove(&old);
        }
        self.table.files.insert(name, rows);
    }

    /// Where each live row of the table lies, by an index that saw nothing but the table.
    fn rebuilt(&self) -> BTreeMap<KeyNumber, (String, u32)> {
        let mut other = World::new(self.index.form());
        other.table = self.table.clone();
        other.catch_up();
        other.live()
    }

    fn live(&self) -> BTreeMap<KeyNumber, (String, u32)> {
        let named = names(&self.index);
        let live = self.index.iter().filter_map(|(key, at)| {
            let name = named.get(&at.file)?.clone();
            (!self.table.is_deleted(&name, at.row as usize)).then_some((key, (name, at.row)))
        });
        live.collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    // Promise: A table with changes equals its source, whatever comes between: commits that are lost and made again, rows and files that other writers add, delete and compact, an index that is stored and read back.
    #[test]
    fn a_table_with_changes_equals_its_source(
        form in prop::sample::select(vec![KeyForm::Exact, KeyForm::Hashed]),
        seed in any::<u64>(),
        steps in prop::collection::vec(0u32..8, 1..25),
    ) {
        let mut rng = Random(seed);
        let mut world = World::new(form);
        for step in steps {
            match step {
                0 => world.foreign(&mut rng),
                1 => world.foreign_delete(&mut rng, &[]),
                2 => world.compact(),
                3 => {
                    world.index.compact().unwrap();
                    let files = section::files_section(&world.index).unwrap();
                    let mut loader = section::Loader::new(&files).unwrap();
                    for shard in 0..loader.shards() {
                        let bytes = section::shard_section(&world.index, shard).unwrap();
                        loader.add(&bytes.into(), section::Keep::Mapped).unwrap();
                    }
                    world.index = loader.finish().unwrap().with_shard_keys_max(20);
                }
                many => world.commit(&mut rng, many - 3),
            }
            prop_assert_eq!(&world.table.rows(), &world.model);
            let live = world.live();
            prop_assert_eq!(live.len(), world.model.len());
            prop_assert_eq!(live, world.rebuilt());
        }
    }
}

#[test]
fn duplicates_that_others_made_are_reported() {
    let mut world = World::new(KeyForm::Exact);
    for rows in [vec![(1, 1), (2, 2)], vec![(2, 3), (3, 4)], vec![(2, 5)]] {
        let name = world.table.name();
        world.table.files.insert(name, rows);
    }
    let mut index = Index::new(KeyForm::Exact);
    let mut keys = Vec::new();
    for (name, rows) in &world.table.files {
        let file = IndexedFile::new(&**name, rows.len() as u64).unwrap();
        let numbers: Vec<_> = rows.iter().map(|(key, _)| world.key(*key)).collect();
        keys.push((index.add_file(file).unwrap(), numbers));
    }
    let mut catch_up = CatchUp::new(&mut index, |_| None).with_pending_max(3);
    for (file, keys) in &keys {
        catch_up.add(*file, 0, keys).unwrap();
    }
    assert_eq!(
        catch_up.add(0, 1, &keys[0].1).unwrap_err().code(),
        "INTERNAL"
    );
    assert_eq!(
        catch_up.add(9, 0, &keys[0].1).unwrap_err().code(),
        "INTERNAL"
    );
    let caught = catch_up.finish().unwrap();
    assert_eq!(caught.duplicates, 2);
    let rows = |one: &catch_up::Duplicate| (one.older.file, one.older.row, one.newer.file);
    assert_eq!(
        caught.named.iter().map(rows).collect::<Vec<_>>(),
        [(0, 1, 1), (1, 0, 2)]
    );
    let two = world.hasher.number(&2u32.to_be_bytes()).unwrap();
    assert_eq!(index.get(two), Some(Location { file: 2, row: 0 }));
}
