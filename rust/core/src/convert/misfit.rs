//! Why a value does not fit a column.

use std::fmt;

use crate::error::SinkError;

/// The reason of a [`Misfit`]; each has one stable error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The number, date or time is outside of what the column can hold.
    OutOfRange,
    /// The column could only hold a rounded or cut form of the value.
    PrecisionLoss,
    /// Nothing turns a value of this type into one of the column's type.
    NotConvertible,
    /// The text is not in the form that the column's type needs.
    Malformed,
    /// A bare number for a date, time or timestamp: its unit is not known and never guessed.
    UnitUnknown,
    /// Too many or too few bytes for a column of fixed length.
    WrongLength,
    /// No value for a column, field or element that must have one.
    RequiredNull,
    /// Two fields of the record match one column.
    Ambiguous,
    /// The record has a field that the table has not, and evolution could not add it.
    UnknownField,
    /// The value is nested deeper than the limit.
    TooDeep,
    /// The value as a whole is neither a struct nor a map.
    NotARecord,
}

impl Reason {
    /// Returns the stable error code.
    pub fn code(self) -> &'static str {
        match self {
            Reason::OutOfRange => "VALUE_OUT_OF_RANGE",
            Reason::PrecisionLoss => "VALUE_PRECISION_LOSS",
            Reason::NotConvertible => "VALUE_NOT_CONVERTIBLE",
            Reason::Malformed => "VALUE_MALFORMED",
            Reason::UnitUnknown => "VALUE_UNIT_UNKNOWN",
            Reason::WrongLength => "VALUE_WRONG_LENGTH",
            Reason::RequiredNull => "REQUIRED_FIELD_NULL",
            Reason::Ambiguous => "FIELD_NAME_AMBIGUOUS",
            Reason::UnknownField => "FIELD_NOT_IN_TABLE",
            Reason::TooDeep => "VALUE_TOO_DEEP",
            Reason::NotARecord => "VALUE_NOT_A_RECORD",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Reason::OutOfRange => "the value is outside of the column's range",
            Reason::PrecisionLoss => "the column would round or cut the value",
            Reason::NotConvertible => "a value of this type cannot become the column's type",
            Reason::Malformed => "the text is not in the form that the column's type needs",
            Reason::UnitUnknown => {
                "a bare number has no unit: send a logical type or ISO text, or use a long column"
            }
            Reason::WrongLength => "the number of bytes is not the column's",
            Reason::RequiredNull => "the column is required and the record has no value for it",
            Reason::Ambiguous => "more than one field of the record matches the column",
            Reason::UnknownField => "the table has no such column and it cannot be added",
            Reason::TooDeep => "the value is nested too deeply",
            Reason::NotARecord => {
                "the record's value is neither a struct nor a map: use a converter or transform \
                 that makes one (HoistField wraps a single value)"
            }
        }
    }
}

/// A value that does not fit: reason, path and types, never the value itself.
///
/// Boxed, because results that may be one are passed around for every value, and nearly none is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit(Box<Parts>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    reason: Reason,
    /// Steps from the inside out; turned around when shown.
    path: Vec<String>,
    source: &'static str,
    length: Option<usize>,
    target: Option<String>,
    detail: Option<String>,
}

impl Misfit {
    /// Creates a misfit of a value whose type is called `source`.
    pub fn new(reason: Reason, source: &'static str) -> Self {
        Misfit(Box::new(Parts {
            reason,
            path: Vec::new(),
            source,
            length: None,
            target: None,
            detail: None,
        }))
    }

    /// Adds the length of a text (in bytes), byte string or collection.
    #[must_use]
    pub fn length(mut self, length: usize) -> Self {
        self.0.length = Some(length);
        self
    }

    /// Names the innermost type that the value was to become.
    #[must_use]
    pub fn target(mut self, target: impl fmt::Display) -> Self {
        if self.0.target.is_none() {
            self.0.target = Some(target.to_string());
        }
        self
    }

    /// Adds what else helps, never taken from the value.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Puts the misfit inside of the field or element called `step`.
    #[must_use]
    pub fn inside(mut self, step: &str) -> Self {
        self.0.path.push(step.to_owned());
        self
    }

    /// Returns the reason.
    pub fn reason(&self) -> Reason {
        self.0.reason
    }

    /// Returns what the value's type is called.
    pub fn source(&self) -> &'static str {
        self.0.source
    }

    /// Returns the path of the column, such as `order.lines.element.price`.
    pub fn path(&self) -> String {
        let mut path = String::new();
        for step in self.0.path.iter().rev() {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(step);
        }
        path
    }
}

impl From<Misfit> for SinkError {
    fn from(misfit: Misfit) -> Self {
        let path = misfit.path();
        let mut message = if path.is_empty() {
            misfit.0.reason.sentence().to_owned()
        } else {
            format!("column `{path}`: {}", misfit.0.reason.sentence())
        };
        if let Some(detail) = &misfit.0.detail {
            message.push_str(&format!(" ({detail})"));
        }
        let mut error = SinkError::data(misfit.0.reason.code(), message);
        if !path.is_empty() {
            error = error.with("column", path);
        }
        error = error.with("source_type", misfit.0.source);
        if let Some(target) = misfit.0.target {
            error = error.with("column_type", target);
        }
        if let Some(length) = misfit.0.length {
            error = error.with("length", length);
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn an_error_names_path_types_and_length() {
        let error: SinkError = Misfit::new(Reason::Malformed, "string")
            .length(3)
            .target("int")
            .inside("price")
            .inside("element")
            .inside("lines")
            .into();
        assert_eq!(error.kind(), ErrorKind::Data);
        assert_eq!(
            error.report(),
            "column `lines.element.price`: the text is not in the form that the column's type needs \
             [VALUE_MALFORMED, column=lines.element.price, source_type=string, column_type=int, length=3]"
        );
    }
}
