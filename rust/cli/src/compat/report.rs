//! What was found, for people and for programs.

use std::fmt::Write;

use frazil_engine::compat::{Effect, Finding, TableFindings};
use serde_json::{Value, json};

/// Returns one line for each effect, and one for each table.
pub(super) fn text(tables: &[TableFindings]) -> String {
    let mut text = String::new();
    for table in tables {
        for finding in &table.findings {
            let line = line(finding);
            let _ = writeln!(text, "{}: {line}", table.table);
        }
        let verdict = match (table.is_blocked(), table.findings.is_empty()) {
            (true, _) => "blocked",
            (false, true) => "compatible, nothing changes",
            (false, false) => "compatible",
        };
        let _ = writeln!(text, "{}: {verdict}", table.table);
    }
    text
}

fn line(finding: &Finding) -> String {
    let column = &finding.column;
    match &finding.effect {
        Effect::Create { to } => format!("create {column} {to}"),
        Effect::Add { to } => format!("add {column} {to}"),
        Effect::Promote { from, to } => format!("promote {column} {from} -> {to}"),
        Effect::MakeOptional => format!("make-optional {column}"),
        Effect::ByValue => format!("by-value {column} (promoted when a number needs it)"),
        Effect::Drop => format!("drop {column} (evolution is off)"),
        Effect::Block { reason, .. } => format!("blocked {column}: {reason}"),
    }
}

/// Returns the findings as JSON.
pub(super) fn json(tables: &[TableFindings]) -> Value {
    let tables_json = tables.iter().map(|table| {
        json!({
            "table": table.table,
            "compatible": !table.is_blocked(),
            "columns": table.findings.iter().map(finding).collect::<Vec<_>>(),
        })
    });
    json!({
        "compatible": !tables.iter().any(TableFindings::is_blocked),
        "tables": tables_json.collect::<Vec<_>>(),
    })
}

fn finding(finding: &Finding) -> Value {
    let column = &finding.column;
    match &finding.effect {
        Effect::Create { to } => json!({"action": "create", "column": column, "to": to}),
        Effect::Add { to } => json!({"action": "add", "column": column, "to": to}),
        Effect::Promote { from, to } => {
            json!({"action": "promote", "column": column, "from": from, "to": to})
        }
        Effect::MakeOptional => json!({"action": "make-optional", "column": column}),
        Effect::ByValue => json!({"action": "by-value", "column": column}),
        Effect::Drop => json!({"action": "drop", "column": column}),
        Effect::Block { from, to, reason } => json!({
            "action": "blocked", "column": column, "from": from, "to": to, "reason": reason,
        }),
    }
}
