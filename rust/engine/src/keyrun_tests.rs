//! Key runs as they are written, and files that are none.

use frazil_core::offsets::{SourceRange, TopicPartition};

use super::*;

fn bounds() -> KeyRunBounds {
    KeyRunBounds {
        partitions: 2,
        file_rows: [3, 1].into(),
    }
}

/// Reads a run to its end, few changes at a time.
fn whole(stored: &StoredRun) -> Result<KeyRun> {
    let mut run = KeyRun::default();
    let mut changes = stored.changes(2)?;
    while changes.more(&mut run)? {}
    Ok(run)
}

async fn read_key_run(
    storage: &TableStorage,
    announced: &KeyRunRef,
    identity: &KeyRunIdentity,
) -> Result<KeyRun> {
    whole(&fetch_key_run(storage, announced, identity, bounds()).await?)
}

fn decode(bytes: Vec<u8>, rows: u64) -> Result<KeyRun> {
    whole(&stored(bytes, rows)?)
}

fn stored(bytes: Vec<u8>, rows: u64) -> Result<StoredRun> {
    let mut stored = StoredRun {
        pending: Vec::new(),
        pending_rows: Vec::new(),
        bytes: bytes.into(),
        path: NAME_ENDS.to_owned(),
        rows,
        form: identity().form,
        bounds: bounds(),
    };
    stored.check_owner(&identity())?;
    Ok(stored)
}

fn identity() -> KeyRunIdentity {
    KeyRunIdentity {
        table: Uuid::from_u128(7),
        wid: "0123456789abcdef".to_owned(),
        session: Uuid::from_u128(1),
        seq: 4,
        form: KeyForm::Hashed,
        key: "1:integer".to_owned(),
        ranges: ranges(2),
    }
}

fn ranges(count: i32) -> Ranges {
    let range = |partition| SourceRange {
        partition: TopicPartition::new("a.topic.with.a.long.name", partition),
        start: Some(1 << 40),
        end: 1 << 41,
        lowest: Some(1 << 40),
        timestamp_max_ms: None,
    };
    Ranges {
        ranges: (0..count).map(range).collect(),
        ..Ranges::default()
    }
}

fn upsert(key: u128, file: u32, row: u32, offset: i64) -> RunChange {
    let effect = Effect::Upsert(Location { file, row });
    RunChange::new(KeyNumber(key), effect, (0, offset))
}

fn delete(key: u128, offset: i64) -> RunChange {
    RunChange::new(KeyNumber(key), Effect::Delete, (1, offset))
}

fn run() -> KeyRun {
    let mut run = KeyRun::default();
    let order = |number: u8| [0, 0, 0, 0, 0, 0, 0, 9, number];
    let all = [
        (upsert(9, 0, 0, 5), Some(order(1))),
        (upsert(1 << 95, 0, 1, 6), None),
        (delete(9, 2), None),
        (upsert(9, 1, 0, 7).of_snapshot(true), Some(order(3))),
        (
            RunChange::new(KeyNumber(0), Effect::Truncate, (1, 3)),
            Some(order(4)),
        ),
        (upsert(2, 0, 2, 8), Some(order(2))),
    ];
    for (change, order) in &all {
        run.push(change, order.as_ref().map(|order| Order::of(order)))
            .unwrap();
    }
    run
}

fn storage() -> (TableStorage, String) {
    let location = format!("memory://keys-{}/t", Uuid::now_v7());
    let storage = TableStorage::open(&location, &Default::default(), None).unwrap();
    (storage, format!("{location}/data/x{NAME_ENDS}"))
}

type Told<'r> = (u128, Effect, bool, (u32, i64), Option<&'r [u8]>);

fn told(run: &KeyRun) -> Vec<Told<'_>> {
    let told = |change: &RunChange| {
        let order = run.order(change).map(|order| order.bytes());
        let source = (change.partition, change.offset);
        (
            change.key.0,
            change.effect,
            change.is_snapshot,
            source,
            order,
        )
    };
    run.changes().iter().map(told).collect()
}

#[tokio::test]
async fn a_run_is_read_as_it_was_written_sorted_by_key_and_as_it_came() {
    let (storage, path) = storage();
    let mut written = run();
    let made = write_key_run(&storage, &path, &mut written, &identity())
        .await
        .unwrap();
    assert_eq!((made.rows, made.path.as_str()), (6, path.as_str()));
    let read = read_key_run(&storage, &made, &identity()).await.unwrap();
    assert_eq!(told(&read), told(&written));
    let places: Vec<(u128, i64)> = read.changes().iter().map(|c| (c.key.0, c.offset)).collect();
    assert_eq!(
        places,
        [(0, 3), (2, 8), (9, 5), (9, 2), (9, 7), (1 << 95, 6)]
    );
    let orders: Vec<Option<u8>> = read
        .changes()
        .iter()
        .map(|change| Some(*read.order(change)?.bytes().last().unwrap()))
        .collect();
    assert_eq!(orders, [Some(4), Some(2), Some(1), None, Some(3), None]);
}

