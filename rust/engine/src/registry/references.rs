//! The schemas that a schema refers to.

use std::collections::BTreeSet;

use frazil_core::limits::SCHEMA_REFERENCES_MAX;
use frazil_core::{Result, SinkError};

/// Names a schema that another one uses, by where it lies in the registry.
pub(super) struct Reference<P> {
    /// What the other one calls it.
    pub(super) name: String,
    pub(super) place: P,
}

/// Fetches what a schema refers to, and what that refers to; those that others use come first.
/// `fetch` returns the text of a schema and its own references.
pub(super) async fn walk<P: Ord + Clone>(
    first: Vec<Reference<P>>,
    fetch: impl AsyncFn(&P) -> Result<(String, Vec<Reference<P>>)>,
) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    // Each is met twice: before and after what it refers to.
    let unread = |reference| (reference, None);
    let mut steps: Vec<(Reference<P>, Option<String>)> =
        first.into_iter().rev().map(unread).collect();
    while let Some((reference, text)) = steps.pop() {
        if let Some(text) = text {
            found.push((reference.name, text));
            continue;
        }
        if !seen.insert(reference.place.clone()) {
            continue;
        }
        if seen.len() > SCHEMA_REFERENCES_MAX {
            let message =
                format!("a schema refers to more than {SCHEMA_REFERENCES_MAX} other schemas");
            return Err(SinkError::data("SCHEMA_TOO_LARGE", message));
        }
        let (text, inner) = fetch(&reference.place).await?;
        steps.push((reference, Some(text)));
        steps.extend(inner.into_iter().rev().map(unread));
    }
    Ok(found)
}
