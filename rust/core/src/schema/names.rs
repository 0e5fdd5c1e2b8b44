//! Finding a column by the name of a record's field: by the table's name mapping, exactly, or
//! whatever its case.
//!
//! A name mapping (`schema.name-mapping.default`) is how a rename is told: the names that it gives a
//! column count before all others, and exactly as they stand. A column's own name counts too, as
//! long as the mapping does not give it to another column.

use std::borrow::Cow;
use std::collections::BTreeMap;

use iceberg::spec::{DEFAULT_SCHEMA_NAME_MAPPING, MappedField, NameMapping, NestedFieldRef};

use crate::error::{Result, SinkError};

/// The names that a table's name mapping gives its columns, by field id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aliases(BTreeMap<i32, Vec<String>>);

impl Aliases {
    /// Reads the name mapping among the properties of a table; there may be none.
    ///
    /// # Errors
    ///
    /// `NAME_MAPPING_INVALID` when it cannot be read.
    pub fn of<'p>(mut property: impl FnMut(&str) -> Option<&'p String>) -> Result<Self> {
        let mut aliases = Aliases::default();
        if let Some(json) = property(DEFAULT_SCHEMA_NAME_MAPPING) {
            let mapping: NameMapping = serde_json::from_str(json).map_err(|error| {
                SinkError::fatal(
                    "NAME_MAPPING_INVALID",
                    "the table property `schema.name-mapping.default` is no name mapping: correct \
                     or remove it",
                )
                .caused_by(error)
            })?;
            for field in mapping.fields() {
                aliases.take(field);
            }
        }
        Ok(aliases)
    }

    fn take(&mut self, field: &MappedField) {
        if let Some(id) = field.field_id() {
            self.0
                .entry(id)
                .or_default()
                .extend_from_slice(field.names());
        }
        for child in field.fields() {
            self.take(child);
        }
    }

    /// Returns the names that the mapping gives a field.
    pub(crate) fn of_field(&self, id: i32) -> &[String] {
        self.0.get(&id).map_or(&[], Vec::as_slice)
    }
}

/// How record fields find columns.
#[derive(Debug, Clone, Copy)]
pub struct NameRules<'a> {
    /// Whether names match whatever their case.
    pub case_insensitive: bool,
    /// The names that the table's name mapping adds.
    pub aliases: &'a Aliases,
}

/// The names of the fields of one struct of the table.
#[derive(Debug, Clone)]
pub struct Names {
    /// From the name mapping.
    aliases: BTreeMap<String, usize>,
    /// The columns' own, folded when case does not count.
    indexes: BTreeMap<String, usize>,
    case_insensitive: bool,
}

impl Names {
    /// Indexes the names of `fields` and those that the name mapping gives them.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); `NAME_MAPPING_INVALID` when the mapping gives two fields one name.
    pub fn of(fields: &[NestedFieldRef], rules: NameRules<'_>) -> Result<Self> {
        let own = fields.iter().map(|field| field.name.as_str());
        let mut names = Names::new(own, rules.case_insensitive)?;
        for (index, field) in fields.iter().enumerate() {
            for alias in rules.aliases.of_field(field.id) {
                let before = names.aliases.insert(alias.clone(), index);
                if before.is_some_and(|before| before != index) {
                    return Err(SinkError::fatal(
                        "NAME_MAPPING_INVALID",
                        format!("the table's name mapping gives two columns the name `{alias}`"),
                    ));
                }
            }
        }
        Ok(names)
    }

    /// Indexes `names`. Two that differ only in case cannot be told apart when
    /// `case_insensitive`: that is a configuration error.
    pub fn new<'n>(
        names: impl IntoIterator<Item = &'n str>,
        case_insensitive: bool,
    ) -> Result<Self> {
        let mut indexes = BTreeMap::new();
        for (index, name) in names.into_iter().enumerate() {
            let name = folded(name, case_insensitive).into_owned();
            if let Some(name) = indexes.insert(name.clone(), index).map(|_| name) {
                return Err(SinkError::config(
                    "FIELD_NAME_AMBIGUOUS",
                    format!(
                        "the table has two columns called `{name}` that differ only in case: set \
                         `iceberg.tables.schema-case-insensitive` to false or rename one"
                    ),
                ));
            }
        }
        Ok(Names {
            aliases: BTreeMap::new(),
            indexes,
            case_insensitive,
        })
    }

    /// Returns the index of the field that `name` means.
    pub fn find(&self, name: &str) -> Option<usize> {
        if let Some(index) = self.aliases.get(name) {
            return Some(*index);
        }
        self.indexes
            .get(folded(name, self.case_insensitive).as_ref())
            .copied()
    }
}

fn folded(name: &str, case_insensitive: bool) -> Cow<'_, str> {
    if case_insensitive {
        Cow::Owned(name.to_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use iceberg::spec::{NestedField, PrimitiveType, Type};

    use super::*;

    fn fields(names: [&str; 2]) -> Vec<NestedFieldRef> {
        let long = || Type::Primitive(PrimitiveType::Long);
        let field = |(id, name)| Arc::new(NestedField::optional(id, name, long()));
        (1..).zip(names).map(field).collect()
    }

    fn named(json: &str, names: [&str; 2]) -> Result<Names> {
        let json = json.to_owned();
        let aliases = Aliases::of(|_| Some(&json))?;
        Names::of(
            &fields(names),
            NameRules {
                case_insensitive: false,
                aliases: &aliases,
            },
        )
    }

    // Promise: A renamed source field lands in the column that the table's name mapping gives it.
    #[test]
    fn the_names_of_a_mapping_come_first() {
        let mapping = r#"[{"field-id":1,"names":["renamed","id"]},{"field-id":2,"names":["x"],
            "fields":[{"field-id":9,"names":["z"]}]}]"#;
        let names = named(mapping, ["id", "old"]).unwrap();
        let found = ["renamed", "id", "x", "old", "Renamed", "z"].map(|name| names.find(name));
        assert_eq!(found, [Some(0), Some(0), Some(1), Some(1), None, None]);
        // Two columns that changed their names with each other.
        let swapped = r#"[{"field-id":1,"names":["b"]},{"field-id":2,"names":["a"]}]"#;
        let names = named(swapped, ["a", "b"]).unwrap();
        assert_eq!((names.find("a"), names.find("b")), (Some(1), Some(0)));
    }

    #[test]
    fn a_mapping_that_says_nothing_sure_is_refused() {
        for json in [
            "{",
            r#"[{"field-id":1,"names":["n"]},{"field-id":2,"names":["n"]}]"#,
        ] {
            let error = named(json, ["a", "b"]).unwrap_err();
            assert_eq!(error.code(), "NAME_MAPPING_INVALID", "{json}");
        }
        assert_eq!(Aliases::of(|_| None).unwrap(), Aliases::default());
    }

    #[test]
    fn names_are_found_by_the_rule_of_the_table() {
        let exact = Names::new(["id", "Name"], false).unwrap();
        assert_eq!(exact.find("Name"), Some(1));
        assert_eq!(exact.find("name"), None);
        let folded = Names::new(["id", "Name"], true).unwrap();
        assert_eq!(folded.find("NAME"), Some(1));
        assert_eq!(folded.find("nam"), None);
        assert!(Names::new(["v", "V"], false).is_ok());
        let error = Names::new(["v", "V"], true).unwrap_err();
        assert_eq!(error.code(), "FIELD_NAME_AMBIGUOUS");
    }
}
