//! Column rules: what of a record a table gets to see.
//!
//! [`ColumnRules::mask`] works out what becomes of the values of a frame, and [`Masked::frame`]
//! gives the frame as it then is: the fields that are left out are not in its schema and not in its
//! values, and hashed ones are texts. Whatever comes after, new tables, schema changes, conversion
//! and messages, only ever sees that frame.
//!
//! A hash is the SHA-256 of the salt's bytes followed by the value's: of a text its UTF-8, of bytes
//! these bytes, of anything else its text as a `string` column would have it (`docs/columns.md`).
//! Null stays null.
//!
//! Not here: records without a schema whose values are maps, byte for byte (`masked`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::masked::{self, TaggedValues};
use super::misfit::{Misfit, Reason};
use super::scalar::write_text;
use super::value::Value;
use crate::config::ColumnConfig;
use crate::error::{Result, SinkError};
use crate::schema::semantic::Semantic;
use crate::wire::column::span;
use crate::wire::read::offset_at;
use crate::wire::tagged::Context;
use crate::wire::tagged_build::TaggedBuilder;
use crate::wire::{Cell, ColumnData, Frame, SourceColumn, SourceField, SourceKind, SourceSchema};

/// One step of the paths that rules name.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    include: bool,
    /// A path further on is included.
    includes_below: bool,
    exclude: bool,
    hash: bool,
    children: BTreeMap<String, Node>,
}

/// What becomes of one value.
pub(super) enum Fate<'n> {
    Keep,
    Drop,
    Hash,
    /// What is in it is judged; a value with nothing in it stays only when this is true.
    Inside(&'n Node, bool),
}

/// The rules of one table.
#[derive(Debug, Clone)]
pub struct ColumnRules {
    root: Node,
    includes_all: bool,
    case_insensitive: bool,
    hasher: Hasher,
    /// By value schema id.
    plans: BTreeMap<u32, Plan>,
}

/// Hashes values with the salt.
#[derive(Debug, Clone)]
pub(super) struct Hasher {
    salted: Sha256,
    text: String,
}

/// What becomes of the values of one schema.
#[derive(Debug, Clone)]
enum Plan {
    /// Nothing is changed.
    Whole,
    Struct(Arc<SourceSchema>, Arc<Act>),
    /// Its records cannot be judged by the rules, or nothing is left of them.
    Refused(Refusal),
}

#[derive(Debug, Clone, Copy)]
enum Refusal {
    MapSchema,
    NothingLeft,
}

/// What is done to a column.
#[derive(Debug)]
enum Act {
    Keep,
    Hash(Arc<SourceSchema>),
    Struct(Arc<SourceSchema>, Vec<(usize, Act)>),
    List(Arc<SourceSchema>, Box<Act>),
    Map(Arc<SourceSchema>, Box<Act>, Box<Act>),
}

/// The hashed values of one column.
#[derive(Debug, Default)]
struct Texts {
    offsets: Vec<[u8; 4]>,
    text: String,
}

/// The values of a frame as the rules leave them.
#[derive(Debug)]
pub struct Masked {
    plan: Plan,
    /// In the order in which [`Act`]s are walked.
    texts: Vec<Texts>,
    tagged: Option<TaggedValues>,
    refused: BTreeMap<u32, SinkError>,
}

impl Node {
    fn insert(&mut self, path: &str, case_insensitive: bool, mark: impl Fn(&mut Node, bool)) {
        let mut node = self;
        for step in path.split('.') {
            mark(node, false);
            node = node
                .children
                .entry(folded(step, case_insensitive))
                .or_default();
        }
        mark(node, true);
    }
}

fn folded(name: &str, case_insensitive: bool) -> String {
    match case_insensitive {
        true => name.to_lowercase(),
        false => name.to_owned(),
    }
}

impl ColumnRules {
    /// Makes the rules of `config`; `None` when there are none.
    pub fn new(config: &ColumnConfig, case_insensitive: bool) -> Option<Self> {
        if config.is_empty() {
            return None;
        }
        let mut root = Node::default();
        for path in &config.include {
            root.insert(path, case_insensitive, |node, is_end| {
                node.include |= is_end;
                node.includes_below |= !is_end;
            });
        }
        for path in &config.exclude {
            root.insert(path, case_insensitive, |node, is_end| {
                node.exclude |= is_end
            });
        }
        for path in &config.hash {
            root.insert(path, case_insensitive, |node, is_end| node.hash |= is_end);
        }
        Some(ColumnRules {
            root,
            includes_all: config.include.is_empty(),
            case_insensitive,
            hasher: Hasher {
                salted: Sha256::new_with_prefix(config.salt.expose()),
                text: String::new(),
            },
            plans: BTreeMap::new(),
        })
    }

