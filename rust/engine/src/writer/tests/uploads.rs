use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::stores::{Record, Recorder, Rooted};
use crate::memory::Meter;
use crate::writer::upload::{PART_BYTES, Uploads};

fn uploads(record: Record) -> (Arc<Record>, Uploads) {
    let record = Arc::new(record);
    let store = Arc::new(Rooted {
        store: Arc::new(Recorder(record.clone())),
        root: "memory:/",
    });
    let turns = Arc::new(Semaphore::new(2));
    let uploads = Uploads::new(store, Handle::current(), Meter::detached(), turns);
    (record, uploads)
}

/// Bytes that are not the same in any two parts.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8).collect()
}

#[tokio::test]
async fn parts_of_a_large_file_have_the_same_size() {
    let (record, uploads) = uploads(Record::default());
    let data = bytes(3 * PART_BYTES + 5);
    let mut upload = uploads.start("memory:/f").unwrap();
    for chunk in data.chunks(1_000_003) {
        upload.write_all(chunk).unwrap();
    }
    assert_eq!(upload.written(), data.len() as u64);
    upload.finish().unwrap().await.unwrap().unwrap();
    let parts = record.parts.lock().unwrap();
    let sizes: Vec<_> = parts.iter().map(|part| part.len()).collect();
    assert_eq!(sizes, [PART_BYTES, PART_BYTES, PART_BYTES, 5]);
    assert!(parts.concat() == data);
    assert!(record.completed.load(Ordering::SeqCst));
    assert_eq!(record.puts.load(Ordering::SeqCst), 0);
    assert_eq!(uploads.in_flight(), 0);
}

#[tokio::test]
async fn a_file_of_whole_parts_has_no_empty_one() {
    let (record, uploads) = uploads(Record::default());
    let mut upload = uploads.start("memory:/f").unwrap();
    upload.write_all(&bytes(2 * PART_BYTES)).unwrap();
    upload.finish().unwrap().await.unwrap().unwrap();
    assert_eq!(record.parts.lock().unwrap().len(), 2);
    assert!(record.completed.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_small_file_is_one_put() {
    let (record, uploads) = uploads(Record::default());
    let mut upload = uploads.start("memory:/f").unwrap();
    upload.write_all(b"small").unwrap();
    upload.finish().unwrap().await.unwrap().unwrap();
    assert_eq!(record.puts.load(Ordering::SeqCst), 1);
    assert!(record.parts.lock().unwrap().is_empty());
    assert_eq!(uploads.in_flight(), 0);
}

#[tokio::test]
async fn a_part_that_fails_aborts_the_upload_and_is_reported() {
    let (record, uploads) = uploads(Record {
        fail_part: Some(1),
        ..Record::default()
    });
    let mut upload = uploads.start("memory:/f").unwrap();
    upload.write_all(&bytes(4 * PART_BYTES)).unwrap();
    let error = upload.finish().unwrap().await.unwrap().unwrap_err();
    assert_eq!(error.code(), "TEST_STORE");
    assert_eq!(uploads.check().unwrap_err().code(), "TEST_STORE");
    assert!(record.aborted.load(Ordering::SeqCst));
    assert!(!record.completed.load(Ordering::SeqCst));
    assert_eq!(uploads.in_flight(), 0);
}

#[tokio::test]
async fn a_put_that_fails_is_reported() {
    let (_, uploads) = uploads(Record {
        fail_put: true,
        ..Record::default()
    });
    let mut upload = uploads.start("memory:/f").unwrap();
    upload.write_all(b"small").unwrap();
    let error = upload.finish().unwrap().await.unwrap().unwrap_err();
    assert_eq!(error.code(), "TEST_STORE");
}

// Promise: a file that the store acknowledged and did not keep whole is not used
// Injection: 25
#[tokio::test]
async fn a_file_that_was_cut_is_an_error() {
    for length in [5, PART_BYTES + 5] {
        let (_, uploads) = uploads(Record {
            lost: 1,
            ..Record::default()
        });
        let mut upload = uploads.start("memory:/f").unwrap();
        for chunk in bytes(length).chunks(PART_BYTES) {
            upload.write_all(chunk).unwrap();
        }
        let error = upload.finish().unwrap().await.unwrap().unwrap_err();
        assert_eq!(error.code(), "STORAGE_FILE_CUT");
        assert_eq!(error.kind(), frazil_core::ErrorKind::Retriable);
        assert_eq!(uploads.check().unwrap_err().code(), "STORAGE_FILE_CUT");
    }
}

#[tokio::test]
async fn a_dropped_writer_aborts_its_upload() {
    let (record, uploads) = uploads(Record::default());
    let mut upload = uploads.start("memory:/f").unwrap();
    upload.write_all(&bytes(PART_BYTES + 1)).unwrap();
    drop(upload);
    for _ in 0..1_000 {
        if record.aborted.load(Ordering::SeqCst) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(record.aborted.load(Ordering::SeqCst));
    assert!(!record.completed.load(Ordering::SeqCst));
    assert_eq!(uploads.in_flight(), 0);
}

// Promise: a task sends its storage no more than 32 requests of uploads at a time, however many files end at once
#[tokio::test]
async fn requests_wait_for_their_turns() {
    let record = Arc::new(Record::default());
    let store = Arc::new(Rooted {
        store: Arc::new(Recorder(record.clone())),
        root: "memory:/",
    });
    let turns = Arc::new(Semaphore::new(1));
    let uploads = Uploads::new(store, Handle::current(), Meter::detached(), turns.clone());
    let taken = turns.acquire().await.unwrap();
    let mut small = uploads.start("memory:/small").unwrap();
    let mut large = uploads.start("memory:/large").unwrap();
    small.write_all(&bytes(10)).unwrap();
    large.write_all(&bytes(2 * PART_BYTES)).unwrap();
    let ends = [small.finish().unwrap(), large.finish().unwrap()];
    tokio::time::sleep(Duration::from_millis(50)).await;
    let sent = record.puts.load(Ordering::SeqCst) + record.parts.lock().unwrap().len();
    assert_eq!(sent, 0, "it is nobody's turn");
    drop(taken);
    for end in ends {
        // The recorder knows one file at a time: what it says of their lengths is beside the point.
        drop(end.await.unwrap());
    }
    assert_eq!(record.puts.load(Ordering::SeqCst), 1);
    assert_eq!(record.parts.lock().unwrap().len(), 2);
    assert_eq!(uploads.in_flight(), 0);
}
