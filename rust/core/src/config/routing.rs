//! Which tables records go to, and tables that appear at run time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use iceberg::TableIdent;
use sha2::{Digest, Sha256};

use super::problem::{Level, refusal};
use super::reader::{Reader, shown};
use super::table::{self, TableConfig};
use crate::error::{Result, SinkError};
use crate::route::names::parse_template;
use crate::route::{
    AllowList, NameCase, NameDots, NameRules, Pattern, RoutePlan, RouteSource, Targets, Unmatched,
};

pub(super) const DYNAMIC: &str = "iceberg.tables.dynamic-enabled";
pub(super) const TEMPLATE: &str = "iceberg.tables.name-template";
const TABLES: &str = "iceberg.tables";
const ROUTE_FIELD: &str = "iceberg.tables.route-field";
const ROUTE_SOURCE: &str = "iceberg.tables.route-source";
const ROUTE_REGEX: &str = "iceberg.tables.route-regex";
const NAME_CASE: &str = "iceberg.tables.name-case";
const NAME_DOTS: &str = "iceberg.tables.name-dots";
pub(super) const NAMESPACE: &str = "iceberg.tables.default-namespace";
const ALLOW: &str = "iceberg.tables.dynamic-allow";
const TABLES_MAX: &str = "iceberg.tables.dynamic-tables-max";
const UNMATCHED: &str = "iceberg.tables.unmatched-behavior";
const TOPICS_REGEX: &str = "topics.regex";

/// What a table that a record names is made with: the keys for all tables, and those for it alone.
#[derive(Clone, PartialEq, Eq)]
pub struct DynamicTables {
    plan: Arc<RoutePlan>,
    values: Arc<BTreeMap<String, String>>,
}

impl fmt::Debug for DynamicTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values of some keys are secrets.
        f.debug_struct("DynamicTables")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl DynamicTables {
    /// Returns the plan that says which tables these may be.
    pub fn plan(&self) -> &Arc<RoutePlan> {
        &self.plan
    }

    /// Returns what is done with the table `ident`, whose keys have `name`.
    ///
    /// # Errors
    ///
    /// `CONFIG_INVALID` for what nobody could see before the name was known.
    pub fn table(&self, name: &str, ident: &TableIdent) -> Result<TableConfig> {
        let mut reader = Reader::new(&self.values);
        let table = table::read_table(&mut reader, name, ident.clone());
        match refusal(&reader.problems) {
            None => Ok(table),
            Some(error) => Err(error),
        }
    }

    /// Returns what is done with `ident` when records may name it, and commits to `branch`.
    pub fn find(&self, ident: &TableIdent, branch: &str) -> Option<TableConfig> {
        self.at(ident).filter(|table| table.branch == branch)
    }

    /// Returns what is done with `ident` when records may name it.
    pub fn at(&self, ident: &TableIdent) -> Option<TableConfig> {
        let mut parts = ident.namespace().as_ref().clone();
        parts.push(ident.name().to_owned());
        let name = parts.join(".");
        let is_name = table::ident_of(parts).is_ok();
        if !is_name || !self.plan.allows(ident) {
            return None;
        }
        self.table(&name, ident).ok()
    }

    /// Returns a digest of everything that decides about these tables.
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for text in self.values.iter().flat_map(|(key, value)| [key, value]) {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text.as_bytes());
        }
        digest.finalize().into()
    }
}

/// Tells whether records name their tables.
pub(super) fn is_dynamic(values: &BTreeMap<String, String>) -> bool {
    let truth = values
        .get(DYNAMIC)
        .is_some_and(|word| word.trim().eq_ignore_ascii_case("true"));
    truth
        || values
            .get(TEMPLATE)
            .is_some_and(|word| !word.trim().is_empty())
}

/// Reads where records go; `tables` are those of `iceberg.tables`.
pub(super) fn read(reader: &mut Reader<'_>, tables: &[TableConfig]) -> RoutePlan {
    let source = read_source(reader);
    let dynamic = is_dynamic(reader.values());
    let targets = match (dynamic, source) {
        (true, source) => Targets::Named(read_names(reader, source)),
        (false, source) => {
            for key in [ROUTE_REGEX, NAME_CASE, NAME_DOTS, ALLOW, TABLES_MAX] {
                if reader.has(key) {
                    reader.error(
                        key,
                        format!("has no effect without `{DYNAMIC}=true` or `{TEMPLATE}`"),
                    );
                }
            }
            read_patterns(reader, source, tables)
        }
    };
    let drops = reader.word(UNMATCHED).map(str::to_ascii_lowercase);
    if drops.as_deref() == Some("dlq") && reader.word("errors.deadletterqueue.topic.name").is_none()
    {
        reader.error(
            UNMATCHED,
            "`dlq` needs `errors.tolerance=all` and `errors.deadletterqueue.topic.name`",
        );
    }
    check_topics_regex(reader);
    RoutePlan {
        targets,
        unmatched: match drops.as_deref() {
            Some("drop") => Unmatched::Drop,
            _ => Unmatched::Fail,
        },
        tables_max: reader
            .number(TABLES_MAX)
            .and_then(|max| usize::try_from(max).ok())
            .unwrap_or(0),
    }
}

