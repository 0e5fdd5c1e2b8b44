//! The order of changes in their source, as bytes that compare as the changes do.
//!
//! ```text
//!  domain (8 bytes) │ the parts, most significant first │ 0 for a row of a snapshot, else 1
//! ```
//!
//! Orders of different domains say nothing about each other: the numbers of another server, or of
//! one that was set up anew, begin again. What arrives later counts there. In one domain the bytes
//! compare as a whole, and a row of a snapshot is older than a change at the same place.
//!
//! Equal orders happen: a source may give all changes of one statement the same place. What arrives
//! later counts, so the same changes delivered again end in the same rows.
//!
//! An order must never be lower than that of a change of the same key that the source had sent before:
//! the change would be dropped. So a preset orders by what rises as its source sends, and gives no
//! order where that is not sure. A change that counts by its arrival and comes again is put right by
//! those after it, which come again too.
//!
//! For PostgreSQL that is the place of the last commit, and then the change's own. The log has the
//! changes of transactions side by side and the source sends them by their commits, so the change's own
//! place goes back and forth, if not for one row, which a transaction keeps locked until its end. Rows
//! of snapshots are not locked: one of an incremental snapshot has the place that the source had come
//! to when it sent the row, which is behind changes of transactions that were open then and are sent
//! later; only the last commit tells it from these. One of any other snapshot is sent before a commit
//! is known; it counts as it arrives, also after the source was read anew.

use std::cmp::Ordering;
use std::ops::Range;

use serde::Deserialize;

use super::domain::Domain;
use super::envelope::Op;
pub use super::form::Form;
use super::form::Written;
use super::place::{Located, Place};
use crate::convert::Reason;
use crate::error::{Result, SinkError};
use crate::limits::ORDER_BYTES_MAX;
use crate::wire::{Cell, Frame};

/// The last byte of an order.
const OF_SNAPSHOT: u8 = 0;
const OF_CHANGE: u8 = 1;

/// The order of one change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order<'a>(&'a [u8]);

impl<'a> Order<'a> {
    /// Takes bytes that an evaluator wrote.
    pub fn of(bytes: &'a [u8]) -> Self {
        Order(bytes)
    }

    /// Returns the bytes, to keep them.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Returns a number for the source that it is an order of.
    pub(super) fn source(&self) -> u64 {
        let domain = self.0.first_chunk::<{ Domain::BYTES }>();
        domain.map_or(0, |domain| u64::from_be_bytes(*domain))
    }

    /// Tells whether both are at one place of the source: a change of a key, what it removes
    /// ([`old_order`](super::Changes::old_order)), and a row of a snapshot there.
    pub fn is_at_place_of(&self, other: &Order<'_>) -> bool {
        let place = |order: &Order<'_>| order.0.len().checked_sub(1);
        match (place(self), place(other)) {
            (Some(end), Some(other_end)) => self.0.get(..end) == other.0.get(..other_end),
            _ => false,
        }
    }

    /// Compares two orders; `None` when neither says anything about the other.
    pub fn compare(&self, other: &Order<'_>) -> Option<Ordering> {
        let (domain, rest) = self.0.split_at_checked(Domain::BYTES)?;
        let (other_domain, other_rest) = other.0.split_at_checked(Domain::BYTES)?;
        (domain == other_domain).then(|| rest.cmp(other_rest))
    }
}

/// Tells whether a change is known to be older than another one that came before it. Changes without
/// an order are as old as their arrival.
pub fn is_older(order: Option<Order<'_>>, than: Option<Order<'_>>) -> bool {
    match (order, than) {
        (Some(order), Some(than)) => order.compare(&than) == Some(Ordering::Less),
        _ => false,
    }
}

/// Copies an order so that it is before all changes at its place; where `out` has no such bytes, nothing.
pub(super) fn put_before_changes(order: Range<usize>, out: &mut Vec<u8>) {
    if out
        .get(order.clone())
        .is_some_and(|order| !order.is_empty())
    {
        out.extend_from_within(order);
        if let Some(mark) = out.last_mut() {
            *mark = OF_SNAPSHOT;
        }
    }
}

/// One part of an order, written `<form> <place>`; `<form>? <place>` when it may be missing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Part {
    /// The form.
    pub form: Form,
    /// Where it stands.
    pub place: Place,
    /// Whether a record without it has an order all the same: it counts as the lowest.
    pub is_optional: bool,
}

