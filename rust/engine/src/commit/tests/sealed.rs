//! A segment that another worker sealed comes back from its manifests, and nothing else does.

use frazil_core::control::channel::RemoteSegment;
use frazil_core::control::message::SegmentMessage;
use frazil_core::control::segment::KeyRunRef;
use object_store::ObjectStoreExt;

use super::changed::{Changed, delete, put};
use super::*;
use crate::commit::{Unsealed, read_sealed};

const SESSION: u128 = 5;

struct Sent {
    world: World,
    segment: Segment,
    remote: RemoteSegment,
}

/// A sealed segment, and the message about it.
async fn sent(version: FormatVersion, ranges: &[(i32, i64, i64)]) -> Sent {
    let world = World::new(version).await;
    let location = world.load().await.metadata.location().to_owned();
    let data = |name: &str, rows| file_at(&format!("{location}/data/{name}"), rows);
    let manifests = vec![vec![data("a.parquet", 4), data("b.parquet", 6)]];
    let mut segment = world.segment_of(SESSION, 3, ranges, manifests).await;
    segment.rows = 10;
    let remote = RemoteSegment {
        session: segment.session,
        epoch: segment.epoch,
        message: SegmentMessage::new(&segment, false, 0, 3_600_000),
        expires_in_ms: 3_600_000,
    };
    Sent {
        world,
        segment,
        remote,
    }
}

impl Sent {
    async fn read(&self) -> Result<Segment, Unsealed> {
        let read = read_sealed(&self.world.load().await, WID, &self.remote, false).await;
        read.map(|read| read.segment)
    }

    async fn read_with(
        &self,
        change: impl FnOnce(&mut RemoteSegment),
    ) -> Result<Segment, Unsealed> {
        let mut remote = self.remote.clone();
        change(&mut remote);
        let read = read_sealed(&self.world.load().await, WID, &remote, false).await;
        read.map(|read| read.segment)
    }
}

fn file_at(path: &str, rows: i64) -> DataFile {
    DataFileBuilder::default()
        .content(DataContentType::Data)
        .file_path(path.to_owned())
        .file_format(DataFileFormat::Parquet)
        .partition(Struct::empty())
        .partition_spec_id(0)
        .record_count(rows as u64)
        .file_size_in_bytes(100)
        .build()
        .unwrap()
}

/// Makes an honest segment another one.
type Change = Box<dyn FnOnce(&mut RemoteSegment)>;

#[tokio::test]
async fn a_segment_comes_back_as_it_was_sealed_and_can_be_committed() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let sent = sent(version, &[(0, 0, 10)]).await;
        let read = sent.read().await.unwrap();
        assert_eq!(read, sent.segment);
        let outcomes = sent.world.committer(WID).commit(vec![read]).await;
        let [(0, SegmentOutcome::Durable { .. })] = &outcomes[..] else {
            panic!("{outcomes:?}");
        };
        assert_eq!(sent.world.manifests("main").await.len(), 1);
    }
}

#[tokio::test]
async fn offsets_too_long_for_a_message_come_from_the_manifest() {
    let ranges: Vec<(i32, i64, i64)> = (0..6_000).map(|p| (p, 1 << 40, 1 << 41)).collect();
    let sent = sent(FormatVersion::V2, &ranges).await;
    assert_eq!(sent.remote.message.ranges, None);
    assert_eq!(sent.read().await.unwrap(), sent.segment);
}

