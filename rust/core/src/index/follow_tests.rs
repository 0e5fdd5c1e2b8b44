//! When an index follows its table, and when it is built anew.

use super::super::orders::tests::{Table, keys};
use super::*;
use crate::index::catch_up::CatchUp;
use crate::index::{KeyNumber, Location};

type Live = BTreeMap<Arc<str>, (u64, i64)>;

fn live(files: &[(&str, u64, i64)]) -> Live {
    let files = files
        .iter()
        .map(|(path, rows, sequence)| (Arc::from(*path), (*rows, *sequence)));
    files.collect()
}

fn key(number: u64) -> KeyNumber {
    KeyNumber(u128::from(number) << 40)
}

/// Follows, with the keys `keys` in the new files, behind one another.
fn follow(followed: &mut Followed, head: i64, live: &Live, keys: &[u64]) {
    let new = followed.follow(Some(head), live, |file| *file).unwrap();
    let mut catch = CatchUp::new(followed.index_mut(), |_| None);
    let mut keys = keys.iter().map(|number| key(*number));
    for file in &new {
        let rows: Vec<KeyNumber> = keys.by_ref().take(file.rows as usize).collect();
        catch.add(file.number, 0, &rows).unwrap();
    }
    let caught = catch.finish().unwrap();
    followed.has_read(caught.duplicates > 0);
}

fn table(branch: &[i64]) -> Table {
    Table {
        branch: branch.to_vec(),
        ..Table::default()
    }
}

fn may_follow(followed: &Followed, table: &Table) -> bool {
    let head = table.branch.last().copied();
    let unfit = followed.unfit(table, ("main", head), &keys("1"));
    unfit.is_none()
}

#[test]
fn files_come_in_the_order_of_their_sequence_numbers_and_go() {
    let mut followed = Followed::new(keys("1"));
    let two = live(&[("b", 1, 1), ("a", 1, 2)]);
    follow(&mut followed, 1, &two, &[7, 7]);
    let at = |followed: &Followed| {
        let at: Location = followed.index().get(key(7))?;
        followed
            .index()
            .files()
            .get(at.file)
            .map(|file| file.path.to_string())
    };
    assert_eq!(at(&followed), Some("a".to_owned()), "it came later");
    follow(&mut followed, 2, &live(&[("b", 1, 1)]), &[]);
    assert_eq!(at(&followed), None);
}

#[test]
fn a_rollback_is_followed_by_nothing() {
    let mut followed = Followed::new(keys("1"));
    assert!(may_follow(&followed, &table(&[])));
    follow(&mut followed, 2, &live(&[("a", 1, 1)]), &[7]);
    assert!(may_follow(&followed, &table(&[1, 2])) && may_follow(&followed, &table(&[1, 2, 3])));
    assert!(!may_follow(&followed, &table(&[1])) && !may_follow(&followed, &table(&[1, 3])));
    let unfit = followed.unfit(&table(&[2]), ("main", Some(2)), &keys("2"));
    assert_eq!(unfit, Some("the columns of the key are others"));
}

// The index is built anew then, and has the first row again.
#[test]
fn a_second_row_that_went_uncovers_the_first() {
    let mut followed = Followed::new(keys("1"));
    follow(&mut followed, 1, &live(&[("a", 1, 1)]), &[7]);
    assert!(may_follow(&followed, &table(&[1, 2])));
    follow(&mut followed, 2, &live(&[("a", 1, 1), ("b", 1, 2)]), &[7]);
    assert!(
        may_follow(&followed, &table(&[1, 2])),
        "nobody has changed it"
    );
    assert!(
        !may_follow(&followed, &table(&[1, 2, 3])),
        "the second may be gone"
    );
}

// What failed before its files were known may have left them half of one snapshot and half of another.
#[test]
fn an_index_that_set_out_and_did_not_arrive_is_of_no_use() {
    let mut followed = Followed::new(keys("1"));
    follow(&mut followed, 1, &live(&[("a", 1, 1)]), &[7]);
    assert!(may_follow(&followed, &table(&[1])));
    followed.set_out();
    assert!(!followed.is_whole() && !may_follow(&followed, &table(&[1])));
}

// Some keys were read before the reads failed. Where the new file goes again, what they were before is not
// known any more.
#[test]
fn keys_that_could_not_be_read_are_read_again() {
    let mut followed = Followed::new(keys("1"));
    follow(&mut followed, 1, &live(&[("a", 1, 1)]), &[7]);
    let both = live(&[("a", 1, 1), ("b", 2, 2)]);
    let new = followed.follow(Some(2), &both, |file| *file).unwrap();
    assert!(!followed.is_whole());
    let mut catch = CatchUp::new(followed.index_mut(), |_| None);
    catch.add(new[0].number, 0, &[key(7)]).unwrap();
    catch.finish().unwrap();
    followed.read_failed(&new);
    assert!(followed.is_whole() && followed.index().get(key(7)).is_none());
    let rolled_back = table(&[1]);
    assert!(
        !may_follow(&followed, &rolled_back),
        "the key would have no row"
    );
    assert!(!may_follow(&followed, &table(&[1, 2, 3])));
    assert!(may_follow(&followed, &table(&[1, 2])));
    follow(&mut followed, 2, &both, &[7, 8]);
    assert_eq!(followed.index().get(key(7)).map(|at| at.row), Some(0));
}

#[test]
fn entries_of_files_that_went_are_taken_out() {
    let mut followed = Followed::new(keys("1")).with_dead_min(8);
    let numbers: Vec<u64> = (0..20).collect();
    follow(&mut followed, 1, &live(&[("a", 20, 1)]), &numbers);
    let number = followed.index().files().number("a").unwrap();
    let emptied = Delta {
        generation: followed.index().generation(),
        added: vec![],
        dropped: vec![number],
        changes: vec![],
    };
    followed.apply(emptied, 2).unwrap();
    assert_eq!((followed.dead(), followed.index().entries()), (0, 0));
    follow(&mut followed, 3, &live(&[("b", 1, 3)]), &[30]);
    assert_eq!((followed.dead(), followed.index().entries()), (0, 1));
}