    /// Works out what is left of the values of `rows`; those of other rows count for nothing
    /// afterwards.
    pub fn mask(&mut self, frame: &Frame<'_>, rows: &[u32]) -> Result<Masked> {
        let mut masked = Masked {
            plan: Plan::Whole,
            texts: Vec::new(),
            tagged: None,
            refused: BTreeMap::new(),
        };
        if let Some(maps) = frame.maps() {
            let wanted = Wanted::of(frame.rows(), rows);
            let (mut values, mut text) = (TaggedBuilder::default(), String::new());
            for row in 0..frame.rows() {
                if wanted.owner(row).is_some() {
                    values.cell(maps.record(row), &mut text);
                }
                values.end_row();
            }
            let context = Context {
                text: &text,
                names: Vec::new(),
            };
            masked.tagged = Some(masked::rewrite(
                &mut self.judge(),
                (&values.rows(), &context),
                &wanted,
                &mut masked.refused,
            )?);
            return Ok(masked);
        }
        if let Some((values, context)) = frame.tagged() {
            let wanted = Wanted::of(frame.rows(), rows);
            masked.tagged = Some(masked::rewrite(
                &mut self.judge(),
                (values, context),
                &wanted,
                &mut masked.refused,
            )?);
            return Ok(masked);
        }
        let Some(schema) = frame.value_schema() else {
            return Ok(masked);
        };
        masked.plan = self.plan(frame.value_schema_id(), schema);
        match (&masked.plan, frame.value_column()) {
            (Plan::Struct(_, act), Some(column)) => {
                let wanted = Wanted::of(frame.rows(), rows);
                let mut hashing = Hashing {
                    hasher: &mut self.hasher,
                    texts: &mut masked.texts,
                    refused: &mut masked.refused,
                    path: Vec::new(),
                };
                hashing.walk(column, act, &wanted);
            }
            (Plan::Refused(refusal), _) => {
                let refused = rows.iter().map(|row| (*row, refusal.error()));
                masked.refused.extend(refused);
            }
            _ => {}
        }
        Ok(masked)
    }

    fn judge(&mut self) -> Judge<'_> {
        Judge {
            root: &self.root,
            includes_all: self.includes_all,
            case_insensitive: self.case_insensitive,
            hasher: &mut self.hasher,
        }
    }

    fn plan(&mut self, id: u32, schema: &Arc<SourceSchema>) -> Plan {
        if let Some(plan) = self.plans.get(&id) {
            return plan.clone();
        }
        let plan = match schema.kind() {
            SourceKind::Map => Plan::Refused(Refusal::MapSchema),
            SourceKind::Struct => {
                let inside = Fate::Inside(&self.root, self.includes_all);
                match act(schema, &inside, self.case_insensitive) {
                    Some((schema, act)) => Plan::Struct(schema, Arc::new(act)),
                    None => Plan::Refused(Refusal::NothingLeft),
                }
            }
            // The converter says that such a value is no record.
            _ => Plan::Whole,
        };
        self.plans.insert(id, plan.clone());
        plan
    }
}

impl Refusal {
    fn error(self) -> SinkError {
        match self {
            Refusal::MapSchema => SinkError::data(
                "COLUMN_RULES_UNSUPPORTED",
                "column rules cannot be applied to a record whose schema is a map: make it a \
                 struct, or send it without a schema",
            ),
            Refusal::NothingLeft => SinkError::data(
                "COLUMN_RULES_LEAVE_NOTHING",
                "the column rules leave no field of the record: correct `columns.include` and \
                 `columns.exclude`",
            ),
        }
    }
}

/// The rules with what is needed to apply them to one frame.
pub(super) struct Judge<'r> {
    pub(super) root: &'r Node,
    pub(super) includes_all: bool,
    case_insensitive: bool,
    pub(super) hasher: &'r mut Hasher,
}

impl Judge<'_> {
    /// Returns what becomes of the field `name` below `node`.
    pub(super) fn fate<'n>(&self, node: &'n Node, included: bool, name: &str) -> Fate<'n> {
        fate(node, included, name, self.case_insensitive)
    }
}

fn fate<'n>(parent: &'n Node, included: bool, name: &str, case_insensitive: bool) -> Fate<'n> {
    let node = match case_insensitive {
        true => parent.children.get(&name.to_lowercase()),
        false => parent.children.get(name),
    };
    let Some(node) = node else {
        return if included { Fate::Keep } else { Fate::Drop };
    };
    let included = included || node.include;
    if node.exclude || !(included || node.includes_below) {
        Fate::Drop
    } else if node.hash {
        Fate::Hash
    } else if node.children.is_empty() {
        Fate::Keep
    } else {
        Fate::Inside(node, included)
    }
}

