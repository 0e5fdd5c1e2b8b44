//! Which schema a record was written with, and where its bytes begin.
//!
//! ```text
//! 00 iiiiiiii                body   Confluent: a 4-byte id
//! 00 00000000 iiiiiiii       body   Apicurio: an 8-byte id; Confluent's ids begin at 1
//! 01 gggggggggggggggg        body   Confluent: a 16-byte GUID
//! header __value_schema_id          the same bytes in a header, the value is all body
//! header apicurio.value.globalId    Apicurio: an 8-byte id in a header, the value is all body
//! ```
//!
//! A header counts before the bytes: with one, a value that begins with 0 has no frame. Protobuf has
//! message indexes between frame and body: [`split_indexes`].

use std::sync::Arc;

use super::bytes::{Cursor, malformed};
use super::refused::Refused;

/// Names a schema in its registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SchemaKey {
    /// The id of a Confluent frame of 4 bytes.
    Id(u32),
    /// The id of an Apicurio frame of 8 bytes: global or content, as the registry is set up.
    LongId(i64),
    /// Apicurio's global id.
    GlobalId(i64),
    /// Apicurio's content id.
    ContentId(i64),
    /// Confluent's GUID.
    Guid([u8; 16]),
    /// The newest schema of a subject; which one it is, the registry says.
    Subject(Arc<str>),
    /// The SHA-256 of a schema's text, where a registry gave no id with it.
    Digest([u8; 32]),
}

/// Whether a value or a key is framed; they have headers of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The record's value.
    Value,
    /// The record's key.
    Key,
}

/// A framed value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Framed<'a> {
    /// The schema that it was written with.
    pub key: SchemaKey,
    /// What follows the frame. For Protobuf it begins with the message indexes, unless
    /// `indexes_in` has them.
    pub body: &'a [u8],
    /// What follows the id in a header: Protobuf's message indexes.
    pub indexes_in: Option<&'a [u8]>,
}

/// The steps to a message type inside of a file: of the file's messages, then of those inside.
pub const MESSAGE_INDEXES_MAX: usize = 32;

const MAGIC_ID: u8 = 0;
const MAGIC_GUID: u8 = 1;

/// Returns what the headers say of the schema, `None` when they say nothing. `header` finds the
/// bytes of the last header with a name.
pub fn from_headers<'a>(
    part: Part,
    header: &dyn Fn(&str) -> Option<&'a [u8]>,
    body: &'a [u8],
) -> Result<Option<Framed<'a>>, Refused> {
    let (confluent, global, content) = match part {
        Part::Value => (
            "__value_schema_id",
            "apicurio.value.globalId",
            "apicurio.value.contentId",
        ),
        Part::Key => (
            "__key_schema_id",
            "apicurio.key.globalId",
            "apicurio.key.contentId",
        ),
    };
    if let Some(bytes) = header(confluent) {
        let framed = from_bytes(bytes)?;
        return Ok(Some(Framed {
            key: framed.key,
            body,
            indexes_in: Some(framed.body),
        }));
    }
    let long = |bytes: &[u8]| match <[u8; 8]>::try_from(bytes) {
        Ok(bytes) => Ok(i64::from_be_bytes(bytes)),
        Err(_) => Err(malformed("the schema id in a header does not have 8 bytes")),
    };
    let key = match (header(global), header(content)) {
        (Some(bytes), _) => SchemaKey::GlobalId(long(bytes)?),
        (None, Some(bytes)) => SchemaKey::ContentId(long(bytes)?),
        (None, None) => return Ok(None),
    };
    Ok(Some(Framed {
        key,
        body,
        indexes_in: None,
    }))
}

/// Reads the frame at the start of `bytes`.
pub fn from_bytes(bytes: &[u8]) -> Result<Framed<'_>, Refused> {
    let mut cursor = Cursor::new(bytes);
    let key = match cursor.u8()? {
        MAGIC_ID => match u32::from_be_bytes(cursor.array()?) {
            0 => SchemaKey::LongId(i64::from(u32::from_be_bytes(cursor.array()?))),
            id => SchemaKey::Id(id),
        },
        MAGIC_GUID => SchemaKey::Guid(cursor.array()?),
        _ => {
            let problem =
                "the bytes do not begin with a schema id: their first byte is neither 0 nor 1";
            return Err(malformed(problem).at(0));
        }
    };
    if key == SchemaKey::LongId(0) {
        return Err(malformed("the schema id is 0"));
    }
    Ok(Framed {
        key,
        body: cursor.rest(),
        indexes_in: None,
    })
}

