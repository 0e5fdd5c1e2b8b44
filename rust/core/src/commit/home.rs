//! Tables that answer for all tables of a writer which resets there were.
//!
//! Every table of a writer has its resets ([`Anchor`]), so a start that knew one which the newest reset
//! certainly reached would need no other. A *home* is a table that says so of itself: the property
//! `frazil.h.<wid>` means "when this was written, the resets up to this epoch stood on every table
//! that the writer had in this scope". A reset takes the property away everywhere before it writes the
//! first anchor, so there is no home while a reset is under way, or after one that was cut off.

use iceberg::spec::TableMetadata;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::anchor::Anchor;
use crate::error::{Result, SinkError};

/// The layout of the property that this version reads and writes.
const LAYOUT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Property {
    v: u32,
    e: u64,
    u: Uuid,
    s: String,
}

/// Returns the name of the property that makes a table a home of `wid`.
pub fn home_key(wid: &str) -> String {
    format!("frazil.h.{wid}")
}

/// Returns the value of the property: `epoch` is that of the newest reset, `uuid` the table's, and
/// `scope` stands for the places in which the writer's tables were looked for.
///
/// # Errors
///
/// An internal error when it cannot be written.
pub fn home_value(epoch: u64, uuid: Uuid, scope: &str) -> Result<String> {
    let property = Property {
        v: LAYOUT,
        e: epoch,
        u: uuid,
        s: scope.to_owned(),
    };
    serde_json::to_string(&property).map_err(|error| {
        SinkError::internal("cannot write the property of a home").caused_by(error)
    })
}

/// Returns the epoch of the newest reset when the table is a home for `scope`. It is none when the
/// property is not understood, was copied from another table, or does not fit the anchor beside it:
/// then all tables have to be asked.
pub fn epoch_at_home(
    metadata: &TableMetadata,
    wid: &str,
    scope: &str,
    anchor: &Anchor,
) -> Option<u64> {
    let text = metadata.properties().get(&home_key(wid))?;
    let home: Property = serde_json::from_str(text).ok()?;
    let fits = home.v == LAYOUT
        && home.u == metadata.uuid()
        && home.s == scope
        && home.e == anchor.epoch();
    fits.then_some(home.e)
}
