//! Which column types hold all values of which source types.

use iceberg::spec::PrimitiveType as Primitive;

/// Digits of an int and of a long.
const INT_DIGITS: u32 = 10;
const LONG_DIGITS: u32 = 19;
const DECIMAL_PRECISION_MAX: u32 = 38;

/// How the values of a source type meet a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Relation {
    /// The column holds every value, or text is the usual carrier of its values.
    Holds,
    /// The column holds every value once it is promoted to this type.
    Widens(Primitive),
    /// The source does not say how large its numbers are: each value decides.
    Open,
    /// Another type: what a value becomes, if anything, is decided one by one.
    Differs,
}

/// A source type as a column type, and whether its source says how many digits it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Natural {
    pub(super) primitive: Primitive,
    pub(super) is_sized: bool,
}

/// Relates a column of type `column` to a source. Dates become timestamps only when `dates_widen`.
pub(super) fn relation(column: &Primitive, source: &Natural, dates_widen: bool) -> Relation {
    use Primitive as P;
    match (column, &source.primitive) {
        (column, source) if column == source => Relation::Holds,
        (P::String, _) => Relation::Holds,
        (
            P::Uuid
            | P::Date
            | P::Time
            | P::Timestamp
            | P::Timestamptz
            | P::TimestampNs
            | P::TimestamptzNs,
            P::String,
        ) => Relation::Holds,
        (P::Long | P::Double, P::Int) | (P::Double, P::Float) => Relation::Holds,
        (P::Int, P::Long) => Relation::Widens(P::Long),
        (P::Float, P::Double) => Relation::Widens(P::Double),
        (P::Decimal { precision, scale }, source_type) => {
            decimal((*precision, *scale), source_type, source.is_sized)
        }
        (P::Date, P::Timestamp | P::TimestampNs) if dates_widen => {
            Relation::Widens(source.primitive.clone())
        }
        // A day is its midnight; a point in time is its clock reading in UTC.
        (
            P::Timestamp | P::Timestamptz | P::TimestampNs | P::TimestamptzNs,
            P::Date | P::Timestamp | P::Timestamptz,
        )
        | (P::TimestampNs | P::TimestamptzNs, P::TimestampNs | P::TimestamptzNs) => Relation::Holds,
        (P::Uuid | P::Fixed(_), P::Binary) | (P::Binary, P::Fixed(_)) => Relation::Holds,
        _ => Relation::Differs,
    }
}

fn decimal((precision, scale): (u32, u32), source: &Primitive, is_sized: bool) -> Relation {
    let whole = precision.saturating_sub(scale);
    match source {
        Primitive::Int if whole >= INT_DIGITS => Relation::Holds,
        Primitive::Long if whole >= LONG_DIGITS => Relation::Holds,
        Primitive::Int | Primitive::Long => Relation::Open,
        Primitive::Decimal {
            precision: digits,
            scale: fraction,
        } => {
            let source_whole = digits.saturating_sub(*fraction);
            if *fraction > scale {
                return Relation::Differs;
            }
            if source_whole <= whole {
                return Relation::Holds;
            }
            match source_whole.saturating_add(scale) {
                wider if is_sized && wider <= DECIMAL_PRECISION_MAX => {
                    Relation::Widens(Primitive::Decimal {
                        precision: wider,
                        scale,
                    })
                }
                _ => Relation::Open,
            }
        }
        _ => Relation::Differs,
    }
}

/// Tells whether the Iceberg specification lets a column of type `from` become one of type `to`.
pub(super) fn is_promotion(from: &Primitive, to: &Primitive, is_v3: bool) -> bool {
    match (from, to) {
        (Primitive::Int, Primitive::Long) | (Primitive::Float, Primitive::Double) => true,
        (
            Primitive::Decimal { precision, scale },
            Primitive::Decimal {
                precision: wider,
                scale: same,
            },
        ) => scale == same && precision < wider && *wider <= DECIMAL_PRECISION_MAX,
        (Primitive::Date, Primitive::Timestamp | Primitive::TimestampNs) => is_v3,
        _ => false,
    }
}
