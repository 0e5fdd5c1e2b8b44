//! Files that are read as they were written, and those that are not.

use super::*;

fn file() -> Vec<u8> {
    let mut file = PuffinFile::new();
    let first = file.add(Blob::deletion_vector("s3://b/t/data/a.parquet", 3), b"abc");
    let second = file.add(
        Blob::deletion_vector("s3://b/t/data/b.parquet", 1),
        b"defgh",
    );
    assert_eq!((first.offset, first.length), (4, 3));
    assert_eq!((second.offset, second.length), (7, 5));
    let (bytes, footer) = file.finish().unwrap();
    assert_eq!(bytes.len() as u64, 4 + 8 + footer);
    bytes
}

fn footer_of(bytes: &[u8]) -> Footer {
    match read_footer(bytes, bytes.len() as u64).unwrap() {
        Tail::Footer(footer) => footer,
        Tail::Needs(more) => panic!("{more} bytes of {} are needed", bytes.len()),
    }
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let bytes = file();
    assert_eq!(bytes[..4], MAGIC);
    let footer = footer_of(&bytes);
    let blob = &footer.blobs[1];
    assert_eq!(blob.kind, DELETION_VECTOR);
    assert_eq!(blob.fields, [2_147_483_645]);
    assert_eq!((blob.snapshot_id, blob.sequence_number), (-1, -1));
    assert_eq!(
        blob.properties[REFERENCED_DATA_FILE],
        "s3://b/t/data/b.parquet"
    );
    assert_eq!(blob.properties[CARDINALITY], "1");
    assert_eq!(
        &bytes[blob.offset as usize..][..blob.length as usize],
        b"defgh"
    );
    let json = String::from_utf8_lossy(&bytes);
    assert!(!json.contains("compression-codec"), "{json}");
    assert!(json.contains("\"created-by\":\"frazil "), "{json}");
}

#[test]
fn a_footer_is_read_from_the_end() {
    let bytes = file();
    let length = bytes.len() as u64;
    let Tail::Needs(first) = read_footer(&[], length).unwrap() else {
        panic!("nothing was given");
    };
    let tail = &bytes[bytes.len() - first as usize..];
    let Tail::Needs(all) = read_footer(tail, length).unwrap() else {
        panic!("the footer is longer than its end");
    };
    let tail = &bytes[bytes.len() - all as usize..];
    assert_eq!(
        read_footer(tail, length).unwrap(),
        Tail::Footer(footer_of(&bytes))
    );
    assert_eq!(read_footer(&tail[1..], length).unwrap(), Tail::Needs(all));
}

#[test]
fn a_file_that_is_none_is_refused() {
    let bytes = file();
    let length = bytes.len() as u64;
    let code = |bytes: &[u8], length: u64| read_footer(bytes, length).unwrap_err().code();
    let changed = |from_end: usize, byte: u8| {
        let mut bytes = bytes.clone();
        let at = bytes.len() - from_end;
        bytes[at] = byte;
        bytes
    };
    // The last magic, the flags, the length, the JSON.
    assert_eq!(code(&changed(1, 0), length), "PUFFIN_CORRUPT");
    assert_eq!(code(&changed(8, 1), length), "PUFFIN_UNSUPPORTED");
    assert_eq!(code(&changed(8, 2), length), "PUFFIN_CORRUPT");
    assert_eq!(code(&changed(9, 0x7f), length), "PUFFIN_CORRUPT");
    assert_eq!(code(&changed(10, 1), length), "PUFFIN_CORRUPT");
    assert_eq!(code(&changed(13, b'{'), length), "PUFFIN_CORRUPT");
    assert_eq!(code(&bytes[5..], length - 5), "PUFFIN_CORRUPT");
    assert_eq!(code(&[], 3), "PUFFIN_CORRUPT");
    let mut layout = Layout::new();
    layout.place(Blob::deletion_vector("a", 1), 1 << 40);
    let footer = layout.finish().unwrap();
    let outside = [&MAGIC[..], b"abc", &footer].concat();
    assert_eq!(code(&outside, outside.len() as u64), "PUFFIN_CORRUPT");
}