/// Splits `bytes` behind the message indexes that they begin with. The first message of a file has
/// the short form, one byte 0.
pub fn split_indexes(bytes: &[u8]) -> Result<(&[u8], &[u8]), Refused> {
    let mut cursor = Cursor::new(bytes);
    let count = cursor.zigzag32()?;
    let count = usize::try_from(count)
        .ok()
        .filter(|count| *count <= MESSAGE_INDEXES_MAX);
    let count =
        count.ok_or_else(|| cursor.bad("the number of message indexes is out of bounds"))?;
    for _ in 0..count {
        if cursor.zigzag32()? < 0 {
            return Err(cursor.bad("a message index is below 0"));
        }
    }
    Ok(bytes
        .split_at_checked(cursor.position())
        .unwrap_or_default())
}

/// Reads the message indexes that [`split_indexes`] found.
pub fn indexes(bytes: &[u8]) -> Result<Vec<u32>, Refused> {
    let mut cursor = Cursor::new(bytes);
    if cursor.zigzag32()? == 0 {
        return Ok(vec![0]);
    }
    let mut indexes = Vec::new();
    while cursor.remaining() > 0 {
        let index = u32::try_from(cursor.zigzag32()?);
        indexes.push(index.map_err(|_| cursor.bad("a message index is below 0"))?);
    }
    Ok(indexes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> Option<&'static [u8]> {
        None
    }

    // Promise: A schema id of 4 bytes, of 8 bytes, as a GUID and in a header are told apart.
    #[test]
    fn frames_are_told_apart() {
        let framed = |bytes| from_bytes(bytes).map(|framed| (framed.key, framed.body));
        assert_eq!(
            framed(&[0, 0, 0, 1, 2, 7, 8]),
            Ok((SchemaKey::Id(258), &[7u8, 8][..]))
        );
        assert_eq!(
            framed(&[0, 0, 0, 0, 0, 0, 0, 0, 5, 9]),
            Ok((SchemaKey::LongId(5), &[9u8][..]))
        );
        let mut guid = vec![1];
        guid.extend(1..=16);
        guid.push(42);
        assert_eq!(
            framed(&guid),
            Ok((
                SchemaKey::Guid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]),
                &[42u8][..]
            ))
        );
    }

    #[test]
    fn a_header_counts_before_the_bytes() {
        let id = 7i64.to_be_bytes();
        let global = |name: &str| (name == "apicurio.value.globalId").then_some(&id[..]);
        let framed = from_headers(Part::Value, &global, &[0, 0, 0, 0, 9]);
        let framed = framed.unwrap().unwrap();
        assert_eq!(framed.key, SchemaKey::GlobalId(7));
        assert_eq!(framed.body, &[0, 0, 0, 0, 9]);
        // The value's header says nothing of the key.
        assert_eq!(from_headers(Part::Key, &global, &[]), Ok(None));

        let content = |name: &str| (name == "apicurio.key.contentId").then_some(&id[..]);
        let framed = from_headers(Part::Key, &content, &[]).unwrap().unwrap();
        assert_eq!(framed.key, SchemaKey::ContentId(7));

        let confluent = [0, 0, 0, 0, 3, 2, 4];
        let header = |name: &str| (name == "__value_schema_id").then_some(&confluent[..]);
        let framed = from_headers(Part::Value, &header, b"body")
            .unwrap()
            .unwrap();
        assert_eq!(framed.key, SchemaKey::Id(3));
        assert_eq!(framed.body, b"body");
        assert_eq!(framed.indexes_in, Some(&[2u8, 4][..]));
        assert_eq!(from_headers(Part::Value, &none, b"x"), Ok(None));
    }

    // Promise: Bytes without a schema id are an error of their record.
    #[test]
    fn broken_frames_are_refused() {
        for bytes in [
            &b""[..],
            b"{\"a\":1}",
            &[0],
            &[0, 0, 0, 1],
            &[0, 0, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[1, 2, 3],
            &[2, 0, 0, 0, 1],
        ] {
            assert!(from_bytes(bytes).is_err(), "{bytes:?}");
        }
        let short = |name: &str| (name == "apicurio.value.globalId").then_some(&[1u8, 2][..]);
        assert!(from_headers(Part::Value, &short, &[]).is_err());
    }

    #[test]
    fn message_indexes_have_a_short_form() {
        let split = |bytes| {
            let (own, rest) = split_indexes(bytes).unwrap();
            (indexes(own).unwrap(), rest)
        };
        assert_eq!(split(&[0, 5]), (vec![0], &[5u8][..]));
        // Two indexes, 1 and 0.
        assert_eq!(split(&[4, 2, 0, 5]), (vec![1, 0], &[5u8][..]));
        for bytes in [
            &b""[..],
            &[2],
            &[1],
            &[2, 1],
            &[0x80, 0x01, 0],
            &[0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert!(split_indexes(bytes).is_err(), "{bytes:?}");
        }
    }
}
