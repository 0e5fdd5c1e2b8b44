//! The type mapping as a contract: what a value of each source means, what a new column for it is,
//! and which column types take it.
//!
//! `docs/types.md` and `tests/conformance/types.json` are made from this module, and the tests
//! compare every cell of them with what the converter does. A table keeps the version of the
//! mapping that it was made with in its property [`MAPPING_PROPERTY`]; whoever changes what lands,
//! where or as what, adds a version and keeps the old one.

use iceberg::spec::{PrimitiveType as Primitive, Type};

use super::semantic::Semantic;
use crate::convert::Reason;
use crate::error::{Result, SinkError};
use crate::wire::{LogicalType, SourceKind, SourceSchema};

/// The version of the mapping that new tables get.
pub const MAPPING_VERSION: u32 = 1;

/// The table property with the version of the mapping.
pub const MAPPING_PROPERTY: &str = "frazil.mapping-version";

/// Refuses a table whose mapping this version does not know. A table without the property, such as
/// one that another engine made, has the mapping of this version.
pub fn check_mapping(property: Option<&String>) -> Result<()> {
    match property {
        None => Ok(()),
        Some(version) if *version == MAPPING_VERSION.to_string() => Ok(()),
        Some(_) => Err(SinkError::fatal(
            "MAPPING_VERSION_UNKNOWN",
            format!(
                "the table was made with another type mapping than version {MAPPING_VERSION}, the \
                 only one that this release knows; use the release that made it, or set the table \
                 property `{MAPPING_PROPERTY}` to {MAPPING_VERSION} to go on by this one"
            ),
        )),
    }
}

/// What a value is, whatever it travels as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meaning {
    /// True or false.
    Boolean,
    /// A number without unit or fraction.
    Integer,
    /// A binary floating-point number.
    Float,
    /// An exact decimal number.
    Decimal,
    /// Text.
    Text,
    /// Text without a schema: JSON has no other form for bytes, which are base64 then.
    BareText,
    /// Bytes.
    Bytes,
    /// A UUID that is no text.
    Uuid,
    /// A day.
    Date,
    /// A time of day.
    Time,
    /// A timestamp, of a clock without zone or a point in time.
    Timestamp,
    /// A list.
    List,
    /// A map whose keys are text, or one without a schema.
    Map,
    /// A map whose keys are of another type.
    KeyedMap,
    /// A struct.
    Struct,
    /// A struct of a scale and the digits of a decimal number.
    ScaledDecimal,
    /// A struct of year, month and day, perhaps with a time.
    DateParts,
    /// A struct of hour, minute and second.
    TimeParts,
    /// A struct of well-known binary.
    Geometry,
}

impl Meaning {
    /// Returns what the values of `source` are.
    pub fn of(source: &SourceSchema) -> Self {
        match source.logical() {
            Some(LogicalType::Decimal { .. }) => return Meaning::Decimal,
            Some(LogicalType::Date) => return Meaning::Date,
            Some(LogicalType::Time) => return Meaning::Time,
            Some(LogicalType::Timestamp) => return Meaning::Timestamp,
            None => {}
        }
        match Semantic::of(source) {
            Semantic::EpochDay => return Meaning::Date,
            Semantic::MilliOfDay | Semantic::MicroOfDay | Semantic::NanoOfDay => {
                return Meaning::Time;
            }
            Semantic::EpochMilli
            | Semantic::EpochMicro
            | Semantic::EpochNano
            | Semantic::InstantMicro
            | Semantic::InstantNano => {
                return Meaning::Timestamp;
            }
            Semantic::VariableScaleDecimal => return Meaning::ScaledDecimal,
            Semantic::TemporalParts => {
                return match source.field("year") {
                    Some(_) => Meaning::DateParts,
                    None => Meaning::TimeParts,
                };
            }
            Semantic::Geometry => return Meaning::Geometry,
            // Text is text; what it means shows in the type of a new column only.
            Semantic::ZonedTimestampText
            | Semantic::DateText
            | Semantic::TimeText
            | Semantic::TimestampText
            | Semantic::UuidText
            | Semantic::Plain
            | Semantic::Schemaless => {}
        }
        match source.kind() {
            SourceKind::Boolean => Meaning::Boolean,
            SourceKind::Int8 | SourceKind::Int16 | SourceKind::Int32 | SourceKind::Int64 => {
                Meaning::Integer
            }
            SourceKind::Float32 | SourceKind::Float64 => Meaning::Float,
            SourceKind::String => Meaning::Text,
            SourceKind::Bytes => Meaning::Bytes,
            SourceKind::Array => Meaning::List,
            SourceKind::Map => match source.key().map(|key| key.kind()) {
                Some(SourceKind::String) => Meaning::Map,
                _ => Meaning::KeyedMap,
            },
            SourceKind::Struct => Meaning::Struct,
        }
    }

