//! Why the bytes of one record do not become a row.

use std::borrow::Cow;

use crate::error::SinkError;

/// What is wrong with the bytes of one record: a stable code, what it means, and where in the bytes
/// and in the record it is. Never what the bytes say.
///
/// Boxed, because results that may be one are passed around for every value, and nearly none is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(Box<Parts>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    code: &'static str,
    message: Cow<'static, str>,
    at: Option<usize>,
    /// Steps from the inside out; turned around when shown.
    path: Vec<String>,
    source: Option<&'static str>,
    target: Option<String>,
}

impl Refused {
    /// Creates a refusal with a code of `docs/errors.md`.
    #[cold]
    pub fn new(code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Refused(Box::new(Parts {
            code,
            message: message.into(),
            at: None,
            path: Vec::new(),
            source: None,
            target: None,
        }))
    }

    /// Creates the refusal of each record of a schema that cannot be used.
    #[cold]
    pub fn from_schema(error: SinkError) -> Self {
        let mut message = error.message().to_owned();
        for (name, value) in error.context() {
            message.push_str(&format!(" ({name} `{value}`)"));
        }
        Refused::new(error.code(), message)
    }

    /// Creates the refusal of a value by a plan that is wrong.
    #[cold]
    pub fn internal() -> Self {
        Refused::new("INTERNAL", "a decoder's plan does not fit its schema")
    }

    /// Says at which byte of the record's value or key it is, where that is not known yet.
    #[must_use]
    pub fn at(mut self, byte: usize) -> Self {
        self.0.at.get_or_insert(byte);
        self
    }

    /// Says that the bytes it counts begin behind `bytes` others.
    #[must_use]
    pub fn behind(mut self, bytes: usize) -> Self {
        self.0.at = self.0.at.map(|at| at.saturating_add(bytes));
        self
    }

    /// Puts it inside of the field or element called `step`.
    #[must_use]
    pub fn inside(mut self, step: &str) -> Self {
        self.0.path.push(step.to_owned());
        self
    }

    /// Names the type that came and the type that was to be.
    #[must_use]
    pub fn types(mut self, source: &'static str, target: impl Into<String>) -> Self {
        self.0.source = Some(source);
        self.0.target = Some(target.into());
        self
    }

    /// Returns the code.
    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// Returns the byte at which it is, when there is one.
    pub fn byte(&self) -> Option<usize> {
        self.0.at
    }

    /// Returns the field, such as `order.lines.element.price`; empty when it is the whole.
    pub fn path(&self) -> String {
        let steps: Vec<&str> = self.0.path.iter().rev().map(String::as_str).collect();
        steps.join(".")
    }
}

impl From<Refused> for SinkError {
    fn from(refused: Refused) -> Self {
        let path = refused.path();
        let parts = refused.0;
        let mut message = parts.message.into_owned();
        if !path.is_empty() {
            message = format!("field `{path}`: {message}");
        }
        let mut error = SinkError::data(parts.code, message);
        if !path.is_empty() {
            error = error.with("column", path);
        }
        if let Some(source) = parts.source {
            error = error.with("source_type", source);
        }
        if let Some(target) = parts.target {
            error = error.with("schema_type", target);
        }
        match parts.at {
            Some(at) => error.with("byte", at),
            None => error,
        }
    }
}