/// Returns what is done to the columns of `schema`, and the schema that comes of it; `None` when
/// nothing is left.
fn act(
    schema: &Arc<SourceSchema>,
    fate_here: &Fate<'_>,
    case_insensitive: bool,
) -> Option<(Arc<SourceSchema>, Act)> {
    let (node, included) = match fate_here {
        Fate::Keep => return Some((Arc::clone(schema), Act::Keep)),
        Fate::Drop => return None,
        Fate::Hash => {
            let mut text = SourceSchema::scalar(SourceKind::String);
            text.optional = schema.optional;
            text.doc.clone_from(&schema.doc);
            let text = Arc::new(text);
            return Some((Arc::clone(&text), Act::Hash(text)));
        }
        Fate::Inside(node, included) => (*node, *included),
    };
    let below = |name: &str, child: &Arc<SourceSchema>| {
        act(
            child,
            &fate(node, included, name, case_insensitive),
            case_insensitive,
        )
    };
    match (schema.kind(), schema.key(), schema.value()) {
        (SourceKind::Struct, ..) => {
            let (mut fields, mut acts) = (Vec::new(), Vec::new());
            for (index, field) in schema.fields().iter().enumerate() {
                if let Some((schema, act)) = below(&field.name, &field.schema) {
                    let name = field.name.clone();
                    fields.push(SourceField { name, schema });
                    acts.push((index, act));
                }
            }
            let schema = Arc::new(schema.with_fields(fields));
            (!acts.is_empty()).then(|| (Arc::clone(&schema), Act::Struct(schema, acts)))
        }
        (SourceKind::Array, _, Some(element)) => {
            let (element, act) = below("element", element)?;
            let schema = Arc::new(schema.with_children(None, Some(element)));
            Some((Arc::clone(&schema), Act::List(schema, Box::new(act))))
        }
        (SourceKind::Map, Some(key), Some(value)) => {
            let (value, value_act) = below("value", value)?;
            // Whoever includes something of the values means them with their keys.
            let key_fate = fate(node, true, "key", case_insensitive);
            let (key, key_act) = act(key, &key_fate, case_insensitive)?;
            let schema = Arc::new(schema.with_children(Some(key), Some(value)));
            let act = Act::Map(Arc::clone(&schema), Box::new(key_act), Box::new(value_act));
            Some((schema, act))
        }
        _ => included.then(|| (Arc::clone(schema), Act::Keep)),
    }
}

/// Which values of a column are wanted, and the row of the frame that each belongs to.
pub(super) struct Wanted {
    owners: Vec<Option<u32>>,
}

impl Wanted {
    pub(super) fn of(count: usize, rows: &[u32]) -> Self {
        let mut owners = vec![None; count];
        for row in rows {
            if let Some(owner) = owners.get_mut(usize::try_from(*row).unwrap_or(usize::MAX)) {
                *owner = Some(*row);
            }
        }
        Wanted { owners }
    }

    pub(super) fn owner(&self, index: usize) -> Option<u32> {
        self.owners.get(index).copied().flatten()
    }

    /// Returns the same for the elements of lists or maps.
    fn elements(&self, offsets: &[[u8; 4]]) -> Self {
        let rows = offsets.len().saturating_sub(1);
        let mut owners = vec![None; offset_at(offsets, rows)];
        for row in 0..rows {
            let owner = self.owner(row);
            for element in span(offsets, row) {
                if let Some(slot) = owners.get_mut(element) {
                    *slot = owner;
                }
            }
        }
        Wanted { owners }
    }
}

/// Walks columns and hashes values.
struct Hashing<'m> {
    hasher: &'m mut Hasher,
    texts: &'m mut Vec<Texts>,
    refused: &'m mut BTreeMap<u32, SinkError>,
    path: Vec<String>,
}

impl Hashing<'_> {
    fn walk(&mut self, column: &SourceColumn<'_>, act: &Act, wanted: &Wanted) {
        match (act, column.data()) {
            (Act::Keep, _) => {}
            (Act::Hash(_), _) => self.hash(column, wanted),
            (Act::Struct(_, acts), ColumnData::Struct(children)) => {
                let fields = column.schema().fields();
                for (index, act) in acts {
                    if let (Some(child), Some(field)) = (children.get(*index), fields.get(*index)) {
                        self.below(&field.name, child, act, wanted);
                    }
                }
            }
            (Act::List(_, act), ColumnData::Array { offsets, elements }) => {
                self.below("element", elements, act, &wanted.elements(offsets));
            }
            (
                Act::Map(_, key, value),
                ColumnData::Map {
                    offsets,
                    keys,
                    values,
                },
            ) => {
                let wanted = wanted.elements(offsets);
                self.below("key", keys, key, &wanted);
                self.below("value", values, value, &wanted);
            }
            // An act is made for the schema that the column has.
            _ => {}
        }
    }

    fn below(&mut self, step: &str, column: &SourceColumn<'_>, act: &Act, wanted: &Wanted) {
        self.path.push(step.to_owned());
        self.walk(column, act, wanted);
        self.path.pop();
    }

    fn hash(&mut self, column: &SourceColumn<'_>, wanted: &Wanted) {
        let semantic = Semantic::of(column.schema());
        let mut texts = Texts::default();
        texts.offsets.reserve(column.rows() + 1);
        texts.offsets.push([0; 4]);
        for index in 0..column.rows() {
            if let Some(row) = wanted.owner(index) {
                let cell = column.cell(index);
                if let Err(reason) = self.hasher.hash(cell, semantic, &mut texts.text) {
                    let steps = self.path.iter().rev();
                    let misfit =
                        steps.fold(unhashable(reason, cell), |misfit, step| misfit.inside(step));
                    self.refused.entry(row).or_insert_with(|| misfit.into());
                }
            }
            let end = u32::try_from(texts.text.len()).unwrap_or(u32::MAX);
            texts.offsets.push(end.to_le_bytes());
        }
        self.texts.push(texts);
    }
}

