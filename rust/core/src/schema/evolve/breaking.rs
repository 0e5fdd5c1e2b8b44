//! What a source changed that its table cannot follow.

use std::fmt;

use iceberg::spec::Type;

use crate::error::SinkError;

/// What kind of change it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BreakKind {
    /// The type became one that the column cannot be promoted to.
    Type,
    /// The field of a required column is gone.
    Removed,
    /// A required column's field may be null now.
    Optional,
    /// The field of a key (identifier) column is gone; a new one of its type may be its new name.
    KeyRemoved {
        /// That field.
        instead: Option<String>,
    },
    /// The field of a key column may be null now.
    KeyOptional,
}

/// A change that the table cannot follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    /// The column, as a path such as `lines.element.price`.
    pub column: String,
    /// What happened to its source.
    pub kind: BreakKind,
    /// The column's type.
    pub from: String,
    /// The source's type; `nothing` when the field is gone, `null` when it may be null.
    pub to: String,
}

impl Break {
    /// Returns what messages call a column's type.
    pub(crate) fn type_name(column: &Type) -> String {
        match column {
            Type::Struct(_) => "struct".to_owned(),
            other => other.to_string(),
        }
    }

    /// Tells whether a record without a value in the column is what the change leads to.
    pub(crate) fn is_about_null(&self) -> bool {
        self.kind != BreakKind::Type
    }

    /// Returns the error of a record that the column cannot take.
    pub(crate) fn error(&self) -> SinkError {
        SinkError::data("SCHEMA_BREAKING_CHANGE", self.advice())
            .with("column", &self.column)
            .with("from", &self.from)
            .with("to", &self.to)
    }

    /// Returns what happened and what to do about it.
    pub fn advice(&self) -> String {
        format!("{self}; {}", self.remedy())
    }

    fn remedy(&self) -> &'static str {
        match &self.kind {
            BreakKind::Type => {
                "send the old type again, or the new one under another name; where the change is a \
                 promotion, `iceberg.tables.evolve-schema-mode=full` makes it"
            }
            BreakKind::Removed | BreakKind::Optional => {
                "send the field again, or make the column optional, as \
                 `iceberg.tables.evolve-schema-mode=full` does by itself"
            }
            BreakKind::KeyRemoved { .. } => {
                "send the key under its name again, or add its new name to the table property \
                 `schema.name-mapping.default`"
            }
            BreakKind::KeyOptional => "send a value for the key in every record",
        }
    }
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Break {
            column, from, to, ..
        } = self;
        match &self.kind {
            BreakKind::Type => write!(
                f,
                "column `{column}` is {from}, its source sends {to} now: the column cannot be \
                 promoted to that, or not in this mode, and does not hold the value"
            ),
            BreakKind::Removed => write!(
                f,
                "column `{column}` ({from}) is required, and its source has no such field any more"
            ),
            BreakKind::Optional => write!(
                f,
                "column `{column}` ({from}) is required, and its source may send null now"
            ),
            BreakKind::KeyRemoved { instead: None } => write!(
                f,
                "key column `{column}` ({from}) has no field in its source any more"
            ),
            BreakKind::KeyRemoved {
                instead: Some(other),
            } => write!(
                f,
                "key column `{column}` ({from}) has no field in its source any more, which has a \
                 new field `{other}` of that type: a renamed key"
            ),
            BreakKind::KeyOptional => write!(
                f,
                "key column `{column}` ({from}) needs a value, and its source may send null now"
            ),
        }
    }
}
