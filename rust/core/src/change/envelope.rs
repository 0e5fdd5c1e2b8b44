//! What a format of changes looks like: which operation a record stands for, and where its parts are.
//!
//! An envelope is data, not code: the presets are JSON files of this type, and one evaluator reads
//! them all. Whoever has another format writes another file.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::order::OrderRule;
use super::place::Place;
use crate::error::{Result, SinkError};

/// What a change does to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// A row comes into being; one that is there is replaced, because sources send again.
    Insert,
    /// A row as a snapshot of the source found it.
    Read,
    /// A row is replaced.
    Update,
    /// A row goes.
    Delete,
    /// All rows go.
    Truncate,
}

impl Op {
    /// Tells whether the table has the record's row afterwards.
    pub fn is_upsert(self) -> bool {
        matches!(self, Op::Insert | Op::Read | Op::Update)
    }

    /// Returns the letter of a change log: `c`, `r`, `u`, `d` or `t`.
    pub fn letter(self) -> &'static str {
        match self {
            Op::Insert => "c",
            Op::Read => "r",
            Op::Update => "u",
            Op::Delete => "d",
            Op::Truncate => "t",
        }
    }
}

/// Why a record changes nothing. Each is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// A null after a delete, which says nothing new.
    Tombstone,
    /// A sign of life of the source.
    Heartbeat,
    /// Where a transaction of the source begins or ends.
    Transaction,
    /// A statement that changed the source's schema.
    SchemaChange,
    /// A message that an application put into the source's log.
    Message,
    /// Another record about the stream itself.
    Control,
    /// A truncation that is ignored by configuration.
    Truncate,
}

impl Skip {
    /// Returns the label of metrics.
    pub fn label(self) -> &'static str {
        match self {
            Skip::Tombstone => "tombstone",
            Skip::Heartbeat => "heartbeat",
            Skip::Transaction => "transaction",
            Skip::SchemaChange => "schema-change",
            Skip::Message => "message",
            Skip::Control => "control",
            Skip::Truncate => "truncate",
        }
    }
}

/// What a word of an operation field means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A change.
    Op(Op),
    /// Nothing for a table.
    Skip(Skip),
    /// Nothing by itself: the next field decides.
    Next,
}

impl<'de> Deserialize<'de> for Meaning {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Ok(match word.as_str() {
            "insert" => Meaning::Op(Op::Insert),
            "read" => Meaning::Op(Op::Read),
            "update" => Meaning::Op(Op::Update),
            "delete" => Meaning::Op(Op::Delete),
            "truncate" => Meaning::Op(Op::Truncate),
            "next" => Meaning::Next,
            _ => match skip_of(&word) {
                Some(skip) => Meaning::Skip(skip),
                None => {
                    let message = format!("`{word}` is no operation");
                    return Err(serde::de::Error::custom(message));
                }
            },
        })
    }
}

impl<'de> Deserialize<'de> for Skip {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let skip = skip_of(&word);
        skip.ok_or_else(|| serde::de::Error::custom(format!("`{word}` is no reason to skip")))
    }
}

fn skip_of(word: &str) -> Option<Skip> {
    let all = [
        Skip::Tombstone,
        Skip::Heartbeat,
        Skip::Transaction,
        Skip::SchemaChange,
        Skip::Message,
        Skip::Control,
        Skip::Truncate,
    ];
    let word = word.strip_prefix("skip-")?;
    all.into_iter().find(|skip| skip.label() == word)
}

/// A field that tells the operation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OpRule {
    /// Where the word stands.
    pub at: Place,
    /// What each word means; another word is an error of the record.
    pub words: BTreeMap<String, Meaning>,
    /// Whether words count in any case; those of the map are in lower case then.
    #[serde(default)]
    pub any_case: bool,
}

impl OpRule {
    /// Tells whether the field can say that a snapshot found the row.
    pub(super) fn tells_reads(&self) -> bool {
        let mut meanings = self.words.values();
        meanings.any(|meaning| *meaning == Meaning::Op(Op::Read))
    }
}

/// How records are recognised that come in the same topics and are no changes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Foreign {
    /// What they are.
    pub skip: Skip,
    /// How the name of their value's schema ends, when they have one.
    #[serde(default)]
    pub schema_ends: Vec<String>,
    /// The fields that the value has, and no others.
    #[serde(default)]
    pub only_fields: Vec<String>,
    /// The fields that the key of such a value has, and no others; where a row may have the same fields.
    #[serde(default)]
    pub key_fields: Vec<String>,
}

