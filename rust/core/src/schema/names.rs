//! Finding a field by its name, exactly or whatever its case.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::error::{Result, SinkError};

/// The names of the fields of one struct of the table.
#[derive(Debug, Clone)]
pub struct Names {
    indexes: BTreeMap<String, usize>,
    case_insensitive: bool,
}

impl Names {
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
            indexes,
            case_insensitive,
        })
    }

    /// Returns the index of the field that `name` means.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.indexes
            .get(folded(name, self.case_insensitive).as_ref())
            .copied()
    }

    /// Tells whether the two names mean the same field.
    pub fn same(&self, left: &str, right: &str) -> bool {
        folded(left, self.case_insensitive) == folded(right, self.case_insensitive)
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
    use super::*;

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