// Promise: A key run that is damaged, of another segment, or of other keys is never resolved.
#[tokio::test]
async fn a_run_that_is_not_the_announced_one_is_an_error() {
    let (storage, path) = storage();
    let made = write_key_run(&storage, &path, &mut run(), &identity())
        .await
        .unwrap();
    let read = |announced: KeyRunRef, identity: KeyRunIdentity| {
        let storage = storage.clone();
        async move {
            let read = read_key_run(&storage, &announced, &identity).await;
            let error = read.map(|_| ()).unwrap_err();
            (error.code(), error.report())
        }
    };
    let changed = |change: &dyn Fn(&mut KeyRunRef)| {
        let mut announced = made.clone();
        change(&mut announced);
        announced
    };
    for announced in [
        changed(&|made| made.len += 1),
        changed(&|made| made.rows += 1),
        changed(&|made| made.sha256[0] ^= 1),
        changed(&|made| made.len = KEY_RUN_BYTES_MAX + 1),
        changed(&|made| made.rows = KEY_RUN_ROWS_MAX as u64 + 1),
    ] {
        assert_eq!(read(announced, identity()).await.0, "KEY_RUN_UNUSABLE");
    }
    let other = |change: &dyn Fn(&mut KeyRunIdentity)| {
        let mut identity = identity();
        change(&mut identity);
        identity
    };
    for (entry, identity) in [
        (TABLE, other(&|it| it.table = Uuid::from_u128(8))),
        (WID, other(&|it| it.wid = "fedcba9876543210".to_owned())),
        (SESSION, other(&|it| it.session = Uuid::from_u128(2))),
        (SEQUENCE, other(&|it| it.seq = 5)),
        (FORM, other(&|it| it.form = KeyForm::Exact)),
        (KEY, other(&|it| it.key = "2:integer".to_owned())),
        (RANGES_DIGEST, other(&|it| it.ranges = ranges(1))),
    ] {
        let (code, report) = read(made.clone(), identity).await;
        assert_eq!(code, "KEY_RUN_UNUSABLE");
        assert!(report.contains(entry), "{report}");
        assert!(report.contains("-keys.parquet"), "{report}");
    }
    let gone = changed(&|made| made.path.push('x'));
    assert_eq!(read(gone, identity()).await.0, "STORAGE_NOT_FOUND");
}

#[tokio::test]
async fn each_number_of_a_run_is_checked() {
    let cases: [(&str, RunChange); 7] = [
        ("no file", upsert(1, 2, 0, 0)),
        ("no file", upsert(1, 0, 3, 0)),
        ("no record", delete(1, -1)),
        (
            "no record",
            RunChange::new(KeyNumber(1), Effect::Delete, (2, 0)),
        ),
        ("not in order", delete(1 << 96, 0)),
        (
            "does what",
            RunChange::new(KeyNumber(1), Effect::Truncate, (0, 0)),
        ),
        ("not in order", delete(2, 0)),
    ];
    for (what, change) in cases {
        let mut run = KeyRun::default();
        let is_unsorted = what == "not in order" && change.key.0 == 2;
        run.push(&change, None).unwrap();
        if is_unsorted {
            run.push(&delete(1, 0), None).unwrap();
        }
        let bytes = encode(&run, &identity()).unwrap();
        let error = decode(bytes, run.len() as u64).unwrap_err();
        assert_eq!(error.code(), "KEY_RUN_UNUSABLE");
        assert!(error.message().contains(what), "{}", error.report());
    }
    let long = vec![0; ORDER_BYTES_MAX + 1];
    for order in [&[][..], &long] {
        let mut run = KeyRun::default();
        run.push(&delete(1, 0), Some(Order::of(order))).unwrap();
        let bytes = encode(&run, &identity()).unwrap();
        let error = decode(bytes, 1).unwrap_err();
        assert!(
            error.message().contains("wrong length"),
            "{}",
            error.report()
        );
    }
}

#[test]
fn bytes_that_are_no_run_are_an_error_and_no_panic() {
    let good = encode(&run(), &identity()).unwrap();
    let mut sorted = run();
    sorted.sort();
    let sorted = encode(&sorted, &identity()).unwrap();
    assert!(decode(sorted.clone(), 6).is_ok());
    for bytes in [
        Vec::new(),
        b"PAR1".to_vec(),
        good[..good.len() / 2].to_vec(),
    ] {
        let error = decode(bytes, 6).unwrap_err();
        assert_eq!(error.code(), "KEY_RUN_UNUSABLE");
    }
    for at in (0..sorted.len()).step_by(7) {
        let mut bytes = sorted.clone();
        bytes[at] ^= 0x55;
        // Whatever it says, it says it without a panic, and within the bounds.
        if let Ok(read) = decode(bytes, 6) {
            assert_eq!(read.len(), 6);
        }
    }
}

