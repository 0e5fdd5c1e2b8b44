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
//! Keys and headers that become columns are masked with the value: what a rule names is in none of
//! them (`beside`).
//!
//! Not here: applying them to a frame (`masking`), and to what has no schema, byte for byte
//! (`masked`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::beside::{self, KeyRule};
use super::masked::{self, Root};
use super::masking::{Hasher, Left, Masked, Wanted};
use crate::config::ColumnConfig;
use crate::error::{Result, SinkError};
use crate::schema::metadata::MetadataColumn;
use crate::wire::tagged::Context;
use crate::wire::{Frame, SourceField, SourceKind, SourceSchema};

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
    /// What is done to keys; `None` when no column shows any of what the rules name.
    keys: Option<KeyRule>,
    /// The same for headers.
    headers: Option<Node>,
    case_insensitive: bool,
    hasher: Hasher,
    /// By value schema id.
    plans: BTreeMap<u32, Plan>,
    /// By key schema id.
    key_plans: BTreeMap<u32, Plan>,
}

/// What becomes of the values of one schema.
#[derive(Debug, Clone)]
pub(super) enum Plan {
    /// Nothing is changed.
    Whole,
    Columns(Arc<SourceSchema>, Arc<Act>),
    /// Its records cannot be judged by the rules, or nothing is left of them.
    Refused(Refusal),
}

/// Why a record is not taken.
#[derive(Debug, Clone, Copy)]
pub(super) enum Refusal {
    MapSchema,
    NothingLeft,
}

/// What is done to a column.
#[derive(Debug)]
pub(super) enum Act {
    Keep,
    Hash(Arc<SourceSchema>),
    Struct(Arc<SourceSchema>, Vec<(usize, Act)>),
    List(Arc<SourceSchema>, Box<Act>),
    Map(Arc<SourceSchema>, Box<Act>, Box<Act>),
}

impl Node {
    /// Leaves out what is at `path`.
    pub(super) fn leave_out(&mut self, path: &str, case_insensitive: bool) {
        self.insert(path, case_insensitive, |node, is_end| {
            node.exclude |= is_end
        });
    }

    /// Hashes what is at `path`.
    pub(super) fn hash(&mut self, path: &str, case_insensitive: bool) {
        self.insert(path, case_insensitive, |node, is_end| node.hash |= is_end);
    }

    /// Tells whether no rule is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// Returns the rules for the field `name`, which may have dots in it.
    fn child(&self, name: &str, case_insensitive: bool) -> Option<&Node> {
        let name = match case_insensitive {
            true => &name.to_lowercase(),
            false => name,
        };
        match self.children.get(name) {
            None if name.contains('.') => {
                let mut steps = name.split('.');
                steps.try_fold(self, |node, step| node.children.get(step))
            }
            found => found,
        }
    }

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

pub(super) fn folded(name: &str, case_insensitive: bool) -> String {
    match case_insensitive {
        true => name.to_lowercase(),
        false => name.to_owned(),
    }
}

impl ColumnRules {
    /// Makes the rules of `config` for a table that has the columns `beside` those of the value;
    /// `None` when there are no rules.
    pub fn new(
        config: &ColumnConfig,
        beside: &[MetadataColumn],
        case_insensitive: bool,
    ) -> Option<Self> {
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
            root.leave_out(path, case_insensitive);
        }
        for path in &config.hash {
            root.hash(path, case_insensitive);
        }
        Some(ColumnRules {
            root,
            includes_all: config.include.is_empty(),
            keys: beside::of_keys(config, beside, case_insensitive),
            headers: beside::of_headers(config, beside, case_insensitive),
            case_insensitive,
            hasher: Hasher::new(config.salt.expose()),
            plans: BTreeMap::new(),
            key_plans: BTreeMap::new(),
        })
    }

    /// Works out what is left of `rows`; those of other rows count for nothing afterwards.
    pub fn mask(&mut self, frame: &Frame<'_>, rows: &[u32]) -> Result<Masked> {
        let wanted = Wanted::of(frame.rows(), rows);
        let mut masked = Masked::default();
        let value = self.masked_values(frame, rows, &wanted, &mut masked)?;
        let key = self.masked_keys(frame, rows, &wanted, &mut masked)?;
        (masked.value, masked.key) = (value, key);
        if let (Some(root), Some(headers)) = (&self.headers, frame.tagged_headers()) {
            let root = Root::beside(root);
            let mut judge = Judge::new(self.case_insensitive, &mut self.hasher);
            let left = masked.rewritten(&mut judge, headers, &wanted, &root)?;
            masked.headers = Some(left);
        }
        Ok(masked)
    }

