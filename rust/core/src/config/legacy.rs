//! Reads keys with an older name as if they were written with ours.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::keys;
use super::problem::ConfigProblem;

/// A submitted map in which every key has our name.
pub(super) struct Renamed<'a> {
    /// The map.
    pub(super) values: Cow<'a, BTreeMap<String, String>>,
    /// Our name of each key that was submitted under another.
    submitted: BTreeMap<String, String>,
    /// What there is to say about these keys.
    pub(super) problems: Vec<ConfigProblem>,
}

/// Gives each key of `values` our name. Of two keys with one meaning the first one stays, and the
/// other is an error.
pub(super) fn rename(values: &BTreeMap<String, String>) -> Renamed<'_> {
    let mut renamed = Renamed {
        values: Cow::Borrowed(values),
        submitted: BTreeMap::new(),
        problems: Vec::new(),
    };
    for (name, value) in values {
        let Some(meant) = keys::renamed(name) else {
            continue;
        };
        let all = renamed.values.to_mut();
        all.remove(name);
        if values.contains_key(&meant) || renamed.submitted.contains_key(&meant) {
            let other = renamed.submitted.get(&meant).unwrap_or(&meant);
            let message = format!("means the same as `{other}`, which is set too: drop one");
            renamed.problems.push(ConfigProblem::error(name, message));
            continue;
        }
        all.insert(meant.clone(), value.clone());
        let message = format!("read as `{meant}`, its name here");
        renamed.problems.push(ConfigProblem::warning(name, message));
        renamed.submitted.insert(meant, name.clone());
    }
    renamed
}

/// Returns the name under which `key`, one of ours, stands in `values`, if it does.
pub fn submitted<'a>(values: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    let is_it = |name: &str| name == key || keys::renamed(name).as_deref() == Some(key);
    values.keys().map(String::as_str).find(|name| is_it(name))
}

impl Renamed<'_> {
    /// Puts each problem on the key that was submitted.
    pub(super) fn place(&self, problems: Vec<ConfigProblem>) -> Vec<ConfigProblem> {
        let placed = problems.into_iter().map(|mut problem| {
            if let Some(name) = self.submitted.get(&problem.key) {
                problem.key.clone_from(name);
            }
            problem
        });
        self.problems.iter().cloned().chain(placed).collect()
    }
}