/// Describes a value that has no canonical form.
pub(super) fn unhashable(reason: Reason, cell: Cell<'_>) -> Misfit {
    super::column::misfit(reason, cell).target("hash")
}

impl Hasher {
    /// Appends the hash of `cell`, of null nothing.
    pub(super) fn hash(
        &mut self,
        cell: Cell<'_>,
        semantic: Semantic,
        out: &mut String,
    ) -> Result<(), Reason> {
        let mut hasher = self.salted.clone();
        match Value::read(cell, semantic)? {
            None => return Ok(()),
            Some(Value::Text(text)) => hasher.update(text),
            Some(Value::Bytes(bytes)) => hasher.update(bytes),
            Some(value) => {
                self.text.clear();
                write_text(value, &mut self.text)?;
                hasher.update(&self.text);
            }
        }
        for byte in hasher.finalize() {
            // Writing to a text cannot fail.
            let _ = write!(out, "{byte:02x}");
        }
        Ok(())
    }
}

impl Masked {
    /// Returns those of `rows` that may not be written, each with the reason.
    pub fn refused_of<'m>(
        &'m self,
        rows: &'m [u32],
    ) -> impl Iterator<Item = (u32, SinkError)> + use<'m> {
        rows.iter()
            .filter_map(|row| Some((*row, self.refused.get(row)?.again())))
    }

    /// Returns those of `rows` that may be written.
    pub fn keep(&self, rows: &[u32]) -> Vec<u32> {
        let rows = rows.iter().filter(|row| !self.refused.contains_key(row));
        rows.copied().collect()
    }

    /// Returns `frame`, which this was made of, as the rules leave it.
    pub fn frame<'b>(&'b self, frame: &'b Frame<'_>) -> Frame<'b> {
        if let Some(tagged) = &self.tagged {
            return frame.with_tagged(tagged.text(), tagged.rows());
        }
        let Plan::Struct(schema, act) = &self.plan else {
            return frame.clone();
        };
        let mut texts = self.texts.iter();
        let column = frame.value_column();
        let column = column.map(|column| masked_column(column, act, &mut texts));
        frame.with_columns(schema, column)
    }
}

fn masked_column<'b>(
    column: &'b SourceColumn<'_>,
    act: &Act,
    texts: &mut std::slice::Iter<'b, Texts>,
) -> SourceColumn<'b> {
    match (act, column.data()) {
        (Act::Hash(schema), _) => {
            let (offsets, text) = texts.next().map_or((&[][..], ""), |texts| {
                (texts.offsets.as_slice(), texts.text.as_str())
            });
            column.with_data(schema, ColumnData::String { offsets, text })
        }
        (Act::Struct(schema, acts), ColumnData::Struct(children)) => {
            let children = acts.iter().filter_map(|(index, act)| {
                children
                    .get(*index)
                    .map(|child| masked_column(child, act, texts))
            });
            let children = children.collect();
            column.with_data(schema, ColumnData::Struct(children))
        }
        (Act::List(schema, act), ColumnData::Array { offsets, elements }) => {
            let (offsets, elements) = (*offsets, Box::new(masked_column(elements, act, texts)));
            column.with_data(schema, ColumnData::Array { offsets, elements })
        }
        (
            Act::Map(schema, key, value),
            ColumnData::Map {
                offsets,
                keys,
                values,
            },
        ) => {
            let keys = Box::new(masked_column(keys, key, texts));
            let values = Box::new(masked_column(values, value, texts));
            let data = ColumnData::Map {
                offsets,
                keys,
                values,
            };
            column.with_data(schema, data)
        }
        _ => column.clone(),
    }
}

#[cfg(test)]
#[path = "columns_tests.rs"]
mod tests;
