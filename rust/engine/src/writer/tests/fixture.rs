//! A table of every type in a directory.

use std::fs::File;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float32Array,
    Float64Array, Int32Array, Int64Array, LargeBinaryArray, ListArray, MapArray, RecordBatch,
    StringArray, StructArray, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Schema as ArrowSchema};
use arrow_select::concat::concat_batches;
use frazil_core::Result;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{
    DataFile, ListType, MapType, NestedField, PartitionSpec, PrimitiveType, Schema, StructType,
    Transform, Type,
};
use object_store::local::LocalFileSystem;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ParquetMetaData;
use tokio::runtime::Handle;

use super::stores::Rooted;
use crate::writer::{TableWriter, TableWriterConfig};

pub(super) const ROOT: &str = "file:///table/";

pub(super) fn schema() -> Arc<Schema> {
    use PrimitiveType as T;
    let primitive = |id, name, kind| NestedField::optional(id, name, Type::Primitive(kind));
    let list = ListType::new(Arc::new(NestedField::list_element(
        30,
        Type::Primitive(T::Int),
        false,
    )));
    let inner = vec![
        Arc::new(primitive(40, "city", T::String)),
        Arc::new(primitive(41, "height", T::Double)),
    ];
    let fields = vec![
        NestedField::required(1, "id", Type::Primitive(T::Long)),
        primitive(2, "i", T::Int),
        primitive(3, "b", T::Boolean),
        primitive(4, "f", T::Float),
        primitive(5, "d", T::Double),
        primitive(
            6,
            "dec9",
            T::Decimal {
                precision: 9,
                scale: 2,
            },
        ),
        primitive(
            7,
            "dec18",
            T::Decimal {
                precision: 18,
                scale: 4,
            },
        ),
        primitive(
            8,
            "dec38",
            T::Decimal {
                precision: 38,
                scale: 10,
            },
        ),
        primitive(9, "date", T::Date),
        primitive(10, "time", T::Time),
        primitive(11, "ts", T::Timestamp),
        primitive(12, "tstz", T::Timestamptz),
        primitive(13, "s", T::String),
        primitive(14, "u", T::Uuid),
        primitive(15, "fx", T::Fixed(5)),
        primitive(16, "bin", T::Binary),
        NestedField::optional(17, "st", Type::Struct(StructType::new(inner))),
        NestedField::optional(18, "li", Type::List(list)),
        NestedField::optional(
            19,
            "ma",
            Type::Map(MapType::optional(
                50,
                Type::Primitive(T::String),
                51,
                Type::Primitive(T::Long),
            )),
        ),
    ];
    Arc::new(
        Schema::builder()
            .with_fields(fields.into_iter().map(Arc::new))
            .build()
            .unwrap(),
    )
}

/// Rows `from..to`, deterministic; every seventh value of an optional column is null.
pub(super) fn rows(schema: &Schema, from: i64, to: i64) -> RecordBatch {
    let arrow = Arc::new(schema_to_arrow_schema(schema).unwrap());
    let keys: Vec<i64> = (from..to).collect();
    let mut columns = numbers(&keys);
    columns.extend(instants(&keys));
    columns.extend(bytes(&keys));
    columns.extend(nested(&arrow, &keys));
    RecordBatch::try_new(arrow, columns).unwrap()
}

fn optional<A, T>(keys: &[i64], value: impl Fn(i64) -> T) -> A
where
    A: FromIterator<Option<T>>,
{
    keys.iter()
        .map(|n| (n % 7 != 3).then(|| value(*n)))
        .collect()
}

fn numbers(keys: &[i64]) -> Vec<ArrayRef> {
    let decimal = |precision, scale, factor: i128| {
        let array: Decimal128Array = optional(keys, |n| (i128::from(n) - 500) * factor);
        Arc::new(array.with_precision_and_scale(precision, scale).unwrap()) as ArrayRef
    };
    let float = |n: i64| if n % 5 == 0 { f32::NAN } else { n as f32 };
    vec![
        Arc::new(Int64Array::from(keys.to_vec())),
        Arc::new(optional::<Int32Array, _>(keys, |n| n as i32 - 500)),
        Arc::new(optional::<BooleanArray, _>(keys, |n| n % 2 == 0)),
        Arc::new(optional::<Float32Array, _>(keys, float)),
        Arc::new(optional::<Float64Array, _>(keys, |n| n as f64 - 500.5)),
        decimal(9, 2, 31),
        decimal(18, 4, 1_000_000_007),
        decimal(38, 10, 1 << 70),
    ]
}

fn instants(keys: &[i64]) -> Vec<ArrayRef> {
    let stamp = |n: i64| (n - 500) * 3_700_000_007;
    let stamps: TimestampMicrosecondArray = optional(keys, stamp);
    vec![
        Arc::new(optional::<Date32Array, _>(keys, |n| n as i32 - 500)),
        Arc::new(optional::<Time64MicrosecondArray, _>(keys, |n| {
            n * 1_000_003
        })),
        Arc::new(stamps.clone()),
        Arc::new(stamps.with_timezone("+00:00")),
    ]
}

