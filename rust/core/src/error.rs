//! The one error type of Frazil and the four kinds that decide what Connect does with it.
//!
//! An error carries a stable `code` (documented in `docs/errors.md`, a metric label, what tests
//! compare), a message that says what to do, and context pairs. It never carries a record value, a
//! key or a secret: a value is named by its type, length, column and offset.

use std::error::Error;
use std::fmt;

/// The result of everything that can fail in Frazil.
pub type Result<T, E = SinkError> = std::result::Result<T, E>;

/// What Connect has to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Trying again later may help: `RetriableException` out of `put`, parked elsewhere.
    Retriable,
    /// One record does not fit: reported for that record, never thrown for the batch.
    Data,
    /// The configuration is wrong: an error on its key in `validate`, `ConfigException` in `start`.
    Config,
    /// Only a person can help: `ConnectException`, the task fails.
    Fatal,
}

impl ErrorKind {
    /// Returns the number that stands for this kind on the wire.
    pub fn number(self) -> u8 {
        match self {
            ErrorKind::Retriable => 0,
            ErrorKind::Data => 1,
            ErrorKind::Config => 2,
            ErrorKind::Fatal => 3,
        }
    }
}

/// An error with its kind, stable code, message, context and cause. It is one pointer, so that a result
/// costs no more than its value.
pub struct SinkError(Box<Told>);

struct Told {
    kind: ErrorKind,
    code: &'static str,
    message: String,
    context: Vec<(&'static str, String)>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl SinkError {
    /// Creates an error of `kind`. `message` is lower case, without a full stop, and says what to do.
    pub fn new(kind: ErrorKind, code: &'static str, message: impl Into<String>) -> Self {
        SinkError(Box::new(Told {
            kind,
            code,
            message: message.into(),
            context: Vec::new(),
            source: None,
        }))
    }

    /// Creates an error that another try may cure.
    pub fn retriable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Retriable, code, message)
    }

    /// Creates an error of one record.
    pub fn data(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Data, code, message)
    }

    /// Creates an error of the configuration; name the key in backticks and give the remedy.
    pub fn config(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, code, message)
    }

    /// Creates an error that stops the task.
    pub fn fatal(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Fatal, code, message)
    }

    /// Creates the error of a broken promise inside Frazil.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Fatal, "INTERNAL", message)
    }

    /// Adds a context pair such as `("table", "db.orders")`.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.0.context.push((name, value.to_string()));
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Returns what Connect has to do about this error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the stable code, such as `SCHEMA_BREAKING_CHANGE`.
    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// Returns the message without code, context and cause.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the context pairs in the order in which they were added.
    pub fn context(&self) -> &[(&'static str, String)] {
        &self.0.context
    }

    /// Returns this error once more, its causes as one text: for what is told each time it is asked.
    pub fn again(&self) -> SinkError {
        let mut error = SinkError::new(self.0.kind, self.0.code, self.0.message.clone());
        error.0.context.clone_from(&self.0.context);
        let mut causes = Vec::new();
        let mut cause = self.source();
        while let Some(error) = cause {
            causes.push(error.to_string());
            cause = error.source();
        }
        match causes.is_empty() {
            true => error,
            false => error.caused_by(causes.join(": ")),
        }
    }

    /// Returns one line with message, code, context and all causes: what Connect's status shows.
    pub fn report(&self) -> String {
        let mut line = format!("{} [{}", self.0.message, self.0.code);
        for (name, value) in &self.0.context {
            line.push_str(&format!(", {name}={value}"));
        }
        line.push(']');
        let mut cause = self.source();
        while let Some(error) = cause {
            line.push_str(&format!(": {error}"));
            cause = error.source();
        }
        line
    }
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.0.message, self.0.code)
    }
}

impl fmt::Debug for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.report())
    }
}

impl Error for SinkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0
            .source
            .as_ref()
            .map(|source| &**source as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_code_context_and_causes() {
        let error = SinkError::data("VALUE_OUT_OF_RANGE", "column `v`: does not fit int")
            .with("table", "db.t")
            .caused_by(std::io::Error::other("inner"));
        assert_eq!(
            error.report(),
            "column `v`: does not fit int [VALUE_OUT_OF_RANGE, table=db.t]: inner"
        );
        assert_eq!(error.kind(), ErrorKind::Data);
        assert_eq!(error.again().report(), error.report());
    }
}