impl TryFrom<String> for Part {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let (form, place) = text
            .split_once(' ')
            .ok_or_else(|| format!("`{text}` is no form and place"))?;
        let form_name = form.trim_end_matches('?');
        let is_optional = form.len() != form_name.len();
        let form = Form::parse(form_name)
            .ok_or_else(|| format!("`{form_name}` is no form of an order"))?;
        if is_optional && !form.can_be_missing() {
            return Err(format!("`{form_name}` cannot be optional"));
        }
        let place = Place::try_from(place.to_owned())?;
        Ok(Part {
            form,
            place,
            is_optional,
        })
    }
}

/// One way in which records are ordered.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Alternative {
    /// The kinds of sources that it is for, all when there are none. Sources write fields of the same
    /// names in other forms: where a record does not tell its source, it is for those of its form.
    #[serde(default)]
    pub connectors: Vec<String>,
    /// The parts, most significant first.
    pub parts: Vec<Part>,
    /// Whether a row of a snapshot has no order by it: its place says when it was read, and changes
    /// of before may still come.
    #[serde(default)]
    pub not_of_snapshots: bool,
    /// What tells apart whose places these are, beside the domain of the rule: a record that lacks one of
    /// these is not ordered so.
    #[serde(default)]
    pub within: Vec<Place>,
}

/// What orders the changes of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OrderRule {
    /// What tells sources apart whose orders have nothing to do with each other.
    #[serde(default)]
    pub domain: Vec<Place>,
    /// The first counts that is for the record's source and of which the record has all that it must
    /// have.
    #[serde(default)]
    pub alternatives: Vec<Alternative>,
}

/// What an order rule has to know of a table and its format.
pub(super) struct Binding<'f> {
    /// A text that makes all orders so far incomparable when it changes.
    pub(super) epoch: &'f str,
    /// Where the kind of the source stands.
    pub(super) connectors: &'f [Place],
}

/// A record whose order is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ordered {
    pub(super) row: usize,
    pub(super) op: Op,
    /// Whether the record would tell if it was of a snapshot; else it may be.
    pub(super) is_told: bool,
}

/// An order rule in one frame.
#[derive(Debug)]
pub(super) struct BoundOrder<'f> {
    domain: Vec<(&'f Place, Located<'f>)>,
    connectors: Vec<Located<'f>>,
    alternatives: Vec<Bound<'f>>,
    seed: Domain,
}

/// An alternative in one frame.
#[derive(Debug)]
struct Bound<'f> {
    rule: &'f Alternative,
    within: Vec<(&'f Place, Located<'f>)>,
    parts: Vec<(&'f Part, Located<'f>)>,
}

/// Whether an alternative is for the source of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    Yes,
    /// The record does not tell its source.
    Maybe,
    No,
}

impl OrderRule {
    /// Returns all places that are looked at.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        let of_all = self.alternatives.iter().flat_map(|alternative| {
            let parts = alternative.parts.iter().map(|part| &part.place);
            alternative.within.iter().chain(parts)
        });
        self.domain.iter().chain(of_all)
    }

    /// Finds the places in `frame`.
    pub(super) fn bind<'f>(&'f self, frame: &'f Frame<'_>, binding: Binding<'f>) -> BoundOrder<'f> {
        let alternatives = self.alternatives.iter();
        let alternatives = alternatives.map(|rule| Bound::of(rule, frame));
        let mut seed = Domain::new();
        seed.text(binding.epoch);
        let domain = self.domain.iter();
        let connectors = binding.connectors.iter();
        BoundOrder {
            domain: domain.map(|place| (place, place.locate(frame))).collect(),
            connectors: connectors.map(|place| place.locate(frame)).collect(),
            alternatives: alternatives.filter(Bound::is_possible).collect(),
            seed,
        }
    }
}

impl<'f> Bound<'f> {
    fn of(rule: &'f Alternative, frame: &'f Frame<'_>) -> Self {
        let parts = rule.parts.iter();
        let parts = parts.map(|part| (part, part.place.locate(frame)));
        let within = rule.within.iter();
        Bound {
            rule,
            within: within.map(|place| (place, place.locate(frame))).collect(),
            parts: parts.collect(),
        }
    }

    fn is_possible(&self) -> bool {
        let possible = |(part, located): &(&Part, Located<'_>)| {
            part.is_optional || !matches!(located, Located::Absent)
        };
        let mut within = self.within.iter();
        self.parts.iter().all(possible) && within.all(|(_, at)| !matches!(at, Located::Absent))
    }

    fn fits(&self, connector: Option<&str>) -> Fit {
        let names = &self.rule.connectors;
        match connector {
            _ if names.is_empty() => Fit::Yes,
            None => Fit::Maybe,
            Some(connector) if names.iter().any(|name| name == connector) => Fit::Yes,
            Some(_) => Fit::No,
        }
    }

