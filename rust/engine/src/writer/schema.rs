//! The schema of a table's data files: Iceberg's, Arrow's and Parquet's view of it.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef as ArrowSchemaRef};
use frazil_core::{Result, SinkError};
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{PrimitiveType, Schema, Type};
use parquet::arrow::ArrowSchemaConverter;
use parquet::basic::{LogicalType, Type as PhysicalType};
use parquet::errors::Result as ParquetResult;
use parquet::schema::types::{SchemaDescriptor, Type as ParquetType, TypePtr};

/// The column of batches that numbers their rows. Columns of tables are found by their place.
const NUMBER: &str = "frazil.number";

/// One Parquet column.
#[derive(Debug)]
pub(super) struct Leaf {
    /// Its field id.
    pub(super) id: i32,
    /// Its full name in the table, such as `address.city`.
    pub(super) name: String,
    /// Its type.
    pub(super) kind: PrimitiveType,
    /// Child positions from the root through structs; empty inside lists and maps.
    pub(super) position: Vec<usize>,
}

impl Leaf {
    /// Tells whether the column is inside a list or map: such columns have counts, but no bounds.
    pub(super) fn is_repeated(&self) -> bool {
        self.position.is_empty()
    }
}

/// The schema of a table's data files.
#[derive(Debug)]
pub(super) struct FileSchema {
    /// What the columns of files look like in batches.
    pub(super) arrow: ArrowSchemaRef,
    /// What batches must look like: the same, or with numbers of the rows behind the columns.
    pub(super) gathered: ArrowSchemaRef,
    /// What files look like.
    pub(super) parquet: SchemaDescriptor,
    /// The footer value `iceberg.schema`, as Iceberg's Java library writes it.
    pub(super) json: String,
    /// The Parquet columns in file order.
    pub(super) leaves: Vec<Leaf>,
}

impl FileSchema {
    /// Derives the file schema of `schema`.
    pub(super) fn new(schema: &Schema) -> Result<Self> {
        let unusable = |error: &dyn std::fmt::Display| {
            SinkError::fatal(
                "TABLE_SCHEMA_UNSUPPORTED",
                format!("the table's schema cannot be written as Parquet: {error}"),
            )
        };
        let arrow = schema_to_arrow_schema(schema).map_err(|error| unusable(&error))?;
        let converted = ArrowSchemaConverter::new()
            .schema_root("table")
            .convert(&arrow)
            .map_err(|error| unusable(&error))?;
        let root = annotate(&converted.root_schema_ptr(), schema);
        let parquet = SchemaDescriptor::new(root.map_err(|error| unusable(&error))?);
        let leaves = leaves(schema, &parquet)?;
        let json = serde_json::to_string(schema).map_err(|error| unusable(&error))?;
        let arrow = Arc::new(arrow);
        Ok(FileSchema {
            gathered: Arc::clone(&arrow),
            arrow,
            parquet,
            json,
            leaves,
        })
    }

    /// Adds the column with the numbers of the rows, which no file gets.
    pub(super) fn with_numbers(mut self) -> Self {
        let number = Arc::new(Field::new(NUMBER, DataType::UInt32, false));
        let fields = self.arrow.fields().iter().cloned().chain([number]);
        let metadata = self.arrow.metadata().clone();
        self.gathered = Arc::new(ArrowSchema::new_with_metadata(
            fields.collect::<Vec<_>>(),
            metadata,
        ));
        self
    }

    /// Takes the numbers of the rows off a batch; `None` when batches have none.
    pub(super) fn numbers(
        &self,
        batch: &RecordBatch,
    ) -> Result<Option<(RecordBatch, UInt32Array)>> {
        if Arc::ptr_eq(&self.arrow, &self.gathered) {
            return Ok(None);
        }
        let lost = || SinkError::internal("the rows of a batch lost their numbers");
        let mut columns = batch.columns().to_vec();
        let numbers = columns.pop().ok_or_else(lost)?;
        let numbers = numbers.as_primitive_opt::<UInt32Type>().ok_or_else(lost)?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let rest = RecordBatch::try_new_with_options(self.arrow.clone(), columns, &options);
        Ok(Some((
            rest.map_err(|error| lost().caused_by(error))?,
            numbers.clone(),
        )))
    }

    /// Gives `batch` exactly this schema: the same columns in the same order, with field ids.
    pub(super) fn align(&self, batch: RecordBatch) -> Result<RecordBatch> {
        if Arc::ptr_eq(batch.schema_ref(), &self.gathered) {
            return Ok(batch);
        }
        let options = RecordBatchOptions::new()
            .with_match_field_names(false)
            .with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(self.gathered.clone(), batch.columns().to_vec(), &options)
            .map_err(|error| {
                SinkError::internal("a batch does not have the schema of its table")
                    .caused_by(error)
            })
    }
}

/// Adds what Arrow cannot say: that the 16 bytes of a uuid are one.
fn annotate(node: &TypePtr, schema: &Schema) -> ParquetResult<TypePtr> {
    let info = node.get_basic_info();
    let id = info.has_id().then(|| info.id());
    if node.is_primitive() {
        let field = id.and_then(|id| schema.field_by_id(id));
        let is_uuid =
            field.is_some_and(|field| *field.field_type == Type::Primitive(PrimitiveType::Uuid));
        if !is_uuid {
            return Ok(node.clone());
        }
        return ParquetType::primitive_type_builder(
            node.name(),
            PhysicalType::FIXED_LEN_BYTE_ARRAY,
        )
        .with_repetition(info.repetition())
        .with_length(16)
        .with_logical_type(Some(LogicalType::Uuid))
        .with_id(id)
        .build()
        .map(Arc::new);
    }
    let children = node
        .get_fields()
        .iter()
        .map(|child| annotate(child, schema))
        .collect::<ParquetResult<Vec<_>>>()?;
    let mut group = ParquetType::group_type_builder(node.name())
        .with_fields(children)
        .with_id(id)
        .with_converted_type(info.converted_type())
        .with_logical_type(info.logical_type_ref().cloned());
    if info.has_repetition() {
        group = group.with_repetition(info.repetition());
    }
    group.build().map(Arc::new)
}

fn leaves(schema: &Schema, parquet: &SchemaDescriptor) -> Result<Vec<Leaf>> {
    let columns = parquet.columns().iter();
    columns
        .map(|column| {
            let info = column.self_type().get_basic_info();
            let id = info.has_id().then(|| info.id());
            let field = id.and_then(|id| schema.field_by_id(id));
            let field =
                field.ok_or_else(|| SinkError::internal("a Parquet column has no field"))?;
            let Type::Primitive(kind) = field.field_type.as_ref() else {
                return Err(SinkError::internal("a Parquet column is not primitive"));
            };
            Ok(Leaf {
                id: field.id,
                name: schema
                    .name_by_field_id(field.id)
                    .unwrap_or(&field.name)
                    .to_string(),
                kind: kind.clone(),
                position: position(schema.as_struct().fields(), field.id).unwrap_or_default(),
            })
        })
        .collect()
}

/// Finds the column `id` through structs only.
fn position(fields: &[iceberg::spec::NestedFieldRef], id: i32) -> Option<Vec<usize>> {
    fields.iter().enumerate().find_map(|(index, field)| {
        if field.id == id {
            return Some(vec![index]);
        }
        let Type::Struct(children) = field.field_type.as_ref() else {
            return None;
        };
        let mut path = position(children.fields(), id)?;
        path.insert(0, index);
        Some(path)
    })
}