    fn is_number(self) -> bool {
        matches!(
            self,
            Meaning::Integer | Meaning::Float | Meaning::Decimal | Meaning::ScaledDecimal
        )
    }

    fn is_nested(self) -> bool {
        matches!(
            self,
            Meaning::List
                | Meaning::Map
                | Meaning::KeyedMap
                | Meaning::Struct
                | Meaning::DateParts
                | Meaning::TimeParts
                | Meaning::Geometry
        )
    }

    fn is_text(self) -> bool {
        matches!(self, Meaning::Text | Meaning::BareText)
    }
}

/// Tells whether values of `meaning` land in columns of type `target`; if not, with which reason
/// each is refused. What is inside of lists, maps and structs is a cell of its own.
pub fn lands(meaning: Meaning, target: &Type) -> std::result::Result<(), Reason> {
    let primitive = match target {
        Type::Primitive(primitive) => primitive,
        Type::List(_) => return landed_if(meaning == Meaning::List),
        Type::Map(_) => return landed_if(matches!(meaning, Meaning::Map | Meaning::KeyedMap)),
        Type::Struct(_) => {
            return landed_if(matches!(
                meaning,
                Meaning::Struct
                    | Meaning::ScaledDecimal
                    | Meaning::Map
                    | Meaning::DateParts
                    | Meaning::TimeParts
                    | Meaning::Geometry
            ));
        }
    };
    match primitive {
        Primitive::String => Ok(()),
        Primitive::Boolean => landed_if(meaning == Meaning::Boolean || meaning.is_text()),
        Primitive::Int | Primitive::Long => landed_if(
            meaning.is_number()
                || meaning.is_text()
                || matches!(meaning, Meaning::Date | Meaning::Time | Meaning::Timestamp),
        ),
        Primitive::Float | Primitive::Double | Primitive::Decimal { .. } => {
            landed_if(meaning.is_number() || meaning.is_text())
        }
        Primitive::Uuid => {
            landed_if(matches!(meaning, Meaning::Bytes | Meaning::Uuid) || meaning.is_text())
        }
        Primitive::Binary | Primitive::Fixed(_) => landed_if(matches!(
            meaning,
            Meaning::Bytes | Meaning::BareText | Meaning::Geometry
        )),
        Primitive::Date
        | Primitive::Time
        | Primitive::Timestamp
        | Primitive::Timestamptz
        | Primitive::TimestampNs
        | Primitive::TimestamptzNs
            if meaning.is_number() =>
        {
            Err(Reason::UnitUnknown)
        }
        Primitive::Time => {
            landed_if(matches!(meaning, Meaning::Time | Meaning::TimeParts) || meaning.is_text())
        }
        Primitive::Date
        | Primitive::Timestamp
        | Primitive::Timestamptz
        | Primitive::TimestampNs
        | Primitive::TimestamptzNs => {
            let is_one = matches!(
                meaning,
                Meaning::Date | Meaning::Timestamp | Meaning::DateParts
            );
            landed_if(is_one || meaning.is_text())
        }
    }
}

fn landed_if(landed: bool) -> std::result::Result<(), Reason> {
    match landed {
        true => Ok(()),
        false => Err(Reason::NotConvertible),
    }
}