#[tokio::test]
async fn offsets_that_are_too_long_for_a_message_stand_with_the_keys() {
    let (storage, path) = storage();
    let made = write_key_run(&storage, &path, &mut run(), &identity())
        .await
        .unwrap();
    let owner = read_owner(&storage, &made).await.unwrap();
    assert_eq!((owner.ranges().unwrap(), owner.rows()), (None, Some(6)));
    assert!(owner.vouches_for(&ranges(2)) && !owner.vouches_for(&ranges(1)));
    let long = KeyRunIdentity {
        ranges: ranges(5_000),
        ..identity()
    };
    assert!(!long.ranges.fit());
    let made = write_key_run(&storage, &path, &mut run(), &long)
        .await
        .unwrap();
    let owner = read_owner(&storage, &made).await.unwrap();
    assert_eq!(owner.ranges().unwrap(), Some(long.ranges));
}

#[tokio::test]
async fn a_run_says_whose_changes_it_has() {
    let (storage, path) = storage();
    let made = write_key_run(&storage, &path, &mut run(), &identity())
        .await
        .unwrap();
    let owner = read_owner(&storage, &made).await.unwrap();
    let KeyRunIdentity {
        table,
        wid,
        session,
        seq,
        ..
    } = identity();
    assert!(owner.is(table, &wid, (session, seq)));
    let other = Uuid::from_u128(9);
    assert!(!owner.is(other, &wid, (session, seq)));
    assert!(!owner.is(table, "fedcba9876543210", (session, seq)));
    assert!(!owner.is(table, &wid, (other, seq)));
    assert!(!owner.is(table, &wid, (session, seq + 1)));
    // Nothing but the announced file is looked at, and what is none is an error.
    let changed = |change: &dyn Fn(&mut KeyRunRef)| {
        let mut announced = made.clone();
        change(&mut announced);
        announced
    };
    for (announced, code) in [
        (changed(&|made| made.len += 1), "KEY_RUN_UNUSABLE"),
        (
            changed(&|made| made.len = KEY_RUN_BYTES_MAX + 1),
            "KEY_RUN_UNUSABLE",
        ),
        (changed(&|made| made.path.push('x')), "STORAGE_NOT_FOUND"),
    ] {
        let error = read_owner(&storage, &announced).await.unwrap_err();
        assert_eq!(error.code(), code);
    }
    let text = format!("{path}.txt");
    let bytes = Bytes::from_static(b"a text of more than eight bytes");
    storage.put(&text, bytes.clone()).await.unwrap();
    let text = KeyRunRef {
        path: text,
        len: bytes.len() as u64,
        ..made
    };
    let error = read_owner(&storage, &text).await.unwrap_err();
    assert_eq!(error.code(), "KEY_RUN_UNUSABLE");
}

fn pending(key: u128, effect: fn(Location) -> Effect, row: u32) -> RunChange {
    RunChange::new(KeyNumber(key), effect(Location { file: 0, row }), (0, 9))
}

fn run_with_pending(changes: &[RunChange]) -> KeyRun {
    let mut run = KeyRun::default();
    for change in changes {
        run.push(change, None).unwrap();
    }
    run.set_pending(vec![PendingFile {
        path: "p".to_owned(),
        bytes: 7,
        rows: 3,
    }]);
    run
}

#[test]
fn rows_that_lack_values_are_of_the_files_that_the_run_names() {
    let written = run_with_pending(&[
        pending(3, Effect::Pending, 0),
        pending(4, Effect::Mark, 1).of_snapshot(true),
        pending(5, Effect::Mark, 2).moving(true),
        delete(6, 9).leaving(true),
        delete(7, 9).moving(true),
    ]);
    let bytes = encode(&written, &identity()).unwrap();
    let stored = stored(bytes, 5).unwrap();
    assert_eq!(stored.pending(), written.pending());
    let read = whole(&stored).unwrap();
    assert_eq!(told(&read), told(&written));
    let flags = |run: &KeyRun| {
        let changes = run.changes().iter();
        changes
            .map(|one| (one.leaves, one.moves))
            .collect::<Vec<_>>()
    };
    assert_eq!(flags(&read), flags(&written));
    // One file with three rows: nothing else is a pending row.
    for change in [
        pending(3, Effect::Pending, 3),
        pending(3, Effect::Mark, 3),
        RunChange::new(
            KeyNumber(3),
            Effect::Pending(Location { file: 1, row: 0 }),
            (0, 9),
        ),
        upsert(3, 0, 0, 9).moving(true),
    ] {
        let bytes = encode(&run_with_pending(&[change]), &identity()).unwrap();
        let error = decode(bytes, 1).unwrap_err();
        assert_eq!(error.code(), "KEY_RUN_UNUSABLE");
    }
}
