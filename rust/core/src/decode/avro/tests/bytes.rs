//! Bytes that nobody wrote: never a panic, never more memory than the limits say.

use proptest::prelude::*;

use super::*;

const SCHEMAS: [&str; 4] = [
    r#"{"type":"record","name":"r","fields":[
        {"name":"a","type":["null","string"]},{"name":"b","type":{"type":"array","items":
        {"type":"map","values":["null","long","bytes"]}}},{"name":"c","type":
        {"type":"enum","name":"e","symbols":["A","B"]}},{"name":"d","type":
        {"type":"fixed","name":"f","size":3}},{"name":"e","type":"double"}]}"#,
    r#"{"type":"array","items":{"type":"record","name":"r","fields":[]}}"#,
    r#"{"type":"map","values":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}}"#,
    r#"{"type":"array","items":{"type":"record","name":"MapEntry","connect.internal.type":"MapEntry",
        "fields":[{"name":"key","type":["null","int"]},{"name":"value","type":"string"}]}}"#,
];

proptest! {
    // Promise: Any bytes given as Avro become a row or an error of their record: no panic, bounded memory.
    #[test]
    fn any_bytes_become_a_row_or_are_refused(
        which in 0..SCHEMAS.len(),
        rows in prop::collection::vec(prop::collection::vec(
            prop_oneof![3 => 0..8_u8, 1 => any::<u8>()], 0..64), 1..8),
    ) {
        let mut decoder = decoder(SCHEMAS[which]);
        let values: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        let (columns, refused) = decode(&mut decoder, &values);
        let column = columns.column().unwrap();
        prop_assert_eq!(column.rows(), rows.len());
        for (row, refused) in refused.iter().enumerate() {
            if let Some(refused) = refused {
                prop_assert!(column.is_null(row));
                prop_assert!(["DECODE_MALFORMED", "DECODE_TOO_LARGE"].contains(&refused.code()));
            }
        }
    }

    #[test]
    fn any_text_is_a_schema_or_is_refused(text in r#"[\[\]{}",:a-z0-9 ]{0,80}"#) {
        if let Err(error) = AvroDecoder::new(&text, &[]) {
            prop_assert!(error.code().starts_with("SCHEMA_"), "{}", error.code());
        }
    }
}