/// Returns why single values of `meaning` may not fit a column of type `target` that takes their
/// kind: what does not fit is refused, never changed.
pub fn limits(meaning: Meaning, target: &Type) -> &'static [Reason] {
    use Meaning as M;
    use Reason::{Malformed, NotConvertible, OutOfRange, PrecisionLoss, TooDeep, WrongLength};
    let Type::Primitive(primitive) = target else {
        return match (meaning, target) {
            // A struct for a map, or one whose map has keys that are not text.
            (M::Map, Type::Struct(_)) => &[NotConvertible],
            _ => &[],
        };
    };
    match (primitive, meaning) {
        (
            Primitive::Int
            | Primitive::Long
            | Primitive::Float
            | Primitive::Double
            | Primitive::Decimal { .. },
            _,
        ) => number_limits(primitive, meaning),
        (Primitive::Boolean, M::Text | M::BareText) => &[Malformed],
        (Primitive::Uuid, M::Text | M::BareText) => &[Malformed],
        (Primitive::Uuid | Primitive::Fixed(_), M::Bytes) => &[WrongLength],
        (Primitive::Fixed(_), M::BareText) => &[Malformed, WrongLength],
        (Primitive::Binary, M::BareText) => &[Malformed],
        (Primitive::Fixed(_), M::Geometry) => {
            &[Malformed, WrongLength, NotConvertible, Reason::Ambiguous]
        }
        (Primitive::Binary, M::Geometry) => &[Malformed, NotConvertible, Reason::Ambiguous],
        (Primitive::Time, M::Time) => &[OutOfRange, PrecisionLoss],
        // A part may be missing, too.
        (Primitive::Time, M::TimeParts) => &[OutOfRange, PrecisionLoss, NotConvertible],
        (Primitive::Time, M::Text | M::BareText) => &[Malformed, PrecisionLoss],
        (Primitive::Date, M::Timestamp) => &[OutOfRange, PrecisionLoss],
        (
            Primitive::Timestamp
            | Primitive::Timestamptz
            | Primitive::TimestampNs
            | Primitive::TimestamptzNs,
            M::Date,
        ) => &[OutOfRange],
        (_, M::DateParts) if *primitive != Primitive::String => {
            &[OutOfRange, PrecisionLoss, NotConvertible]
        }
        (
            Primitive::Timestamp
            | Primitive::Timestamptz
            | Primitive::TimestampNs
            | Primitive::TimestamptzNs,
            M::Timestamp,
        ) => &[OutOfRange, PrecisionLoss],
        (
            Primitive::Date
            | Primitive::Timestamp
            | Primitive::Timestamptz
            | Primitive::TimestampNs
            | Primitive::TimestamptzNs,
            M::Text | M::BareText,
        ) => &[Malformed, OutOfRange, PrecisionLoss],
        // Texts have years of seven digits at most, numbers 1,233.
        (Primitive::String, M::Time | M::Timestamp | M::Decimal | M::ScaledDecimal) => {
            &[OutOfRange]
        }
        (Primitive::String, nested) if nested.is_nested() => &[TooDeep, OutOfRange, NotConvertible],
        _ => &[],
    }
}

fn number_limits(column: &Primitive, meaning: Meaning) -> &'static [Reason] {
    use Meaning as M;
    use Reason::{Malformed, NotConvertible, OutOfRange, PrecisionLoss};
    match (column, meaning) {
        (Primitive::Int, M::Integer) => &[OutOfRange],
        // Those of `java.time` are no numbers: they land as milliseconds if they are whole ones.
        (Primitive::Int, M::Time | M::Timestamp) | (Primitive::Long, M::Timestamp) => {
            &[OutOfRange, PrecisionLoss]
        }
        (Primitive::Long, M::Time) => &[PrecisionLoss],
        (Primitive::Int | Primitive::Long, M::Float) => {
            &[OutOfRange, PrecisionLoss, NotConvertible]
        }
        (Primitive::Int | Primitive::Long, M::Decimal | M::ScaledDecimal) => {
            &[OutOfRange, PrecisionLoss]
        }
        (Primitive::Int | Primitive::Long, M::Text | M::BareText) => &[Malformed, OutOfRange],
        (Primitive::Float | Primitive::Double, M::Integer) => &[PrecisionLoss],
        (Primitive::Float, M::Float)
        | (Primitive::Float | Primitive::Double, M::Decimal | M::ScaledDecimal) => {
            &[OutOfRange, PrecisionLoss]
        }
        (Primitive::Float | Primitive::Double, M::Text | M::BareText) => {
            &[Malformed, OutOfRange, PrecisionLoss]
        }
        (Primitive::Decimal { .. }, M::Integer) => &[OutOfRange],
        (Primitive::Decimal { .. }, M::Float) => &[OutOfRange, PrecisionLoss, NotConvertible],
        (Primitive::Decimal { .. }, M::Decimal | M::ScaledDecimal) => &[OutOfRange, PrecisionLoss],
        (Primitive::Decimal { .. }, M::Text | M::BareText) => {
            &[Malformed, OutOfRange, PrecisionLoss]
        }
        _ => &[],
    }
}
