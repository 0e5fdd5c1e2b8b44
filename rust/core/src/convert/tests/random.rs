//! Random values: landed exactly, or refused.

use proptest::prelude::*;

use super::*;

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i8>().prop_map(Value::Int8),
        any::<i32>().prop_map(Value::Int32),
        any::<i64>().prop_map(Value::Int64),
        any::<f32>().prop_map(Value::Float32),
        any::<f64>().prop_map(Value::Float64),
        "[-0-9T:. eé]{0,12}".prop_map(Value::String),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Value::Bytes),
        (any::<i128>(), any::<i32>()).prop_map(|(unscaled, scale)| Value::Decimal(unscaled, scale)),
        (any::<i64>(), -5..40)
            .prop_map(|(unscaled, scale)| Value::Decimal(i128::from(unscaled), scale)),
        any::<i32>().prop_map(Value::Date),
        any::<i32>().prop_map(Value::Time),
        any::<i64>().prop_map(Value::Timestamp),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let key = "[xyz]".prop_map(Value::String);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((key, inner), 0..4).prop_map(Value::Map),
        ]
    })
}

fn any_schema() -> Arc<Schema> {
    let mut fields: Vec<NestedField> = targets()
        .into_iter()
        .zip(1..)
        .map(|(target, id)| NestedField::optional(id, format!("c{id}"), target))
        .collect();
    fields.push(NestedField::required(
        40,
        "r",
        primitive(PrimitiveType::Long),
    ));
    table(fields)
}

proptest! {
    #[test]
    fn any_values_land_or_are_refused(
        rows in prop::collection::vec(prop::collection::vec(any_value(), 18), 1..6),
    ) {
        let names: Vec<String> = (1..18).map(|id| format!("c{id}")).chain(["r".to_owned()]).collect();
        let count = rows.len();
        let frame = schemaless(rows.into_iter().map(|row| {
            Value::object(names.iter().map(String::as_str).zip(row))
        }));
        let (batch, refused) = convert(&any_schema(), &ConvertOptions::default(), &[frame]);
        prop_assert_eq!(batch.num_rows() + refused.len(), count);
        prop_assert_eq!(batch.column(17).null_count(), 0);
    }

    #[test]
    fn integers_land_exactly(value in any::<i64>()) {
        let text = value.to_string();
        prop_assert_eq!(land(&primitive(PrimitiveType::Long), Value::Int64(value)), text.clone());
        prop_assert_eq!(land(&primitive(PrimitiveType::Long), Value::String(text.clone())), text.clone());
        prop_assert_eq!(land(&primitive(PrimitiveType::String), Value::Int64(value)), text.clone());
        prop_assert_eq!(land(&Type::decimal(19, 0).unwrap(), Value::Int64(value)), text);
    }

    #[test]
    fn decimals_land_exactly(unscaled in -(10_i128.pow(20))..10_i128.pow(20), scale in 0..18_u32) {
        let decimal = Type::decimal(38, scale).unwrap();
        let value = Value::Decimal(unscaled, i32::try_from(scale).unwrap());
        let text = land(&primitive(PrimitiveType::String), value.clone());
        prop_assert_eq!(land(&decimal, value), text.clone());
        prop_assert_eq!(land(&decimal, Value::String(text.clone())), text);
    }
}