fn read_source(reader: &mut Reader<'_>) -> Option<RouteSource> {
    let field = reader
        .word(ROUTE_FIELD)
        .map(|path| RouteSource::Value(path.to_owned()));
    let Some(text) = reader.word(ROUTE_SOURCE) else {
        return field;
    };
    if field.is_some() {
        reader.error(
            ROUTE_SOURCE,
            format!("set this or `{ROUTE_FIELD}`, not both"),
        );
    }
    let source = RouteSource::parse(text);
    if source.is_none() {
        reader.error(
            ROUTE_SOURCE,
            format!(
                "must be `topic`, `key`, `key.<field>`, `value.<field>` or `header.<name>`, not {}",
                shown(ROUTE_SOURCE, text)
            ),
        );
    }
    // One fault is one message: what depends on the source is not judged without it.
    Some(source.unwrap_or(RouteSource::Topic))
}

fn read_pattern(reader: &mut Reader<'_>, key: &str) -> Option<Pattern> {
    let text = reader.text(key)?;
    match Pattern::new(text) {
        Ok(pattern) => Some(pattern),
        Err(reason) => {
            reader.error(key, reason);
            None
        }
    }
}

/// Static tables: all of them, or those whose pattern matches.
fn read_patterns(
    reader: &mut Reader<'_>,
    source: Option<RouteSource>,
    tables: &[TableConfig],
) -> Targets {
    let key_of = |table: &TableConfig| format!("iceberg.table.{}.route-regex", table.name);
    let patterns: Vec<Option<Pattern>> = tables
        .iter()
        .map(|table| read_pattern(reader, &key_of(table)))
        .collect();
    let Some(source) = source else {
        for key in tables.iter().map(key_of) {
            if reader.has(&key) {
                reader.error(
                    &key,
                    format!("has no effect without `{ROUTE_FIELD}` or `{ROUTE_SOURCE}`"),
                );
            }
        }
        return Targets::All;
    };
    for table in tables {
        let key = key_of(table);
        if !reader.has(&key) {
            reader.warn(
                TABLES,
                format!("table `{}` gets no record: it has no `{key}`", table.name),
            );
        }
    }
    Targets::Matching { source, patterns }
}

fn read_names(reader: &mut Reader<'_>, source: Option<RouteSource>) -> NameRules {
    let pattern = read_pattern(reader, ROUTE_REGEX);
    let template = reader
        .text(TEMPLATE)
        .map(str::trim)
        .filter(|text| !text.is_empty());
    let template = template.and_then(|text| match parse_template(text, pattern.as_ref()) {
        Ok(pieces) => Some(pieces),
        Err(reason) => {
            reader.error(TEMPLATE, reason);
            None
        }
    });
    let has_template = reader.word(TEMPLATE).is_some();
    if source.is_none() && !has_template && reader.word(ROUTE_SOURCE).is_none() {
        reader.error(
            DYNAMIC,
            format!(
                "needs `{ROUTE_FIELD}`, `{ROUTE_SOURCE}` or `{TEMPLATE}`, which name the table"
            ),
        );
    }
    if has_template && source.is_some() && !reader.has(ROUTE_REGEX) {
        let key = if reader.has(ROUTE_FIELD) {
            ROUTE_FIELD
        } else {
            ROUTE_SOURCE
        };
        reader.error(
            key,
            format!("has no effect beside `{TEMPLATE}` without `{ROUTE_REGEX}`"),
        );
    }
    if reader.has(ROUTE_REGEX) && source.is_none() {
        reader.error(
            ROUTE_REGEX,
            format!("needs `{ROUTE_FIELD}` or `{ROUTE_SOURCE}`: what has to match"),
        );
    }
    for name in table::names(reader.values()) {
        let message = format!(
            "table {} is static, and records name their tables here: drop it, or `{DYNAMIC}` and `{TEMPLATE}`",
            shown(TABLES, &name)
        );
        reader.error(TABLES, message);
    }
    check_own_keys(reader);
    NameRules {
        source,
        pattern,
        template,
        case: read_case(reader),
        dots: read_dots(reader),
        default_namespace: namespace(reader),
        allowed: read_allowed(reader),
    }
}

