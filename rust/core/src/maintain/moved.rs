//! Where the rows of files are after a compaction: deletes that came to the old files meanwhile are
//! carried over to the new ones.
//!
//! Rows that were not deleted when they were read are numbered, file by file; the new files hold these
//! numbers, in their order or in that of the table:
//!
//! ```text
//!  old files   a: 0 1 ✗ 3    b: 0 ✗ 2          ✗ deleted when read
//!  numbers        0 1   2       3   4
//!  new file    c: 0 1 2 3 4                    row 3 of `a`, deleted since, is row 2 of `c`
//! ```

use crate::delete::DeletionVector;
use crate::error::{Result, SinkError};

/// The rows of files as they were written again.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    inputs: Vec<MovedFile>,
    /// The rows of each new file.
    outputs: Vec<u64>,
    /// The number of each row of each new file, where rows are not in the order of their numbers.
    order: Option<Vec<Vec<u32>>>,
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct MovedFile {
    /// Its rows, deleted ones included.
    pub rows: u64,
    /// Those that were deleted when it was read.
    pub deleted: DeletionVector,
}

impl MovedFile {
    fn live(&self) -> u64 {
        self.rows.saturating_sub(self.deleted.len())
    }
}

impl Moved {
    /// Takes the old files in the order in which they were read, and the rows of the new ones; `order` has
    /// the numbers of their rows where they were sorted.
    ///
    /// # Errors
    ///
    /// The new files do not have each row once: nothing may be made of them.
    pub fn new(
        inputs: Vec<MovedFile>,
        outputs: Vec<u64>,
        order: Option<Vec<Vec<u32>>>,
    ) -> Result<Self> {
        let live: u64 = inputs.iter().map(MovedFile::live).sum();
        let made: u64 = outputs.iter().sum();
        if live != made {
            return Err(
                uneven("rows were read that are in no new file, or the reverse")
                    .with("read", live)
                    .with("written", made),
            );
        }
        if let Some(order) = &order {
            let lengths = order.iter().map(|numbers| numbers.len() as u64);
            if !lengths.eq(outputs.iter().copied()) {
                return Err(uneven("the rows of a new file are not all numbered"));
            }
            let mut seen = DeletionVector::new();
            for number in order.iter().flatten() {
                if u64::from(*number) >= live || !seen.insert(u64::from(*number))? {
                    return Err(uneven("a row is in the new files twice"));
                }
            }
        }
        Ok(Moved {
            inputs,
            outputs,
            order,
        })
    }

