//! Rows that only the commit can finish: what they lack, and what the files of them look like.
//!
//! A pending file is a Parquet file with the columns of the table, all of them optional, and one more:
//!
//! | column | type | holds |
//! |---|---|---|
//! | the table's columns | theirs, by their field ids | the row as far as its record has it |
//! | `frazil.lacks` | string | the field ids of the columns that it lacks, `5,9`; or `!3,4`: all but these; empty: none |
//!
//! No manifest lists it. The key run of its segment names it, and says by its rows which key each is of.

use std::collections::BTreeSet;
use std::sync::Arc;

use iceberg::spec::{NestedField, NestedFieldRef, PrimitiveType, Schema, Type};

use crate::error::{Result, SinkError};

/// The name of the column that says what a row lacks.
pub const LACKS: &str = "frazil.lacks";
/// Its field id: below those that Iceberg keeps for itself, and above all that a table comes to.
pub const LACKS_ID: i32 = 2_147_000_000;

/// A file with pending rows of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingFile {
    /// Its location.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Its rows.
    pub rows: u64,
}

/// The columns that a row lacks, by their field ids.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lacks {
    /// These.
    Only(BTreeSet<i32>),
    /// All but these, also such as the table gains later.
    AllBut(BTreeSet<i32>),
}

impl Lacks {
    /// Tells whether the row lacks a column.
    pub fn has(&self, id: i32) -> bool {
        match self {
            Lacks::Only(ids) => ids.contains(&id),
            Lacks::AllBut(ids) => !ids.contains(&id),
        }
    }

    /// Tells whether it lacks none.
    pub fn is_none(&self) -> bool {
        matches!(self, Lacks::Only(ids) if ids.is_empty())
    }

    /// Returns the text that stands in a pending file.
    pub fn to_text(&self) -> String {
        let (sign, ids) = match self {
            Lacks::Only(ids) => ("", ids),
            Lacks::AllBut(ids) => ("!", ids),
        };
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        format!("{sign}{}", ids.join(","))
    }

    /// Reads what [`Self::to_text`] made; `None` of anything else.
    pub fn from_text(text: &str) -> Option<Lacks> {
        let (rest, all_but) = match text.strip_prefix('!') {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let ids = match rest {
            "" => BTreeSet::new(),
            rest => rest
                .split(',')
                .map(|id| id.parse().ok())
                .collect::<Option<BTreeSet<i32>>>()?,
        };
        Some(match all_but {
            true => Lacks::AllBut(ids),
            false => Lacks::Only(ids),
        })
    }
}

/// Returns `schema` with the columns optional that `may_be_null` names, and without a key.
///
/// # Errors
///
/// `INTERNAL` when the columns do not make a schema.
pub fn relaxed(schema: &Schema, may_be_null: impl Fn(i32) -> bool) -> Result<Schema> {
    build(schema, relaxed_fields(schema, may_be_null))
}

/// Returns the schema of the pending files of a table with `schema`.
///
/// # Errors
///
/// As [`relaxed`].
pub fn pending_schema(schema: &Schema) -> Result<Schema> {
    let text = Type::Primitive(PrimitiveType::String);
    let lacks: NestedFieldRef = Arc::new(NestedField::required(LACKS_ID, LACKS, text));
    let fields = relaxed_fields(schema, |_| true).into_iter();
    build(schema, fields.chain([lacks]).collect())
}

fn relaxed_fields(schema: &Schema, may_be_null: impl Fn(i32) -> bool) -> Vec<NestedFieldRef> {
    let fields = schema.as_struct().fields().iter();
    let relax = |field: &NestedFieldRef| {
        let mut field: NestedField = field.as_ref().clone();
        field.required &= !may_be_null(field.id);
        Arc::new(field)
    };
    fields.map(relax).collect()
}

fn build(schema: &Schema, fields: Vec<NestedFieldRef>) -> Result<Schema> {
    Schema::builder()
        .with_schema_id(schema.schema_id())
        .with_fields(fields)
        .build()
        .map_err(|error| SinkError::internal("pending rows have no schema").caused_by(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_row_lacks_is_read_back() {
        for text in ["", "5,9", "!3,4", "!"] {
            let lacks = Lacks::from_text(text).unwrap();
            assert_eq!(lacks.to_text(), text);
        }
        for text in ["x", "5,", "!x", "5;9", ","] {
            assert_eq!(Lacks::from_text(text), None, "{text}");
        }
        let only = Lacks::from_text("5,9").unwrap();
        assert!(only.has(5) && !only.has(6) && !only.is_none());
        let all_but = Lacks::from_text("!5").unwrap();
        assert!(!all_but.has(5) && all_but.has(6) && !all_but.is_none());
        assert!(Lacks::from_text("").unwrap().is_none());
    }

    #[test]
    fn columns_of_pending_files_may_all_be_null() {
        let long = Type::Primitive(PrimitiveType::Long);
        let fields = [
            NestedField::required(1, "id", long.clone()),
            NestedField::required(2, "n", long),
        ];
        let schema = Schema::builder()
            .with_fields(fields.map(Arc::new))
            .with_identifier_field_ids([1])
            .build()
            .unwrap();
        let pending = pending_schema(&schema).unwrap();
        let required = |schema: &Schema| {
            let fields = schema.as_struct().fields().iter();
            fields.map(|field| field.required).collect::<Vec<_>>()
        };
        assert_eq!(required(&pending), [false, false, true]);
        let one = relaxed(&schema, |id| id == 2).unwrap();
        assert_eq!(required(&one), [true, false]);
    }
}
