//! Applying a plan to the rows of a frame.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use iceberg::TableIdent;

use super::names::{NameRules, Piece};
use super::source::Located;
use super::{RoutePlan, RouteSource, Targets};
use crate::error::{Result, SinkError};
use crate::wire::{Frame, Run};

/// Distinct texts that a router remembers the tables of.
const DECISIONS_MAX: usize = 10_000;

/// Where rows go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum To {
    /// All configured tables.
    Every,
    /// The configured table of this index.
    Configured(usize),
    /// A table that a record named.
    Named(Arc<NamedTable>),
}

/// Rows that go to the same place, ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The place.
    pub to: To,
    /// The rows of the frame.
    pub rows: Vec<u32>,
}

/// The rows of a frame by where they go.
#[derive(Debug, Default)]
pub struct Routed {
    /// Rows with a place; one row may be in several groups.
    pub groups: Vec<Group>,
    /// Rows that cannot be routed, with the reason.
    pub refused: Vec<(u32, SinkError)>,
    /// Rows that no table is for.
    pub unmatched: Vec<u32>,
}

/// A table that a record named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedTable {
    /// The name for configuration keys.
    pub name: String,
    /// The table.
    pub ident: TableIdent,
}

impl PartialOrd for NamedTable {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NamedTable {
    fn cmp(&self, other: &Self) -> Ordering {
        let parts = |table: &NamedTable| {
            let namespace = table.ident.namespace().as_ref().clone();
            (namespace, table.ident.name().to_owned())
        };
        (&self.name, parts(self)).cmp(&(&other.name, parts(other)))
    }
}

/// What a text comes to.
#[derive(Debug, Clone)]
enum Decision {
    To(Vec<To>),
    Refused(Arc<SinkError>),
}

/// Applies a plan, and remembers what texts came to.
#[derive(Debug)]
pub struct Router {
    plan: Arc<RoutePlan>,
    decisions: BTreeMap<String, Decision>,
    /// The text of the row at hand, and a piece of it.
    text: String,
    piece: String,
}

/// The sources of a plan in one frame.
struct Sources<'f> {
    route: Option<Located<'f>>,
    pieces: Vec<Option<Located<'f>>>,
    /// Whether all rows of a run have the same tables.
    by_run: bool,
}