// Promise: A message of the control topic commits no files but those that a task of the connector sealed for it.
#[tokio::test]
async fn only_the_segment_that_was_sealed_comes_back() {
    let sent = sent(FormatVersion::V2, &[(0, 0, 10)]).await;
    let loaded = sent.world.load().await;
    let path = sent.remote.message.manifests[0].path.clone();
    let bytes = loaded.storage.get(&path).await.unwrap();
    let copy = format!("{}/data/copy-m.avro", loaded.metadata.location());
    loaded.storage.put(&copy, bytes).await.unwrap();
    type Change = Box<dyn FnOnce(&mut RemoteSegment)>;
    let forged: Vec<(&str, Change)> = vec![
        (
            "another session",
            Box::new(|r| r.session = Uuid::from_u128(6)),
        ),
        ("another number", Box::new(|r| r.message.seq = 4)),
        (
            "other offsets",
            Box::new(|r| {
                let ranges = r.message.ranges.as_mut().unwrap();
                ranges.ranges[0].lowest = Some(1);
            }),
        ),
        ("no offsets", Box::new(|r| r.message.ranges = None)),
        (
            "a place of its own",
            Box::new(move |r| r.message.manifests[0].path = copy),
        ),
        (
            "a way around",
            Box::new(|r| {
                let path = &mut r.message.manifests[0].path;
                *path = path.replace("/metadata/", "/metadata/../metadata/");
            }),
        ),
        (
            "another count",
            Box::new(|r| r.message.manifests[0].rows = 11),
        ),
        (
            "other files",
            Box::new(|r| r.message.manifests[0].files = 3),
        ),
    ];
    for (name, change) in forged {
        let read = sent.read_with(change).await;
        assert!(matches!(read, Err(Unsealed::Forged(_))), "{name}: {read:?}");
    }
    let foreign = read_sealed(&loaded, "ffeeddccbbaa9988", &sent.remote, false).await;
    assert!(matches!(foreign, Err(Unsealed::Forged(_))), "{foreign:?}");
}

#[tokio::test]
async fn a_session_hears_that_its_files_are_of_no_use_any_more() {
    let sent = sent(FormatVersion::V2, &[(0, 0, 10)]).await;
    let lost: [Change; 4] = [
        Box::new(|r| r.message.uuid = Uuid::from_u128(1)),
        Box::new(|r| r.message.manifests[0].len += 1),
        Box::new(|r| r.message.manifests[0].sha256[0] ^= 1),
        Box::new(|r| r.message.manifests[0].spec_id = 9),
    ];
    for change in lost {
        let read = sent.read_with(change).await;
        assert!(matches!(read, Err(Unsealed::Lost(_))), "{read:?}");
    }
    let loaded = sent.world.load().await;
    let path = &sent.remote.message.manifests[0].path;
    let (store, path) = loaded.storage.store(path).unwrap();
    store.delete(&path).await.unwrap();
    let read = sent.read().await;
    assert!(matches!(read, Err(Unsealed::Lost(_))), "{read:?}");
    // Files elsewhere than the table's are not taken in either.
    let elsewhere = vec![vec![file_at("file:///elsewhere/a.parquet", 10)]];
    let segment = sent
        .world
        .segment_of(SESSION, 3, &[(0, 0, 10)], elsewhere)
        .await;
    let read = sent
        .read_with(|r| r.message = SegmentMessage::new(&segment, false, 0, 1))
        .await;
    assert!(matches!(read, Err(Unsealed::Lost(_))), "{read:?}");
}

fn remote_of(segment: &Segment) -> RemoteSegment {
    RemoteSegment {
        session: segment.session,
        epoch: segment.epoch,
        message: SegmentMessage::new(segment, false, 0, 3_600_000),
        expires_in_ms: 3_600_000,
    }
}

/// Partitions without rows, so many that their offsets are too long for a message.
fn many_idle() -> Vec<SourceRange> {
    let range = |partition| SourceRange {
        partition: TopicPartition::new("t", partition),
        start: Some(1 << 40),
        end: 1 << 41,
        lowest: None,
        timestamp_max_ms: None,
    };
    (10..6_010).map(range).collect()
}

