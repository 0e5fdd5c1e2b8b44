//! What the files of a table have taught about its columns.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use parquet::basic::Type as PhysicalType;

use super::ColumnEncoding;

/// Files that follow a choice before the next one looks at its own rows: judging the rows of each
/// small file of many partitions would cost more than it saves.
const FILES_THAT_FOLLOW: u32 = 15;
/// Files that go without a dictionary after one that outgrew its page.
const FILES_WITHOUT_DICTIONARY: u32 = 32;

/// The choices for the columns of a table, which its writers share, one after the other.
#[derive(Debug, Default)]
pub struct Lessons(Mutex<HashMap<Column, Lesson>>);

/// The id of a column, and what it is in a file: a type that has been widened may have other
/// encodings.
pub(super) type Column = (i32, PhysicalType);

#[derive(Debug, Default)]
struct Lesson {
    choice: Option<ColumnEncoding>,
    follow: u32,
    without_dictionary: u32,
}

impl Lessons {
    /// Returns the encoding of a column in a new file. `judge` is asked when the choice is
    /// old; it is told whether a dictionary is likely to outgrow its page, and returns nothing when
    /// there are too few rows to say.
    pub(super) fn choose(
        &self,
        column: Column,
        judge: impl FnOnce(bool) -> Option<ColumnEncoding>,
    ) -> ColumnEncoding {
        let mut lessons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lesson = lessons.entry(column).or_default();
        let can_spill = lesson.without_dictionary > 0;
        lesson.without_dictionary = lesson.without_dictionary.saturating_sub(1);
        if let Some(choice) = lesson.choice
            && lesson.follow > 0
        {
            lesson.follow -= 1;
            return choice;
        }
        if let Some(choice) = judge(can_spill) {
            lesson.choice = Some(choice);
            lesson.follow = FILES_THAT_FOLLOW;
        }
        lesson.choice.unwrap_or(ColumnEncoding::Dictionary)
    }

    /// Notes that the dictionary of a column was too small for a file.
    pub(super) fn spilled(&self, column: Column) {
        let mut lessons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lesson = lessons.entry(column).or_default();
        lesson.follow = 0;
        lesson.without_dictionary = FILES_WITHOUT_DICTIONARY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Column = (1, PhysicalType::INT32);
    const PLAIN: Option<ColumnEncoding> = Some(ColumnEncoding::Plain);

    #[test]
    fn a_choice_holds_for_the_next_files_and_is_made_anew_then() {
        let lessons = Lessons::default();
        // Nothing is known, and nothing can be said.
        assert_eq!(lessons.choose(ONE, |_| None), ColumnEncoding::Dictionary);
        assert_eq!(lessons.choose(ONE, |_| PLAIN), ColumnEncoding::Plain);
        for _ in 0..FILES_THAT_FOLLOW {
            let choice = lessons.choose(ONE, |_| unreachable!("the choice is young"));
            assert_eq!(choice, ColumnEncoding::Plain);
        }
        // A file with too few rows follows an old choice.
        assert_eq!(lessons.choose(ONE, |_| None), ColumnEncoding::Plain);
        let delta = Some(ColumnEncoding::DeltaBinaryPacked);
        assert_eq!(
            lessons.choose(ONE, |_| delta),
            ColumnEncoding::DeltaBinaryPacked
        );
        assert_eq!(
            lessons.choose((1, PhysicalType::INT64), |_| None),
            ColumnEncoding::Dictionary
        );
    }

    #[test]
    fn a_dictionary_that_was_too_small_is_left_out_for_a_while() {
        let lessons = Lessons::default();
        let judge = |can_spill| match can_spill {
            true => PLAIN,
            false => Some(ColumnEncoding::Dictionary),
        };
        assert_eq!(lessons.choose(ONE, judge), ColumnEncoding::Dictionary);
        lessons.spilled(ONE);
        let files = (0..100).map(|_| lessons.choose(ONE, judge));
        let plain = files
            .take_while(|one| *one == ColumnEncoding::Plain)
            .count();
        assert!((32..64).contains(&plain), "{plain}");
    }
}