/// A format of changes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Envelope {
    /// The name of the format.
    pub name: String,
    /// What writes it.
    pub doc: String,
    /// The fields that tell the operation: the first that has a word with a meaning decides.
    #[serde(default)]
    pub op: Vec<OpRule>,
    /// What a record is whose fields do not tell; without it such a record is an error.
    #[serde(default)]
    pub otherwise: Option<Meaning>,
    /// The row as it is afterwards.
    pub after: Place,
    /// The row as it was before.
    #[serde(default)]
    pub before: Option<Place>,
    /// Whether `before` of an update has only the fields that changed.
    #[serde(default)]
    pub before_is_partial: bool,
    /// Whether rows before a change may have values that the source made up, for it did not log them.
    #[serde(default)]
    pub before_may_be_made_up: bool,
    /// The row that a delete removes, as far as the record has it; without it `before`.
    #[serde(default)]
    pub deleted: Option<Place>,
    /// Whether rows are lists of one row.
    #[serde(default)]
    pub rows_are_lists: bool,
    /// Where the key stands when the row does not have it.
    #[serde(default)]
    pub key: Option<Place>,
    /// Whether a key that is no record is the value of the only column of the key.
    #[serde(default)]
    pub bare_key: bool,
    /// The key that the row had before this change gave it another one.
    #[serde(default)]
    pub old_key: Option<Place>,
    /// The key that the row of a delete gets with the next change.
    #[serde(default)]
    pub new_key: Option<Place>,
    /// What a record without a value means.
    pub tombstone: Meaning,
    /// What orders the changes.
    #[serde(default)]
    pub order: OrderRule,
    /// Where the name of the source's kind stands: the first that a record has counts.
    #[serde(default)]
    pub connectors: Vec<Place>,
    /// The kinds of sources that leave values out of updates; all where `connectors` do not tell.
    #[serde(default)]
    pub leaves_values_out: Vec<String>,
    /// Fields of the row that are the envelope's own and no columns.
    #[serde(default)]
    pub without: BTreeSet<String>,
    /// Records that are no changes.
    #[serde(default)]
    pub foreign: Vec<Foreign>,
}

impl Envelope {
    /// Reads an envelope.
    ///
    /// # Errors
    ///
    /// `CHANGE_ENVELOPE_INVALID`.
    pub fn parse(json: &str) -> Result<Envelope> {
        serde_json::from_str(json).map_err(|error| {
            SinkError::config(
                "CHANGE_ENVELOPE_INVALID",
                format!("the description of the change format cannot be read: {error}"),
            )
        })
    }

    /// Returns the preset called `name`.
    ///
    /// # Errors
    ///
    /// `CHANGE_ENVELOPE_INVALID` when there is none.
    pub fn preset(name: &str) -> Result<Envelope> {
        let found = PRESETS.iter().find(|(known, _)| *known == name);
        let (_, json) = found.ok_or_else(|| {
            let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
            SinkError::config(
                "CHANGE_ENVELOPE_INVALID",
                format!(
                    "no change format is called `{name}`: there are `{}`",
                    names.join("`, `")
                ),
            )
        })?;
        Envelope::parse(json)
    }

    /// Returns the format of rows that are added once: no record says anything else.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse).
    pub fn of_rows() -> Result<Envelope> {
        Envelope::parse(include_str!("presets/append-once.json"))
    }

    /// Returns where the row stands that a delete removes.
    pub(super) fn deleted_row(&self) -> Option<&Place> {
        self.deleted.as_ref().or(self.before.as_ref())
    }

    /// Tells whether a record can stand for this operation.
    pub(crate) fn has(&self, op: Op) -> bool {
        let wanted = Meaning::Op(op);
        let words = self.op.iter().flat_map(|rule| rule.words.values());
        let others = self.otherwise.iter().chain([&self.tombstone]);
        words.chain(others).any(|meaning| *meaning == wanted)
    }

    /// Tells whether records have a row as it was before, or one that a delete removes.
    pub(crate) fn has_before(&self) -> bool {
        self.deleted_row().is_some()
    }

    /// Tells whether headers are looked at.
    pub fn needs_headers(&self) -> bool {
        let places = self
            .op
            .iter()
            .map(|rule| &rule.at)
            .chain([&self.after])
            .chain(&self.before)
            .chain(&self.deleted)
            .chain(&self.key)
            .chain(&self.old_key)
            .chain(&self.new_key)
            .chain(&self.connectors)
            .chain(self.order.places());
        let mut places = places;
        places.any(|place| matches!(place, Place::Header(_)))
    }
}

/// The formats that come with Frazil.
pub const PRESETS: &[(&str, &str)] = &[
    ("debezium", include_str!("presets/debezium.json")),
    (
        "debezium-unwrapped",
        include_str!("presets/debezium-unwrapped.json"),
    ),
    ("upsert", include_str!("presets/upsert.json")),
    ("dms", include_str!("presets/dms.json")),
    ("maxwell", include_str!("presets/maxwell.json")),
    ("canal", include_str!("presets/canal.json")),
    ("apache-cdc", include_str!("presets/apache-cdc.json")),
    ("tabular-cdc", include_str!("presets/tabular-cdc.json")),
];