fn bytes(keys: &[i64]) -> Vec<ArrayRef> {
    let fixed = |width, value: &dyn Fn(i64) -> Vec<u8>| {
        let values: Vec<_> = optional(keys, value);
        let values = values.into_iter();
        let array = FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, width).unwrap();
        Arc::new(array) as ArrayRef
    };
    let text = |n: i64| format!("{:03}/é🧊 {}", n % 50, "x".repeat(n as usize % 90));
    let uuid = |n: i64| (n as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834);
    let binary = |n: i64| vec![(n % 251) as u8; n as usize % 40];
    vec![
        Arc::new(optional::<StringArray, _>(keys, text)),
        fixed(16, &|n| uuid(n).to_be_bytes().to_vec()),
        fixed(5, &|n| (n as u64).to_be_bytes()[3..].to_vec()),
        Arc::new(optional::<LargeBinaryArray, _>(keys, binary)),
    ]
}

fn nested(arrow: &ArrowSchema, keys: &[i64]) -> Vec<ArrayRef> {
    let DataType::Struct(children) = arrow.field(16).data_type() else {
        panic!("`st` is no struct")
    };
    let DataType::List(element) = arrow.field(17).data_type() else {
        panic!("`li` is no list")
    };
    let DataType::Map(entry, _) = arrow.field(18).data_type() else {
        panic!("`ma` is no map")
    };
    let DataType::Struct(pair) = entry.data_type() else {
        panic!("the entries of `ma` are no structs")
    };
    let city: StringArray = optional(keys, |n| format!("city {n}"));
    let height: Float64Array = optional(keys, |n| n as f64 / 4.0);
    let address: Vec<ArrayRef> = vec![Arc::new(city), Arc::new(height)];
    let two = || OffsetBuffer::from_lengths(keys.iter().map(|_| 2));
    let elements: Int32Array = keys.iter().flat_map(|n| [Some(*n as i32), None]).collect();
    let names: StringArray = keys.iter().flat_map(|_| [Some("x"), Some("y")]).collect();
    let values: Int64Array = keys.iter().flat_map(|n| [Some(*n), None]).collect();
    let pairs = StructArray::new(pair.clone(), vec![Arc::new(names), Arc::new(values)], None);
    vec![
        Arc::new(StructArray::new(children.clone(), address, None)),
        Arc::new(ListArray::new(
            element.clone(),
            two(),
            Arc::new(elements),
            None,
        )),
        Arc::new(MapArray::new(entry.clone(), two(), pairs, None, false)),
    ]
}

pub(super) fn spec(schema: &Arc<Schema>, terms: &[(&str, Transform)]) -> PartitionSpec {
    let builder = PartitionSpec::builder(schema.clone()).with_spec_id(3);
    let terms = terms.iter().enumerate();
    terms
        .fold(builder, |builder, (n, (column, transform))| {
            builder
                .add_partition_field(*column, format!("p{n}"), *transform)
                .unwrap()
        })
        .build()
        .unwrap()
}

pub(super) struct Table {
    pub(super) directory: tempfile::TempDir,
    pub(super) schema: Arc<Schema>,
    pub(super) config: TableWriterConfig,
}

impl Table {
    pub(super) fn new(
        schema: Arc<Schema>,
        terms: &[(&str, Transform)],
        properties: &[(&str, &str)],
    ) -> Self {
        let spec = Arc::new(spec(&schema, terms));
        let mut config = TableWriterConfig::new(schema.clone(), spec, ROOT, "frazil-w-s-1");
        config.properties = properties
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect();
        let directory = tempfile::tempdir().unwrap();
        Table {
            directory,
            schema,
            config,
        }
    }

    pub(super) fn writer(&self) -> TableWriter {
        self.try_writer().unwrap()
    }

    pub(super) fn try_writer(&self) -> Result<TableWriter> {
        let store = Arc::new(LocalFileSystem::new_with_prefix(self.directory.path()).unwrap());
        TableWriter::new(
            self.config.clone(),
            Rooted { store, root: ROOT },
            Handle::current(),
        )
    }

    pub(super) async fn write(&self, batches: &[RecordBatch]) -> Vec<DataFile> {
        let mut writer = self.writer();
        for batch in batches {
            writer.write(batch.clone()).unwrap();
        }
        writer.seal().unwrap().wait().await.unwrap()
    }

    pub(super) fn open(&self, file: &DataFile) -> (RecordBatch, Arc<ParquetMetaData>) {
        let key = file.file_path().strip_prefix(ROOT).unwrap();
        let path = self.directory.path().join(key);
        assert_eq!(path.metadata().unwrap().len(), file.file_size_in_bytes());
        let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
        let metadata = builder.metadata().clone();
        let schema = builder.schema().clone();
        let batches: Vec<_> = builder
            .build()
            .unwrap()
            .map(|batch| batch.unwrap())
            .collect();
        (concat_batches(&schema, &batches).unwrap(), metadata)
    }
}
