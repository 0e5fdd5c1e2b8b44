//! What `validate` says about one key.

use crate::error::SinkError;

/// How much a problem weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The connector must not start.
    Error,
    /// The connector starts; a person should know.
    Warning,
}

impl Level {
    /// Returns the number that stands for this level on the wire.
    pub fn number(self) -> u8 {
        match self {
            Level::Error => 0,
            Level::Warning => 1,
        }
    }
}

/// One finding about one key. The message never shows a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The key that the user has to change.
    pub key: String,
    /// Whether it stops the connector.
    pub level: Level,
    /// What is wrong and what to do, without the key.
    pub message: String,
}

impl ConfigProblem {
    /// Creates a problem that stops the connector.
    pub fn error(key: impl Into<String>, message: impl Into<String>) -> Self {
        ConfigProblem {
            key: key.into(),
            level: Level::Error,
            message: message.into(),
        }
    }

    /// Creates a problem that a person should know about.
    pub fn warning(key: impl Into<String>, message: impl Into<String>) -> Self {
        ConfigProblem {
            level: Level::Warning,
            ..Self::error(key, message)
        }
    }
}

/// Returns the error that stops a task whose configuration has `problems`, naming each key that is
/// at fault; `None` when there are only warnings.
pub fn refusal(problems: &[ConfigProblem]) -> Option<SinkError> {
    let faults: Vec<String> = problems
        .iter()
        .filter(|problem| problem.level == Level::Error)
        .map(|problem| format!("`{}`: {}", problem.key, problem.message))
        .collect();
    if faults.is_empty() {
        return None;
    }
    Some(SinkError::config("CONFIG_INVALID", faults.join("; ")))
}
