//! What a table with changes promises, read from its files: a row for each key, and at most one delete
//! file for each data file.

use std::collections::BTreeSet;
use std::sync::Arc;

use frazil_core::Result;
use frazil_core::change::KeyPlan;
use frazil_core::commit::plan;
use frazil_core::index::{KeyForm, KeyHasher, KeyNumber};

use super::keys::KeyColumns;
use crate::catalog::LoadedTable;
use crate::commit::manifests_of;
use crate::delete::LiveFiles;

/// Pairs of rows that are named.
const NAMED_MAX: usize = 20;

/// Where a row lies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPlace {
    /// The location of the data file.
    pub file: Arc<str>,
    /// The row's place in it, from 0.
    pub row: u64,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// Data files.
    pub files: usize,
    /// Rows that are not deleted.
    pub rows: u64,
    /// Rows of these files that are.
    pub deleted: u64,
    /// Rows whose key an earlier one has too.
    pub doubled: u64,
    /// Some of them, each with the other row.
    pub named: Vec<(RowPlace, RowPlace)>,
    /// Data files with several delete files of their own.
    pub several_deletes: Vec<Arc<str>>,
    /// Data files none of whose rows is left.
    pub without_rows: Vec<Arc<str>>,
    /// Equality delete files; rows that they delete are counted as there.
    pub equality_deletes: usize,
}

impl Audit {
    /// Tells whether the table is not what is promised.
    pub fn is_bad(&self) -> bool {
        self.doubled > 0
            || self.equality_deletes > 0
            || !self.several_deletes.is_empty()
            || !self.without_rows.is_empty()
    }
}

/// Reads the keys of all rows of `branch`, and all deletes.
///
/// # Errors
///
/// What the table or the store says.
pub async fn audit(table: &LoadedTable, branch: &str, key: &KeyPlan) -> Result<Audit> {
    let LoadedTable {
        metadata, storage, ..
    } = table;
    let manifests = match plan::base(metadata, branch).parent {
        Some(head) => manifests_of(storage, &head, metadata.format_version()).await?,
        None => Vec::new(),
    };
    let live = LiveFiles::read(storage, &manifests).await?;
    let paths: BTreeSet<Arc<str>> = live.data.keys().cloned().collect();
    let known = live.deletes_of(storage, &paths, |_| None).await?;
    let hasher = KeyHasher::new(KeyForm::of(key.bytes_max()), metadata.uuid());
    let field_ids: Vec<i32> = key.field_ids().collect();
    let mut found = Audit {
        files: live.data.len(),
        equality_deletes: live.equality_deletes,
        ..Audit::default()
    };
    let mut keys: Vec<(KeyNumber, u32, u64)> = Vec::new();
    let mut bytes = Vec::new();
    for (number, (path, file)) in (0u32..).zip(&live.data) {
        let vector = known.get(path).map(|known| &known.vector);
        let gone = vector.map_or(0, |vector| vector.len());
        found.deleted += gone;
        if gone == file.rows {
            found.without_rows.push(Arc::clone(path));
        }
        if live.own_deletes(path).len() > 1 {
            found.several_deletes.push(Arc::clone(path));
        }
        let mut columns = KeyColumns::open(storage, path, file.bytes, &field_ids).await?;
        while let Some((first, columns)) = columns.next().await? {
            let rows = key.rows(&columns)?;
            let count = columns.first().map_or(0, |column| column.len());
            for (at, row) in (0..count).zip(first..) {
                if !vector.is_some_and(|vector| vector.contains(row)) {
                    let key = hasher.number(rows.encode(at, &mut bytes)?)?;
                    keys.push((key, number, row));
                }
            }
        }
    }
    found.rows = keys.len() as u64;
    keys.sort_unstable();
    let paths: Vec<&Arc<str>> = live.data.keys().collect();
    let place = |(_, file, row): &(KeyNumber, u32, u64)| {
        let file = paths.get(*file as usize).map(|path| Arc::clone(path));
        RowPlace {
            file: file.unwrap_or_default(),
            row: *row,
        }
    };
    for (one, other) in keys.iter().zip(keys.iter().skip(1)) {
        if one.0 == other.0 {
            found.doubled += 1;
            if found.named.len() < NAMED_MAX {
                found.named.push((place(one), place(other)));
            }
        }
    }
    Ok(found)
}
