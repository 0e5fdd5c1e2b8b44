//! What a source's number, text or struct means beyond its physical kind.

use crate::wire::{LogicalType, SourceKind, SourceSchema};

/// The meaning that a schema gives to a value. A name on the wrong physical kind means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Semantic {
    /// The value means what its kind says.
    Plain,
    /// There is no schema.
    Schemaless,
    /// Days since the epoch (`io.debezium.time.Date`).
    EpochDay,
    /// Milliseconds since midnight (`io.debezium.time.Time`).
    MilliOfDay,
    /// Microseconds since midnight (`io.debezium.time.MicroTime`).
    MicroOfDay,
    /// Nanoseconds since midnight (`io.debezium.time.NanoTime`).
    NanoOfDay,
    /// Milliseconds since the epoch on a clock without zone (`io.debezium.time.Timestamp`).
    EpochMilli,
    /// Microseconds since the epoch on a clock without zone (`io.debezium.time.MicroTimestamp`).
    EpochMicro,
    /// Nanoseconds since the epoch on a clock without zone (`io.debezium.time.NanoTimestamp`).
    EpochNano,
    /// Microseconds since the epoch of a point in time (`timestamp-micros`, as Avro has it).
    InstantMicro,
    /// Nanoseconds since the epoch of a point in time (`timestamp-nanos`, as Avro has it).
    InstantNano,
    /// ISO text of a point in time (`io.debezium.time.ZonedTimestamp`).
    ZonedTimestampText,
    /// ISO text of a date (`io.debezium.time.IsoDate`).
    DateText,
    /// ISO text of a time of day (`io.debezium.time.IsoTime`).
    TimeText,
    /// ISO text of a wall-clock timestamp (`io.debezium.time.IsoTimestamp`).
    TimestampText,
    /// Text of a UUID (`io.debezium.data.Uuid`, and `uuid` as Avro has it).
    UuidText,
    /// A struct of scale and unscaled bytes (`io.debezium.data.VariableScaleDecimal`).
    VariableScaleDecimal,
    /// A struct of the parts of a date, time or timestamp (`io.debezium.time.StructuredDate`,
    /// `StructuredTime`, `StructuredTimestamp`, `StructuredZonedTimestamp`).
    TemporalParts,
    /// A struct of well-known binary and a reference system (`io.debezium.data.geometry.Point`,
    /// `Geometry`, `Geography`).
    Geometry,
}

impl Semantic {
    /// Returns the meaning of the values of `schema`.
    pub fn of(schema: &SourceSchema) -> Self {
        let name = schema.name.as_deref().unwrap_or_default();
        let Some(name) = name.strip_prefix("io.debezium.") else {
            return match (name, schema.kind()) {
                ("uuid", SourceKind::String) => Semantic::UuidText,
                ("timestamp-micros", SourceKind::Int64) => Semantic::InstantMicro,
                ("timestamp-nanos", SourceKind::Int64) => Semantic::InstantNano,
                _ => Semantic::Plain,
            };
        };
        match (name, schema.kind()) {
            ("time.Date", SourceKind::Int32) => Semantic::EpochDay,
            ("time.Time", SourceKind::Int32) => Semantic::MilliOfDay,
            ("time.MicroTime", SourceKind::Int64) => Semantic::MicroOfDay,
            ("time.NanoTime", SourceKind::Int64) => Semantic::NanoOfDay,
            ("time.Timestamp", SourceKind::Int64) => Semantic::EpochMilli,
            ("time.MicroTimestamp", SourceKind::Int64) => Semantic::EpochMicro,
            ("time.NanoTimestamp", SourceKind::Int64) => Semantic::EpochNano,
            ("time.ZonedTimestamp", SourceKind::String) => Semantic::ZonedTimestampText,
            ("time.IsoDate", SourceKind::String) => Semantic::DateText,
            ("time.IsoTime", SourceKind::String) => Semantic::TimeText,
            ("time.IsoTimestamp", SourceKind::String) => Semantic::TimestampText,
            ("data.Uuid", SourceKind::String) => Semantic::UuidText,
            ("data.VariableScaleDecimal", SourceKind::Struct) => Semantic::VariableScaleDecimal,
            (
                "time.StructuredDate"
                | "time.StructuredTime"
                | "time.StructuredTimestamp"
                | "time.StructuredZonedTimestamp",
                SourceKind::Struct,
            ) => Semantic::TemporalParts,
            (
                "data.geometry.Point" | "data.geometry.Geometry" | "data.geometry.Geography",
                SourceKind::Struct,
            ) => Semantic::Geometry,
            _ => Semantic::Plain,
        }
    }
}

/// Returns what messages call the type of `schema`: its kind, or its logical or semantic name.
pub fn type_name(schema: &SourceSchema) -> &str {
    match (schema.logical(), &schema.name) {
        (Some(LogicalType::Decimal { .. }), _) => "decimal",
        (Some(LogicalType::Date), _) => "date",
        (Some(LogicalType::Time), _) => "time",
        (Some(LogicalType::Timestamp), _) => "timestamp",
        (None, Some(name)) if Semantic::of(schema) != Semantic::Plain => name,
        _ => schema.kind().name(),
    }
}