    /// Returns the deleted rows of each new file, now that those of the old ones are `now`, in the same
    /// order; `None` when a row is not deleted any more that was when it was read, and so is in no new file.
    ///
    /// # Errors
    ///
    /// A delete of a row that its file does not have.
    pub fn deleted_since(&self, now: &[DeletionVector]) -> Result<Option<Vec<DeletionVector>>> {
        if now.len() != self.inputs.len() {
            return Err(uneven("the deletes of some files are not known"));
        }
        let mut numbers = DeletionVector::new();
        let mut before = 0;
        for (file, now) in self.inputs.iter().zip(now) {
            let Some(since) = now.without(&file.deleted) else {
                return Ok(None);
            };
            if since.last().is_some_and(|last| last >= file.rows) {
                return Err(uneven("a row was deleted that its file does not have"));
            }
            for row in since.positions() {
                numbers.insert(before + row - file.deleted.count_to(row))?;
            }
            before += file.live();
        }
        let mut deleted = vec![DeletionVector::new(); self.outputs.len()];
        if numbers.is_empty() {
            return Ok(Some(deleted));
        }
        match &self.order {
            Some(order) => {
                for (of_file, deleted) in order.iter().zip(&mut deleted) {
                    for (row, number) in (0u64..).zip(of_file) {
                        if numbers.contains(u64::from(*number)) {
                            deleted.insert(row)?;
                        }
                    }
                }
            }
            None => {
                let mut files = self.outputs.iter().zip(&mut deleted);
                let (mut file, mut first) = (files.next(), 0u64);
                for number in numbers.positions() {
                    while let Some((rows, _)) = &file
                        && number >= first + **rows
                    {
                        first += **rows;
                        file = files.next();
                    }
                    let (_, deleted) = file
                        .as_mut()
                        .ok_or_else(|| uneven("a row was deleted that no new file has"))?;
                    deleted.insert(number - first)?;
                }
            }
        }
        Ok(Some(deleted))
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory_bytes(&self) -> usize {
        let vectors = self.inputs.iter().map(|file| file.deleted.memory_bytes());
        let order = self.order.iter().flatten().map(|numbers| 4 * numbers.len());
        vectors.sum::<usize>() + order.sum::<usize>()
    }
}

fn uneven(what: &'static str) -> SinkError {
    SinkError::fatal(
        "COMPACTION_UNEVEN",
        format!("a compaction was dropped, and the table is as it was: {what}; please report this"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(rows: &[u64]) -> DeletionVector {
        let mut vector = DeletionVector::new();
        for row in rows {
            vector.insert(*row).unwrap();
        }
        vector
    }

    fn read(rows: u64, deleted: &[u64]) -> MovedFile {
        MovedFile {
            rows,
            deleted: vector(deleted),
        }
    }

    fn two() -> Vec<MovedFile> {
        vec![read(4, &[2]), read(3, &[1])]
    }

    #[test]
    fn deletes_find_their_rows_in_the_new_files() {
        let moved = Moved::new(two(), vec![2, 3], None).unwrap();
        let none = moved.deleted_since(&[vector(&[2]), vector(&[1])]).unwrap();
        assert_eq!(none, Some(vec![vector(&[]), vector(&[])]));
        let some = moved.deleted_since(&[vector(&[1, 2, 3]), vector(&[1, 2])]);
        assert_eq!(some.unwrap(), Some(vec![vector(&[1]), vector(&[0, 2])]));
        let all = moved.deleted_since(&[vector(&[0, 1, 2, 3]), vector(&[0, 1, 2])]);
        assert_eq!(
            all.unwrap(),
            Some(vec![vector(&[0, 1]), vector(&[0, 1, 2])])
        );
    }

    #[test]
    fn deletes_find_their_rows_in_sorted_files() {
        let order = Some(vec![vec![4, 0], vec![2, 3, 1]]);
        let moved = Moved::new(two(), vec![2, 3], order).unwrap();
        let some = moved.deleted_since(&[vector(&[1, 2, 3]), vector(&[1, 2])]);
        assert_eq!(some.unwrap(), Some(vec![vector(&[0]), vector(&[0, 2])]));
    }

    #[test]
    fn rows_that_came_back_are_in_no_new_file() {
        let moved = Moved::new(two(), vec![5], None).unwrap();
        let back = moved.deleted_since(&[vector(&[1]), vector(&[1])]);
        assert_eq!(back.unwrap(), None);
        let beyond = moved.deleted_since(&[vector(&[2, 4]), vector(&[1])]);
        assert_eq!(beyond.unwrap_err().code(), "COMPACTION_UNEVEN");
    }

    #[test]
    fn files_that_do_not_have_each_row_once_are_refused() {
        let code = |outputs: &[u64], order| {
            let made = Moved::new(two(), outputs.to_vec(), order);
            made.map_or_else(|error| error.code(), |_| "fine")
        };
        assert_eq!(code(&[4], None), "COMPACTION_UNEVEN");
        assert_eq!(code(&[3, 3], None), "COMPACTION_UNEVEN");
        assert_eq!(
            code(&[5], Some(vec![vec![0, 1, 2, 3]])),
            "COMPACTION_UNEVEN"
        );
        assert_eq!(
            code(&[5], Some(vec![vec![0, 1, 2, 3, 3]])),
            "COMPACTION_UNEVEN"
        );
        assert_eq!(
            code(&[5], Some(vec![vec![0, 1, 2, 3, 5]])),
            "COMPACTION_UNEVEN"
        );
        assert_eq!(code(&[5], Some(vec![vec![4, 3, 2, 1, 0]])), "fine");
    }
}