    fn is_missing(&self, frame: &'f Frame<'_>, row: usize) -> bool {
        let missing = |(part, located): &(&'f Part, Located<'f>)| {
            !part.is_optional && located.cell(frame, row).is_null()
        };
        let mut within = self.within.iter();
        self.parts.iter().any(missing) || within.any(|(_, at)| at.cell(frame, row).is_null())
    }

    fn write(
        &self,
        frame: &'f Frame<'_>,
        (record, of_snapshot): (Ordered, bool),
        domain: &mut Domain,
        out: &mut Vec<u8>,
    ) -> Result<Written> {
        if of_snapshot && self.rule.not_of_snapshots {
            return Ok(Written::NoOrder);
        }
        for (place, located) in &self.within {
            take(domain, place, located.cell(frame, record.row))?;
        }
        for (part, located) in &self.parts {
            let cell = located.cell(frame, record.row);
            let written = part.form.write(cell, of_snapshot, domain, out);
            match written.map_err(|reason| invalid(&part.place, &cell, reason))? {
                Written::Part => {}
                Written::NoOrder => return Ok(Written::NoOrder),
            }
        }
        put_mark(record.op, out);
        Ok(Written::Part)
    }
}

impl<'f> BoundOrder<'f> {
    /// Appends the order of a record to `out`; `false`, and nothing, when it has none.
    ///
    /// # Errors
    ///
    /// `CHANGE_ORDER_INVALID` for the record.
    pub(super) fn write(
        &self,
        frame: &'f Frame<'_>,
        record: Ordered,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let start = out.len();
        if self.alternatives.is_empty() {
            return Ok(false);
        }
        let of_snapshot = record.op == Op::Read || !record.is_told;
        let connector = self.connector(frame, record.row);
        for alternative in &self.alternatives {
            let fit = alternative.fits(connector);
            if fit == Fit::No || alternative.is_missing(frame, record.row) {
                continue;
            }
            let mut domain = self.domain_of(frame, record.row)?;
            out.extend_from_slice(&[0; Domain::BYTES]);
            match alternative.write(frame, (record, of_snapshot), &mut domain, out) {
                Ok(Written::Part) => {}
                Ok(Written::NoOrder) => {
                    out.truncate(start);
                    break;
                }
                Err(_) if fit == Fit::Maybe => {
                    out.truncate(start);
                    continue;
                }
                Err(error) => {
                    out.truncate(start);
                    return Err(error);
                }
            }
            return finish(out, start, domain);
        }
        Ok(false)
    }

    fn connector(&self, frame: &'f Frame<'_>, row: usize) -> Option<&'f str> {
        let mut cells = self.connectors.iter().map(|place| place.cell(frame, row));
        cells.find_map(|cell| match cell {
            Cell::String(name) => Some(name),
            _ => None,
        })
    }

    fn domain_of(&self, frame: &'f Frame<'_>, row: usize) -> Result<Domain> {
        let mut domain = self.seed;
        for (place, located) in &self.domain {
            take(&mut domain, place, located.cell(frame, row))?;
        }
        Ok(domain)
    }
}

/// Takes a value into a domain.
fn take(domain: &mut Domain, place: &Place, cell: Cell<'_>) -> Result<()> {
    let taken = domain.cell(cell);
    taken.map_err(|reason| invalid(place, &cell, reason))
}

/// Appends the last byte of an order.
pub(super) fn put_mark(op: Op, out: &mut Vec<u8>) {
    out.push(match op {
        Op::Read => OF_SNAPSHOT,
        _ => OF_CHANGE,
    });
}

/// Puts the domain in its place in front of the parts.
///
/// # Errors
///
/// `CHANGE_ORDER_INVALID` when the order is too long.
pub(super) fn finish(out: &mut Vec<u8>, start: usize, domain: Domain) -> Result<bool> {
    if out.len() - start > ORDER_BYTES_MAX {
        out.truncate(start);
        let message = format!("the order of the record is longer than {ORDER_BYTES_MAX} bytes");
        return Err(SinkError::data("CHANGE_ORDER_INVALID", message));
    }
    if let Some(place) = out.get_mut(start..start + Domain::BYTES) {
        place.copy_from_slice(&domain.bytes());
    }
    Ok(true)
}

fn invalid(place: &Place, cell: &Cell<'_>, reason: Reason) -> SinkError {
    let place = match place {
        Place::Value(path) => format!("value.{path}"),
        Place::Key(path) => format!("key.{path}"),
        Place::Header(name) => format!("header.{name}"),
    };
    let message = format!(
        "`{place}` does not order changes: its value is not of the form that this source has"
    );
    SinkError::data("CHANGE_ORDER_INVALID", message)
        .with("source_type", cell.type_name())
        .with("reason", reason.code())
}
