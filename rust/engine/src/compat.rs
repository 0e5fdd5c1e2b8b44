//! What a source's new schema would do to the tables of a connector, asked before it comes: the
//! same comparison as a task makes for records of that schema.

use std::sync::Arc;

use frazil_core::config::{SinkConfig, TableConfig};
use frazil_core::convert::ColumnRules;
use frazil_core::route::To;
use frazil_core::schema::evolve::{Change, Comparison};
use frazil_core::schema::types::{self, TypeRules};
use frazil_core::wire::{SourceKind, SourceSchema};
use frazil_core::{Result, SinkError};
use iceberg::TableIdent;
use iceberg::spec::Type;

use crate::catalog::Catalog;
use crate::session::converter;

/// What becomes of one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It is part of a table that is created.
    Create {
        /// Its type.
        to: String,
    },
    /// It is added.
    Add {
        /// Its type.
        to: String,
    },
    /// It is promoted.
    Promote {
        /// Its type now.
        from: String,
        /// Its type then.
        to: String,
    },
    /// It becomes optional.
    MakeOptional,
    /// It is promoted as far as numbers that come ask for it: the source does not say how large
    /// they are.
    ByValue,
    /// Its field is dropped: the table does not follow its records.
    Drop,
    /// Records are refused for it.
    Block {
        /// Its type; empty for a new field.
        from: String,
        /// The type of its source; empty for a new field.
        to: String,
        /// Why, and what to do.
        reason: String,
    },
}

/// An effect on one column of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The column, as a path; empty for the table as a whole.
    pub column: String,
    /// What becomes of it.
    pub effect: Effect,
}

/// What becomes of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFindings {
    /// The table.
    pub table: String,
    /// The effects, none when nothing changes.
    pub findings: Vec<Finding>,
}

impl TableFindings {
    /// Tells whether records would be refused.
    pub fn is_blocked(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| matches!(finding.effect, Effect::Block { .. }))
    }
}

/// Returns the tables that records of `topic` go to. Those of `named` alone, when there are any.
///
/// # Errors
///
/// `COMPAT_TABLE_UNKNOWN` when none takes the topic, when the records themselves name their tables,
/// and for one of `named` that the connector has not.
pub fn tables(config: &SinkConfig, topic: &str, named: &[String]) -> Result<Vec<TableConfig>> {
    if !named.is_empty() {
        return named.iter().map(|name| table_named(config, name)).collect();
    }
    let Some(places) = config.routes.of_topic(topic)? else {
        return match config.dynamic {
            None => Ok(config.tables.clone()),
            Some(_) => Err(unknown(
                "the records themselves name their tables; say with `--table` which to compare with",
            )),
        };
    };
    let mut tables = Vec::new();
    for place in places {
        match (place, &config.dynamic) {
            (To::Every, _) => tables.extend(config.tables.iter().cloned()),
            (To::Configured(index), _) => tables.extend(config.tables.get(index).cloned()),
            (To::Named(named), Some(dynamic)) => {
                tables.push(dynamic.table(&named.name, &named.ident)?);
            }
            (To::Named(_), None) => {}
        }
    }
    match tables.is_empty() {
        false => Ok(tables),
        true => Err(unknown(
            "no table takes the records of this topic; where a transform renames the topic, say \
             with `--table` which to compare with",
        )),
    }
}

fn table_named(config: &SinkConfig, name: &str) -> Result<TableConfig> {
    if let Some(table) = config.tables.iter().find(|table| table.name == name) {
        return Ok(table.clone());
    }
    let ident = TableIdent::from_strs(name.split('.')).ok();
    let found = ident.and_then(|ident| config.dynamic.as_ref()?.at(&ident));
    found.ok_or_else(|| unknown("the connector has no such table").with("table", name))
}

fn unknown(message: &'static str) -> SinkError {
    SinkError::config("COMPAT_TABLE_UNKNOWN", message)
}

/// Compares `source`, the schema of values, with `tables`.
///
/// # Errors
///
/// What the catalog says; what is wrong with a table.
pub async fn check(
    wanted: &[TableConfig],
    catalog: &Arc<dyn Catalog>,
    source: &Arc<SourceSchema>,
) -> Result<Vec<TableFindings>> {
    let mut tables = Vec::with_capacity(wanted.len());
    for table in wanted {
        let seen = match ColumnRules::new(&table.columns, &[], table.case_insensitive) {
            Some(rules) => rules.seen(source),
            None => Ok(Arc::clone(source)),
        };
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                tables.push(TableFindings {
                    table: table.name.clone(),
                    findings: vec![blocked("", "", "", error.report())],
                });
                continue;
            }
        };
        let source = seen.as_ref();
        let findings = match catalog.load_table(&table.ident).await {
            Err(error) if error.code() == "TABLE_NOT_FOUND" => creation(table, source),
            Err(error) => return Err(error.with("table", &table.name)),
            Ok(_) if source.kind() != SourceKind::Struct => not_a_record(source),
            Ok(loaded) => {
                let converter = converter(&loaded.metadata, table)
                    .map_err(|error| error.with("table", &table.name))?;
                findings(converter.compare(source))
            }
        };
        tables.push(TableFindings {
            table: table.name.clone(),
            findings,
        });
    }
    Ok(tables)
}

fn creation(table: &TableConfig, source: &SourceSchema) -> Vec<Finding> {
    let whole = |error: SinkError| vec![blocked("", "", "", error.report())];
    if !table.auto_create {
        return whole(SinkError::config(
            "TABLE_MISSING",
            "the table does not exist; create it, or set `iceberg.tables.auto-create-enabled=true`",
        ));
    }
    let rules = TypeRules {
        force_optional: table.force_optional,
        is_v3: table.creates_v3(),
    };
    match types::type_of(source, rules) {
        Ok(Type::Struct(fields)) => {
            let create = |field: &iceberg::spec::NestedFieldRef| Finding {
                column: field.name.clone(),
                effect: Effect::Create {
                    to: field.field_type.to_string(),
                },
            };
            fields.fields().iter().map(create).collect()
        }
        Ok(_) => not_a_record(source),
        Err(error) => whole(error),
    }
}

fn not_a_record(source: &SourceSchema) -> Vec<Finding> {
    let error = SinkError::data(
        "VALUE_NOT_A_RECORD",
        "the schema is no record: nothing of it lands",
    );
    let error = error.with("source_type", source.kind().name());
    vec![blocked("", "", "", error.report())]
}

fn findings(found: Comparison) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |column: String, effect: Effect| findings.push(Finding { column, effect });
    for change in &found.evolution.changes {
        let effect = match change {
            Change::Add(addition) => Effect::Add {
                to: addition.field.field_type.to_string(),
            },
            Change::Promote { from, to, .. } => Effect::Promote {
                from: from.to_string(),
                to: to.to_string(),
            },
            Change::MakeOptional { .. } => Effect::MakeOptional,
        };
        add(change.column(), effect);
    }
    for column in found.open {
        add(column, Effect::ByValue);
    }
    for column in found.dropped {
        add(column, Effect::Drop);
    }
    for (column, error) in found.left_out {
        findings.push(blocked(&column, "", "", error.report()));
    }
    for broken in found.breaks {
        let reason = broken.advice();
        findings.push(blocked(&broken.column, &broken.from, &broken.to, reason));
    }
    findings
}

fn blocked(column: &str, from: &str, to: &str, reason: String) -> Finding {
    Finding {
        column: column.to_owned(),
        effect: Effect::Block {
            from: from.to_owned(),
            to: to.to_owned(),
            reason,
        },
    }
}