    fn masked_values(
        &mut self,
        frame: &Frame<'_>,
        rows: &[u32],
        wanted: &Wanted,
        masked: &mut Masked,
    ) -> Result<Left> {
        let root = Root::of_records(&self.root, self.includes_all);
        if let Some(maps) = frame.maps() {
            let (values, text) = masked::tagged_of(maps, frame.rows(), wanted);
            let context = Context {
                text: &text,
                names: Vec::new(),
            };
            let mut judge = Judge::new(self.case_insensitive, &mut self.hasher);
            let values = (&values.rows(), &context);
            let left = masked.rewritten(&mut judge, values, wanted, &root)?;
            return Ok(Left::Tagged(left));
        }
        if let Some(values) = frame.tagged_values() {
            let mut judge = Judge::new(self.case_insensitive, &mut self.hasher);
            let left = masked.rewritten(&mut judge, values, wanted, &root)?;
            return Ok(Left::Tagged(left));
        }
        let Some(schema) = frame.value_schema() else {
            return Ok(Left::Whole);
        };
        let id = frame.value_schema_id();
        let plan = match self.plans.get(&id) {
            Some(plan) => plan.clone(),
            None => {
                let plan = self.new_plan(schema);
                self.plans.insert(id, plan.clone());
                plan
            }
        };
        Ok(masked.walked(&mut self.hasher, plan, frame.value_column(), (rows, wanted)))
    }

    fn masked_keys(
        &mut self,
        frame: &Frame<'_>,
        rows: &[u32],
        wanted: &Wanted,
        masked: &mut Masked,
    ) -> Result<Left> {
        let Some(rule) = &self.keys else {
            return Ok(Left::Whole);
        };
        if let Some(keys) = frame.tagged_keys() {
            let root = match rule {
                KeyRule::Hash => Root::hashed(),
                KeyRule::Inside(node) => Root::beside(node),
            };
            let mut judge = Judge::new(self.case_insensitive, &mut self.hasher);
            let left = masked.rewritten(&mut judge, keys, wanted, &root)?;
            return Ok(Left::Tagged(left));
        }
        let Some(schema) = frame.key_schema() else {
            return Ok(Left::Whole);
        };
        let id = frame.key_schema_id();
        let plan = match self.key_plans.get(&id) {
            Some(plan) => plan.clone(),
            None => {
                let plan = self.new_key_plan(rule, schema);
                self.key_plans.insert(id, plan.clone());
                plan
            }
        };
        Ok(match plan {
            Plan::Refused(Refusal::NothingLeft) => Left::Nothing,
            plan => masked.walked(&mut self.hasher, plan, frame.key_column(), (rows, wanted)),
        })
    }

    /// Returns the schema that the table sees of values of `schema`.
    ///
    /// # Errors
    ///
    /// Why the table sees no record of it.
    pub fn seen(&self, schema: &Arc<SourceSchema>) -> Result<Arc<SourceSchema>> {
        match self.new_plan(schema) {
            Plan::Whole => Ok(Arc::clone(schema)),
            Plan::Columns(seen, _) => Ok(seen),
            Plan::Refused(refusal) => Err(refusal.error()),
        }
    }

    fn new_plan(&self, schema: &Arc<SourceSchema>) -> Plan {
        match schema.kind() {
            SourceKind::Map => Plan::Refused(Refusal::MapSchema),
            SourceKind::Struct => {
                self.plan_of(schema, &Fate::Inside(&self.root, self.includes_all))
            }
            // The converter says that such a value is no record.
            _ => Plan::Whole,
        }
    }

    fn new_key_plan(&self, rule: &KeyRule, schema: &Arc<SourceSchema>) -> Plan {
        match (rule, schema.kind()) {
            (KeyRule::Hash, _) => self.plan_of(schema, &Fate::Hash),
            (KeyRule::Inside(_), SourceKind::Map) => Plan::Refused(Refusal::MapSchema),
            (KeyRule::Inside(node), _) => self.plan_of(schema, &Fate::Inside(node, true)),
        }
    }

    fn plan_of(&self, schema: &Arc<SourceSchema>, fate: &Fate<'_>) -> Plan {
        match act(schema, fate, self.case_insensitive) {
            Some((schema, act)) => Plan::Columns(schema, Arc::new(act)),
            None => Plan::Refused(Refusal::NothingLeft),
        }
    }
}

impl Refusal {
    pub(super) fn error(self) -> SinkError {
        match self {
            Refusal::MapSchema => SinkError::data(
                "COLUMN_RULES_UNSUPPORTED",
                "column rules cannot be applied to a record or key whose schema is a map: make it a \
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

/// What is needed to apply rules to values.
pub(super) struct Judge<'r> {
    case_insensitive: bool,
    pub(super) hasher: &'r mut Hasher,
}

impl<'r> Judge<'r> {
    fn new(case_insensitive: bool, hasher: &'r mut Hasher) -> Self {
        Judge {
            case_insensitive,
            hasher,
        }
    }

    /// Returns what becomes of the field `name` below `node`.
    pub(super) fn fate<'n>(&self, node: &'n Node, included: bool, name: &str) -> Fate<'n> {
        fate(node, included, name, self.case_insensitive)
    }
}

fn fate<'n>(parent: &'n Node, included: bool, name: &str, case_insensitive: bool) -> Fate<'n> {
    let Some(node) = parent.child(name, case_insensitive) else {
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

#[cfg(test)]
#[path = "columns_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "columns_properties.rs"]
mod properties;