impl<'f> Sources<'f> {
    fn of(plan: &'f RoutePlan, frame: &'f Frame<'_>) -> Sources<'f> {
        let (source, template) = match &plan.targets {
            Targets::All => (None, None),
            Targets::Matching { source, .. } => (Some(source), None),
            Targets::Named(rules) => (rules.source.as_ref(), rules.template.as_deref()),
        };
        let pieces = template
            .unwrap_or_default()
            .iter()
            .map(|piece| match piece {
                Piece::Source(source) => Some(source.locate(frame)),
                Piece::Literal(_) | Piece::Group(_) => None,
            });
        Sources {
            route: source.map(|source| source.locate(frame)),
            pieces: pieces.collect(),
            by_run: !plan.needs(|source| !source.is_topic()),
        }
    }
}

impl Router {
    /// Prepares to apply `plan`.
    pub fn new(plan: Arc<RoutePlan>) -> Router {
        Router {
            plan,
            decisions: BTreeMap::new(),
            text: String::new(),
            piece: String::new(),
        }
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Arc<RoutePlan> {
        &self.plan
    }

    /// Returns the error of a record that no table is for.
    pub fn unmatched_error(&self) -> SinkError {
        let source = match &self.plan.targets {
            Targets::All => None,
            Targets::Matching { source, .. } => Some(source),
            Targets::Named(rules) => rules.sources().next(),
        };
        unmatched(source)
    }

    /// Says where each of `rows` of `frame` goes.
    pub fn route(&mut self, frame: &Frame<'_>, rows: &[u32]) -> Routed {
        let mut routed = Routed::default();
        if self.plan.targets == Targets::All {
            let rows = rows.to_vec();
            routed.groups.push(Group {
                to: To::Every,
                rows,
            });
            return routed;
        }
        let plan = Arc::clone(&self.plan);
        let sources = Sources::of(&plan, frame);
        let mut groups: BTreeMap<To, Vec<u32>> = BTreeMap::new();
        let mut left = rows;
        for run in frame.runs() {
            let end = left.partition_point(|row| (*row as usize) < run.first_row + run.rows);
            let (of_run, rest) = left.split_at_checked(end).unwrap_or((left, &[]));
            left = rest;
            let step = if sources.by_run {
                of_run.len().max(1)
            } else {
                1
            };
            for same in of_run.chunks(step) {
                let Some(first) = same.first() else { continue };
                match self.decide(frame, &sources, run, *first as usize) {
                    Ok(Some(Decision::To(places))) if !places.is_empty() => {
                        for to in places {
                            match groups.get_mut(to) {
                                Some(rows) => rows.extend(same),
                                None => {
                                    groups.insert(to.clone(), same.to_vec());
                                }
                            }
                        }
                    }
                    Ok(Some(Decision::Refused(error))) => {
                        routed
                            .refused
                            .extend(same.iter().map(|row| (*row, error.again())));
                    }
                    Ok(_) => routed.unmatched.extend(same),
                    Err(error) => {
                        routed
                            .refused
                            .extend(same.iter().map(|row| (*row, error.again())));
                    }
                }
            }
        }
        let groups = groups.into_iter().map(|(to, rows)| Group { to, rows });
        routed.groups.extend(groups);
        routed
    }

    /// Decides about one row; `None` when the record does not say what it is routed by.
    fn decide(
        &mut self,
        frame: &Frame<'_>,
        sources: &Sources<'_>,
        run: &Run<'_>,
        row: usize,
    ) -> Result<Option<&Decision>> {
        let plan = Arc::clone(&self.plan);
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let written = match &plan.targets {
            Targets::All => Ok(true),
            Targets::Matching { .. } => match &sources.route {
                Some(source) => source.write(frame, run, row, &mut text),
                None => Ok(false),
            },
            Targets::Named(rules) => self.compose(rules, (frame, run, row), sources, &mut text),
        };
        let known = written.inspect(|written| {
            if *written && !self.decisions.contains_key(&text) {
                let decision = decision(&plan, &text);
                if self.decisions.len() >= DECISIONS_MAX {
                    self.decisions.clear();
                }
                self.decisions.insert(text.clone(), decision);
            }
        });
        self.text = text;
        match known? {
            true => Ok(self.decisions.get(&self.text)),
            false => Ok(None),
        }
    }

    /// Puts the name of a row's table together, not yet cased.
    fn compose(
        &mut self,
        rules: &NameRules,
        (frame, run, row): (&Frame<'_>, &Run<'_>, usize),
        sources: &Sources<'_>,
        out: &mut String,
    ) -> Result<bool> {
        let mut route = std::mem::take(&mut self.piece);
        route.clear();
        let write = |piece: Option<usize>, out: &mut String| {
            let source = match piece {
                None => sources.route.as_ref(),
                Some(index) => sources.pieces.get(index).and_then(Option::as_ref),
            };
            source.map_or(Ok(false), |source| source.write(frame, run, row, out))
        };
        let composed = put_together(rules, write, &mut route, out);
        self.piece = route;
        composed
    }
}

/// Puts a name together. `write` appends the text of a source, of the route or of the piece at an
/// index, and tells whether there is one.
fn put_together(
    rules: &NameRules,
    mut write: impl FnMut(Option<usize>, &mut String) -> Result<bool>,
    route: &mut String,
    out: &mut String,
) -> Result<bool> {
    if rules.source.is_some() && !write(None, route)? {
        return Ok(false);
    }
    let groups = match &rules.pattern {
        None => None,
        Some(pattern) => match pattern.groups(route) {
            Some(groups) => Some(groups),
            None => return Ok(false),
        },
    };
    let Some(template) = &rules.template else {
        rules.insert(route, out);
        return Ok(true);
    };
    for (index, piece) in template.iter().enumerate() {
        match piece {
            Piece::Literal(text) => out.push_str(text),
            Piece::Source(_) => {
                let mut text = String::new();
                if !write(Some(index), &mut text)? {
                    return Ok(false);
                }
                rules.insert(&text, out);
            }
            Piece::Group(name) => {
                let group = groups.as_ref().and_then(|groups| match name.parse() {
                    Ok(number) => groups.get(number),
                    Err(_) => groups.name(name),
                });
                let Some(group) = group else { return Ok(false) };
                rules.insert(group.as_str(), out);
            }
        }
    }
    Ok(true)
}

impl RoutePlan {
    /// Returns where every record of `topic` goes; `None` when that depends on the record.
    ///
    /// # Errors
    ///
    /// `ROUTE_NAME_INVALID`, when the topic makes no name of a table.
    pub fn of_topic(&self, topic: &str) -> Result<Option<Vec<To>>> {
        if self.needs(|source| !source.is_topic()) {
            return Ok(None);
        }
        let text = match &self.targets {
            Targets::All | Targets::Matching { .. } => topic.to_owned(),
            Targets::Named(rules) => {
                let (mut route, mut name) = (String::new(), String::new());
                let write = |_: Option<usize>, out: &mut String| {
                    out.push_str(topic);
                    Ok(true)
                };
                match put_together(rules, write, &mut route, &mut name)? {
                    true => name,
                    false => return Ok(Some(Vec::new())),
                }
            }
        };
        match decision(self, &text) {
            Decision::To(places) => Ok(Some(places)),
            Decision::Refused(error) => Err(error.again()),
        }
    }
}

fn decision(plan: &RoutePlan, text: &str) -> Decision {
    match &plan.targets {
        Targets::All => Decision::To(vec![To::Every]),
        Targets::Matching { patterns, .. } => {
            let matching = patterns.iter().enumerate().filter(|(_, pattern)| {
                pattern
                    .as_ref()
                    .is_some_and(|pattern| pattern.matches(text))
            });
            Decision::To(matching.map(|(index, _)| To::Configured(index)).collect())
        }
        Targets::Named(rules) => match rules.finish(text) {
            Ok((_, ident)) if !rules.allows(&ident) => Decision::To(Vec::new()),
            Ok((name, ident)) => {
                Decision::To(vec![To::Named(Arc::new(NamedTable { name, ident }))])
            }
            Err(reason) => Decision::Refused(Arc::new(name_invalid(&reason, text))),
        },
    }
}

fn name_invalid(reason: &str, text: &str) -> SinkError {
    // The name is made of a record's values: it is not shown.
    SinkError::data(
        "ROUTE_NAME_INVALID",
        format!(
            "the name of the table that the record asks for {reason}; correct the record, or see \
             `iceberg.tables.name-dots`, `iceberg.tables.default-namespace` and \
             `iceberg.tables.name-template`"
        ),
    )
    .with("letters", text.chars().count())
}

/// The error of a record that no table is for.
pub(super) fn unmatched(source: Option<&RouteSource>) -> SinkError {
    let by = match source {
        Some(RouteSource::Topic) => "topic",
        Some(RouteSource::Key | RouteSource::KeyField(_)) => "key",
        Some(RouteSource::Header(_)) => "headers",
        Some(RouteSource::Value(_)) | None => "value",
    };
    SinkError::data(
        "ROUTE_UNMATCHED",
        format!(
            "no table is for this record, by its {by}; correct the record or the route keys, or \
             accept the loss of such records with `iceberg.tables.unmatched-behavior=drop`"
        ),
    )
}