fn read_case(reader: &Reader<'_>) -> NameCase {
    match reader
        .word(NAME_CASE)
        .map(str::to_ascii_lowercase)
        .as_deref()
    {
        Some("upper") => NameCase::Upper,
        Some("keep") => NameCase::Keep,
        _ => NameCase::Lower,
    }
}

fn read_dots(reader: &Reader<'_>) -> NameDots {
    match reader
        .word(NAME_DOTS)
        .map(str::to_ascii_lowercase)
        .as_deref()
    {
        Some("replace") => NameDots::Replace,
        Some("keep") => NameDots::Keep,
        _ => NameDots::Nested,
    }
}

/// Returns the parts of the default namespace.
pub(super) fn namespace(reader: &Reader<'_>) -> Vec<String> {
    let word = reader.word(NAMESPACE).unwrap_or_default();
    let parts = word.split('.').filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

fn read_allowed(reader: &mut Reader<'_>) -> Option<AllowList> {
    let entries = reader.list(ALLOW);
    if entries.is_empty() {
        return None;
    }
    match AllowList::parse(&entries) {
        Ok(list) => Some(list),
        Err(reason) => {
            reader.error(ALLOW, reason);
            None
        }
    }
}

/// Judges the keys of single tables now: at run time nobody looks.
fn check_own_keys(reader: &mut Reader<'_>) {
    let names: BTreeSet<String> = reader
        .values()
        .keys()
        .filter_map(|key| super::keys::find(key)?.table.map(str::to_owned))
        .collect();
    for name in names {
        let regex = format!("iceberg.table.{name}.route-regex");
        if reader.has(&regex) {
            reader.error(
                &regex,
                format!("records name their tables here; `{ROUTE_REGEX}` is for all of them"),
            );
        }
        match table::parse_name(&name) {
            Ok(ident) => {
                let mut own = Reader::new(reader.values());
                table::read_table(&mut own, &name, ident);
                for problem in own.problems {
                    match problem.level {
                        Level::Error => reader.error(&problem.key, problem.message),
                        Level::Warning => reader.warn(&problem.key, problem.message),
                    }
                }
            }
            Err(reason) => reader.error(
                &format!("iceberg.table.{name}.*"),
                format!("table {} {reason}", shown(TABLES, &name)),
            ),
        }
    }
}

/// A pattern of topics must not read what the connector itself writes.
fn check_topics_regex(reader: &mut Reader<'_>) {
    let Some(Ok(pattern)) = reader.word(TOPICS_REGEX).map(Pattern::new) else {
        return;
    };
    for key in ["frazil.control.topic", "errors.deadletterqueue.topic.name"] {
        if reader.word(key).is_some_and(|topic| pattern.matches(topic)) {
            reader.error(
                TOPICS_REGEX,
                format!("matches the topic of `{key}`, whose records are not for tables; make the pattern narrower"),
            );
        }
    }
}

/// Keeps what tables that appear later are made with.
pub(super) fn dynamic_tables(reader: &Reader<'_>, plan: &Arc<RoutePlan>) -> Option<DynamicTables> {
    plan.names()?;
    let of_tables = |key: &&String| {
        [
            "iceberg.tables.",
            "iceberg.table.",
            "iceberg.control.commit.",
        ]
        .iter()
        .any(|prefix| key.starts_with(prefix))
    };
    let values = reader.values().iter().filter(|(key, _)| of_tables(key));
    Some(DynamicTables {
        plan: Arc::clone(plan),
        values: Arc::new(
            values
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        ),
    })
}

/// The error of a record that names one table too many.
pub fn too_many_tables(most: usize) -> SinkError {
    SinkError::data(
        "ROUTE_TABLES_TOO_MANY",
        format!(
            "records name more than {most} tables; correct the route keys, or raise `{TABLES_MAX}` \
             and the memory of the worker"
        ),
    )
}

// The names above must be rows of the table, or their defaults would be lost.
#[cfg(test)]
#[test]
fn the_keys_read_here_are_in_the_table() {
    for name in [
        DYNAMIC,
        TEMPLATE,
        TABLES,
        ROUTE_FIELD,
        ROUTE_SOURCE,
        ROUTE_REGEX,
        NAME_CASE,
        NAME_DOTS,
        NAMESPACE,
        ALLOW,
        TABLES_MAX,
        UNMATCHED,
        TOPICS_REGEX,
    ] {
        assert_eq!(
            super::keys::find(name).map(|found| found.key.name),
            Some(name),
            "{name}"
        );
    }
}
