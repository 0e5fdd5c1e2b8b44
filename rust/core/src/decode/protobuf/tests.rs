//! Protobuf: what Confluent's converter makes of messages, vectors of the encoding, random messages
//! against a second encoder, and bytes of all kinds.

use super::ProtobufDecoder;
use crate::decode::columns::ColumnsBuilder;
use crate::decode::refused::Refused;
use crate::decode::testing::show;

mod descriptors;
mod messages;
mod schemas;

fn decoder(text: &str) -> ProtobufDecoder {
    ProtobufDecoder::new(text, &[], &[0]).unwrap()
}

/// Decodes one value after the other; a refused one is null.
fn decode(
    decoder: &mut ProtobufDecoder,
    values: &[&[u8]],
) -> (ColumnsBuilder, Vec<Option<Refused>>) {
    let mut columns = ColumnsBuilder::new(decoder.schema()).unwrap();
    let mut refused = Vec::new();
    for value in values {
        let (column, budget) = columns.row();
        match decoder.decode(value, column, budget) {
            Ok(()) => {
                columns.end_row();
                refused.push(None);
            }
            Err(error) => {
                columns.abandon_row();
                refused.push(Some(error));
            }
        }
    }
    (columns, refused)
}

/// Decodes one message that is right and shows it.
fn shown(text: &str, bytes: &[u8]) -> String {
    let mut decoder = decoder(text);
    let (columns, refused) = decode(&mut decoder, &[bytes]);
    assert_eq!(refused, [None], "{text}");
    show(columns.column().unwrap().cell(0))
}

fn refusal(text: &str, bytes: &[u8]) -> Refused {
    let (_, mut refused) = decode(&mut decoder(text), &[bytes]);
    refused
        .remove(0)
        .unwrap_or_else(|| panic!("{text} took {bytes:?}"))
}
