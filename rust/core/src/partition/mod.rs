//! Cuts a batch into the partitions of its table.
//!
//! [`Partitioner::split`] computes the partition tuple of each row on the Arrow columns and groups
//! the row numbers by it, in the order of their first row. Every row is in exactly one group.
//!
//! Values are those of the Iceberg specification: temporal transforms floor before the epoch,
//! truncation of numbers wraps as Java does, buckets hash with Murmur3. Partition values come from
//! records, so nothing that is derived from them may be trusted as a path: see [`path`](self::path).

mod human;
mod murmur;
mod order;
mod path;
mod values;

use arrow_array::RecordBatch;
use iceberg::spec::{PartitionSpec, PrimitiveType, Schema, Struct, StructType, Transform, Type};

use crate::error::{Result, SinkError};

pub use murmur::murmur3;
pub use order::RowOrder;
pub use path::url_encode;

use values::Values;

/// Numbers of rows of one batch, ascending.
pub type RowIndices = Vec<u32>;

/// The partition tuple that a row or file belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PartitionKey {
    values: Struct,
}

impl PartitionKey {
    /// Returns the key of an unpartitioned table.
    pub fn unpartitioned() -> Self {
        PartitionKey {
            values: Struct::empty(),
        }
    }

    /// Returns the tuple as a data file's metadata has it.
    pub fn values(&self) -> &Struct {
        &self.values
    }
}

/// One partition field, resolved against the schema.
#[derive(Debug)]
struct Field {
    name: String,
    transform: Transform,
    source: PrimitiveType,
    /// Child positions from the root to the source column; empty for `void`.
    position: Vec<usize>,
}

/// Computes partition tuples for batches of one schema and partition spec.
#[derive(Debug)]
pub struct Partitioner {
    fields: Vec<Field>,
}

impl Partitioner {
    /// Resolves `spec` against `schema`. Batches must have the columns of `schema` in its order.
    pub fn new(spec: &PartitionSpec, schema: &Schema) -> Result<Self> {
        let fields = spec
            .fields()
            .iter()
            .map(|field| {
                let unsupported = |reason: &str| {
                    SinkError::fatal(
                        "PARTITION_UNSUPPORTED",
                        format!("partition field `{}`: {reason}", field.name),
                    )
                };
                if field.transform == Transform::Void {
                    // Its source column may be gone, as after DROP PARTITION FIELD on old tables.
                    return Ok(Field {
                        name: field.name.clone(),
                        transform: Transform::Void,
                        source: PrimitiveType::Int,
                        position: Vec::new(),
                    });
                }
                let (position, source) =
                    locate(schema.as_struct(), field.source_id).ok_or_else(|| {
                        unsupported(
                            "its source is not a column of primitive type outside lists and maps",
                        )
                    })?;
                values::supported(field.transform, &source).map_err(unsupported)?;
                Ok(Field {
                    name: field.name.clone(),
                    transform: field.transform,
                    source,
                    position,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Partitioner { fields })
    }

    /// Tells whether all rows belong to one partition.
    pub fn is_unpartitioned(&self) -> bool {
        self.fields.is_empty()
    }

    /// Groups the rows of `batch` by their partition tuple, in the order of first appearance.
    pub fn split(&self, batch: &RecordBatch) -> Result<Vec<(PartitionKey, RowIndices)>> {
        let rows = u32::try_from(batch.num_rows())
            .map_err(|_| SinkError::internal("a batch of more than 2^32 rows"))?;
        let columns = self
            .fields
            .iter()
            .map(|field| Values::compute(field.transform, &field.source, &field.position, batch))
            .collect::<Result<Vec<_>>>()?;
        #[expect(
            clippy::disallowed_types,
            reason = "one look-up for each row; its order is never seen: groups are numbered by \
                      first appearance"
        )]
        let mut numbers = std::collections::HashMap::<Box<[u8]>, usize>::new();
        let mut groups: Vec<(PartitionKey, RowIndices)> = Vec::new();
        let (mut key, mut previous, mut group) = (Vec::new(), Vec::new(), usize::MAX);
        for row in 0..rows {
            key.clear();
            for column in &columns {
                column.append_key(row as usize, &mut key);
            }
            // Rows of one partition often come in runs: those skip the look-up.
            if group == usize::MAX || key != previous {
                group = match numbers.get(key.as_slice()) {
                    Some(group) => *group,
                    None => {
                        let values = columns.iter().map(|column| column.literal(row as usize));
                        let values = Struct::from_iter(values);
                        groups.push((PartitionKey { values }, Vec::new()));
                        numbers.insert(key.clone().into_boxed_slice(), groups.len() - 1);
                        groups.len() - 1
                    }
                };
                std::mem::swap(&mut key, &mut previous);
            }
            if let Some((_, rows)) = groups.get_mut(group) {
                rows.push(row);
            }
        }
        Ok(groups)
    }

    /// Returns the directory of a partition below the data directory, such as
    /// `ts_day=2024-01-02/city=Z%C3%BCrich`; empty for an unpartitioned table.
    pub fn path(&self, key: &PartitionKey) -> String {
        path::join(
            self.fields
                .iter()
                .zip(key.values.iter())
                .map(|(field, value)| {
                    let text = human::human(field.transform, &field.source, value);
                    (field.name.as_str(), text)
                }),
        )
    }
}

/// Refuses a partition by a whole uuid: the format library writes a uuid in a partition tuple as an
/// Avro string and then fails on it, so no manifest could ever name a file of such a table.
pub fn refuse_uuid(spec: &PartitionSpec, schema: &Schema) -> Result<()> {
    let uuid = Type::Primitive(PrimitiveType::Uuid);
    let mut fields = spec.fields().iter();
    let refused = fields.find(|field| {
        let source = schema.field_by_id(field.source_id);
        field.transform == Transform::Identity
            && source.is_some_and(|source| *source.field_type == uuid)
    });
    match refused {
        None => Ok(()),
        Some(field) => Err(SinkError::fatal(
            "PARTITION_UNSUPPORTED",
            format!(
                "partition field `{}`: partitions by a uuid itself are not supported; \
                 use a bucket of it",
                field.name
            ),
        )),
    }
}

/// Finds the primitive column `id` below `parent`, through structs only.
fn locate(parent: &StructType, id: i32) -> Option<(Vec<usize>, PrimitiveType)> {
    for (position, field) in parent.fields().iter().enumerate() {
        match field.field_type.as_ref() {
            Type::Primitive(primitive) if field.id == id => {
                return Some((vec![position], primitive.clone()));
            }
            Type::Struct(children) => {
                if let Some((mut path, primitive)) = locate(children, id) {
                    path.insert(0, position);
                    return Some((path, primitive));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests;
