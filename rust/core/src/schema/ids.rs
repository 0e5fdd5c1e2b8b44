//! Fresh field ids.

use std::sync::Arc;

use iceberg::spec::{ListType, MapType, NestedFieldRef, StructType, Type};

use crate::error::{Result, SinkError};

/// Gives out field ids in rising order.
#[derive(Debug)]
pub(super) struct FieldIds {
    last: i32,
}

impl FieldIds {
    /// Starts behind `last`.
    pub(super) fn after(last: i32) -> Self {
        FieldIds { last }
    }

    fn next(&mut self) -> Result<i32> {
        self.last = self.last.checked_add(1).ok_or_else(|| {
            SinkError::fatal(
                "SCHEMA_IDS_EXHAUSTED",
                "the table has no free field id left",
            )
        })?;
        Ok(self.last)
    }

    /// Numbers `fields`, all of one level before what is inside of them.
    pub(super) fn number(&mut self, fields: &[NestedFieldRef]) -> Result<Vec<NestedFieldRef>> {
        let mut numbered = Vec::with_capacity(fields.len());
        for field in fields {
            let mut field = field.as_ref().clone();
            field.id = self.next()?;
            numbered.push(field);
        }
        numbered
            .into_iter()
            .map(|mut field| {
                *field.field_type = self.number_type(&field.field_type)?;
                Ok(Arc::new(field))
            })
            .collect()
    }

    fn number_type(&mut self, field_type: &Type) -> Result<Type> {
        Ok(match field_type {
            Type::Primitive(primitive) => Type::Primitive(primitive.clone()),
            Type::Struct(fields) => Type::Struct(StructType::new(self.number(fields.fields())?)),
            Type::List(list) => {
                let element_field = self.number_one(&list.element_field)?;
                Type::List(ListType { element_field })
            }
            Type::Map(map) => {
                let mut key = map.key_field.as_ref().clone();
                let mut value = map.value_field.as_ref().clone();
                key.id = self.next()?;
                value.id = self.next()?;
                *key.field_type = self.number_type(&key.field_type)?;
                *value.field_type = self.number_type(&value.field_type)?;
                Type::Map(MapType {
                    key_field: Arc::new(key),
                    value_field: Arc::new(value),
                })
            }
        })
    }

    fn number_one(&mut self, field: &NestedFieldRef) -> Result<NestedFieldRef> {
        let mut field = field.as_ref().clone();
        field.id = self.next()?;
        *field.field_type = self.number_type(&field.field_type)?;
        Ok(Arc::new(field))
    }
}