// Promise: A segment that only deletes comes back from the file with its keys, also when its offsets are too long for a message, and is committed.
#[tokio::test]
async fn deletes_alone_come_back_with_their_offsets() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        for idle in [Vec::new(), many_idle()] {
            let mut table = Changed::new("t", version).await;
            table.commit(&[put((1, 0, 1)), put((2, 0, 1))]).await;
            let fits = idle.is_empty();
            table.idle = idle;
            let segment = table.segment(1, 0, &[delete(2)]).await;
            assert!(segment.manifests.is_empty());
            let remote = remote_of(&segment);
            assert_eq!(remote.message.ranges.is_some(), fits);
            let read = read_sealed(&table.world.load().await, WID, &remote, true).await;
            let read = read.unwrap().segment;
            assert_eq!(read, segment);
            assert_eq!(letters(&table.committer.commit(vec![read]).await), "D");
            table.expect(&[delete(2)]);
            table.check().await;
        }
    }
}

// Promise: A message of the control topic names no keys of changes but those of its own segment: of a table with changes, of this session, under the table's data.
#[tokio::test]
async fn only_the_keys_that_were_sealed_come_back() {
    let mut table = Changed::new("t", FormatVersion::V2).await;
    let sealed = table.segment(1, 0, &[put((1, 0, 1))]).await;
    let other = table.segment(2, 0, &[put((2, 0, 1))]).await;
    let remote = remote_of(&sealed);
    let loaded = table.world.load().await;
    let read = read_sealed(&loaded, WID, &remote, true).await;
    assert_eq!(read.unwrap().segment, sealed);
    let path = &sealed.key_run.as_ref().unwrap().path;
    let copy = format!("{}-elsewhere/x-keys.parquet", loaded.metadata.location());
    let bytes = loaded.storage.get(path).await.unwrap();
    loaded.storage.put(&copy, bytes).await.unwrap();
    let keys = |change: &dyn Fn(&mut KeyRunRef)| {
        let mut remote = remote.clone();
        change(remote.message.key_run.as_mut().unwrap());
        remote
    };
    let with = |change: &dyn Fn(&mut SegmentMessage)| {
        let mut remote = remote.clone();
        change(&mut remote.message);
        remote
    };
    let forged = [
        ("none", with(&|message| message.key_run = None)),
        ("elsewhere", keys(&|run| run.path = copy.clone())),
        (
            "a way around",
            keys(&|run| run.path = run.path.replace("/data/", "/data/../data/")),
        ),
        ("too long", keys(&|run| run.len = 1 << 40)),
        ("too many", keys(&|run| run.rows = 1 << 40)),
        ("another count", keys(&|run| run.rows += 1)),
        (
            "another session's",
            with(&|message| message.key_run = other.key_run.clone()),
        ),
    ];
    for (name, remote) in forged {
        let read = read_sealed(&loaded, WID, &remote, true).await;
        assert!(matches!(read, Err(Unsealed::Forged(_))), "{name}: {read:?}");
    }
    // A table that is appended to takes none.
    let read = read_sealed(&loaded, WID, &remote, false).await;
    assert!(matches!(read, Err(Unsealed::Forged(_))), "{read:?}");
    // Offsets that the keys do not vouch for; without manifests nothing else does.
    let deletes = table.segment(1, 0, &[delete(1)]).await;
    let mut remote = remote_of(&deletes);
    let ranges = remote.message.ranges.as_mut().unwrap();
    ranges.ranges[0].lowest = None;
    let read = read_sealed(&loaded, WID, &remote, true).await;
    assert!(matches!(read, Err(Unsealed::Forged(_))), "{read:?}");
    remote.message.ranges = None;
    let read = read_sealed(&loaded, WID, &remote, true).await;
    assert!(matches!(read, Err(Unsealed::Forged(_))), "{read:?}");
    // A file that is gone has to be written again.
    let lost = keys(&|run| run.path.push('x'));
    let read = read_sealed(&loaded, WID, &lost, true).await;
    assert!(matches!(read, Err(Unsealed::Lost(_))), "{read:?}");
}
