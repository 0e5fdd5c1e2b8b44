use std::collections::BTreeMap;
use std::sync::Arc;

use iceberg::TableUpdate;
use iceberg::spec::{
    FormatVersion, NestedField, PrimitiveType, Schema, SortOrder, StructType, TableMetadata,
    TableMetadataBuilder, Transform, Type, UnboundPartitionSpec,
};

use super::spec::{Standing, describe, of_new_table, plan_change, standing};
use super::{check_existing, identifier, sort};
use crate::config::{SinkConfig, TableConfig};

fn config(keys: &[(&str, &str)]) -> TableConfig {
    let mut values: BTreeMap<String, String> = [
        ("name", "c"),
        ("topics", "t"),
        ("tasks.max", "1"),
        ("iceberg.tables", "db.t"),
        ("iceberg.catalog.type", "sql"),
        ("iceberg.catalog.uri", "sqlite:/x"),
        ("iceberg.catalog.warehouse", "file:///w"),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect();
    for (key, value) in keys {
        values.insert(format!("iceberg.table.db.t.{key}"), (*value).to_owned());
    }
    let (config, problems) = SinkConfig::parse(&values);
    let config = config.unwrap_or_else(|| panic!("{problems:?}"));
    config.tables[0].clone()
}

fn schema() -> Schema {
    let primitive = |primitive| Type::Primitive(primitive);
    let inner = StructType::new(vec![
        Arc::new(NestedField::optional(
            6,
            "zip",
            primitive(PrimitiveType::Int),
        )),
        Arc::new(NestedField::optional(
            7,
            "city",
            primitive(PrimitiveType::String),
        )),
    ]);
    Schema::builder()
        .with_fields([
            Arc::new(NestedField::optional(
                1,
                "id",
                primitive(PrimitiveType::Long),
            )),
            Arc::new(NestedField::optional(
                2,
                "ts",
                primitive(PrimitiveType::Timestamptz),
            )),
            Arc::new(NestedField::optional(
                3,
                "Name",
                primitive(PrimitiveType::String),
            )),
            Arc::new(NestedField::optional(
                4,
                "weight",
                primitive(PrimitiveType::Double),
            )),
            Arc::new(NestedField::optional(5, "home", Type::Struct(inner))),
            Arc::new(NestedField::optional(
                8,
                "key",
                primitive(PrimitiveType::Uuid),
            )),
        ])
        .build()
        .unwrap()
}

fn table(spec: UnboundPartitionSpec, order: SortOrder) -> TableMetadata {
    TableMetadataBuilder::new(
        schema(),
        spec,
        order,
        "file:///t".to_owned(),
        FormatVersion::V2,
        Default::default(),
    )
    .unwrap()
    .build()
    .unwrap()
    .metadata
}

fn partitioned(by: &str) -> TableMetadata {
    let config = config(&[("partition-by", by)]);
    let spec = of_new_table(&schema(), &config)
        .unwrap()
        .unwrap_or_default();
    table(spec, SortOrder::unsorted_order())
}

fn apply(metadata: &TableMetadata, updates: Vec<TableUpdate>) -> TableMetadata {
    let mut builder = metadata.clone().into_builder(None);
    for update in updates {
        builder = update.apply(builder).unwrap();
    }
    builder.build().unwrap().metadata
}

fn change(metadata: &TableMetadata, by: &str) -> TableMetadata {
    let plan = plan_change(metadata, &config(&[("partition-by", by)]));
    let plan = plan.unwrap().expect("something changes");
    for requirement in &plan.requirements {
        requirement.check(Some(metadata)).unwrap();
    }
    apply(metadata, plan.updates)
}

fn fields(metadata: &TableMetadata) -> Vec<(i32, String, Transform)> {
    let spec = metadata.default_partition_spec();
    let fields = spec.fields().iter();
    fields
        .map(|field| (field.field_id, field.name.clone(), field.transform))
        .collect()
}

#[test]
fn a_new_field_gets_the_next_id_and_an_equal_one_keeps_its_own() {
    let first = partitioned("bucket(id, 16), day(ts)");
    let second = change(&first, "day(ts), Name");
    assert_eq!(
        fields(&second),
        [
            (1001, "ts_day".to_owned(), Transform::Day),
            (1002, "Name".to_owned(), Transform::Identity),
        ]
    );
    let third = change(&second, "bucket(id, 16), bucket(Name, 4)");
    assert_eq!(
        fields(&third),
        [
            (1000, "id_bucket".to_owned(), Transform::Bucket(16)),
            (1003, "Name_bucket".to_owned(), Transform::Bucket(4)),
        ]
    );
    assert_eq!(third.partition_specs_iter().len(), 3);
}

#[test]
fn a_spec_that_the_table_had_is_used_again() {
    let first = partitioned("bucket(id, 16)");
    let second = change(&first, "day(ts)");
    let back = change(&second, "bucket(16, id)");
    assert_eq!(back.default_partition_spec_id(), 0);
    assert_eq!(back.partition_specs_iter().len(), 2);
}

#[test]
fn another_width_of_the_same_column_has_a_name_of_its_own() {
    let first = partitioned("bucket(id, 16), truncate(Name, 2)");
    let second = change(&first, "bucket(id, 32), truncate(Name, 3)");
    let names: Vec<String> = fields(&second)
        .into_iter()
        .map(|(_, name, _)| name)
        .collect();
    assert_eq!(names, ["id_bucket_32", "Name_trunc_3"]);
}

#[test]
fn an_unpartitioned_table_gets_its_first_spec() {
    let first = table(UnboundPartitionSpec::default(), SortOrder::unsorted_order());
    assert_eq!(describe(&first), "unpartitioned");
    let second = change(&first, "hour(ts), home.city");
    assert_eq!(describe(&second), "hour(ts), home.city");
    assert_eq!(fields(&second)[0].0, 1000);
}

#[test]
fn order_and_void_fields_make_no_other_partitioning() {
    let metadata = partitioned("day(ts), bucket(id, 16), void(weight)");
    for by in [
        "bucket(16, id),days(ts)",
        "days(ts), void(home.zip), bucket(id, 16)",
    ] {
        let config = config(&[("partition-by", by)]);
        assert_eq!(standing(&metadata, &config), Standing::Same, "{by}");
        assert!(plan_change(&metadata, &config).unwrap().is_none());
    }
    for by in [
        "bucket(id, 16)",
        "bucket(id, 8), day(ts)",
        "day(ts), bucket(id, 16), Name",
    ] {
        let config = config(&[("partition-by", by)]);
        assert_eq!(standing(&metadata, &config), Standing::Differs, "{by}");
    }
    assert_eq!(standing(&metadata, &config(&[])), Standing::Same);
}

#[test]
fn the_policy_decides_at_the_start() {
    let metadata = partitioned("day(ts)");
    let check = |policy: &str, by: &str| {
        let config = config(&[("partition-by", by), ("partition-spec-policy", policy)]);
        check_existing(&metadata, &config).map_err(|error| error.code())
    };
    assert_eq!(check("keep", "bucket(id, 4)"), Ok(()));
    assert_eq!(check("keep", "nope"), Ok(()));
    assert_eq!(check("evolve", "bucket(id, 4)"), Ok(()));
    assert_eq!(check("fail", "day(ts)"), Ok(()));
    assert_eq!(
        check("fail", "bucket(id, 4)"),
        Err("PARTITION_SPEC_DIFFERS")
    );
    assert_eq!(check("fail", "nope"), Err("PARTITION_COLUMN_MISSING"));
    assert_eq!(check("evolve", "nope"), Err("PARTITION_COLUMN_MISSING"));
    // Refused before the table is changed, not when the first row has to be written.
    assert_eq!(check("evolve", "day(id)"), Err("PARTITION_BY_INVALID"));
    assert_eq!(check("evolve", "key"), Err("PARTITION_UNSUPPORTED"));
    let coming = config(&[
        ("partition-by", "nope"),
        ("partition-spec-policy", "evolve"),
        ("evolve-schema-enabled", "true"),
    ]);
    check_existing(&metadata, &coming).unwrap();
}

#[test]
fn a_new_table_that_could_not_be_written_is_not_made() {
    for (by, code) in [
        ("day(id)", "PARTITION_BY_INVALID"),
        ("key", "PARTITION_UNSUPPORTED"),
        ("bucket(weight, 3)", "PARTITION_BY_INVALID"),
        ("nope", "CREATE_COLUMN_MISSING"),
        ("home", "PARTITION_BY_INVALID"),
    ] {
        let error = of_new_table(&schema(), &config(&[("partition-by", by)])).unwrap_err();
        assert_eq!(error.code(), code, "{by}: {error}");
    }
}

// Promise: an id column that an existing table does not have is an error at the start (T12)
#[test]
fn id_columns_are_checked_on_existing_tables() {
    let metadata = partitioned("");
    let check = |ids: &str| check_existing(&metadata, &config(&[("id-columns", ids)]));
    check("id,home.zip").unwrap();
    let error = check("nope").unwrap_err();
    assert_eq!(error.code(), "ID_COLUMN_MISSING");
    assert!(error.message().contains("`nope`"), "{error}");
    assert_eq!(check("weight").unwrap_err().code(), "ID_COLUMNS_INVALID");
    assert_eq!(check("home").unwrap_err().code(), "ID_COLUMNS_INVALID");
    assert_eq!(check("name").unwrap_err().code(), "ID_COLUMN_MISSING");
}

// Promise: a created table has identifier fields, required, also those inside of structs
// Complaint: 18
#[test]
fn identifier_fields_are_set_and_required() {
    let config = config(&[("id-columns", "id, home.zip")]);
    let made = identifier::with_identifier(schema(), &config).unwrap();
    let mut ids: Vec<i32> = made.identifier_field_ids().collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 6]);
    let required = |name: &str| made.field_by_name(name).unwrap().required;
    assert!(required("id") && required("home") && required("home.zip"));
    assert!(!required("home.city") && !required("ts"));
}

#[test]
fn id_columns_that_cannot_identify_are_refused() {
    for (ids, code) in [
        ("weight", "ID_COLUMNS_INVALID"),
        ("home", "ID_COLUMNS_INVALID"),
        ("nope", "CREATE_COLUMN_MISSING"),
    ] {
        let made = identifier::with_identifier(schema(), &config(&[("id-columns", ids)]));
        assert_eq!(made.unwrap_err().code(), code, "{ids}");
    }
}

#[test]
fn names_match_whatever_their_case_when_asked() {
    let mut config = config(&[("id-columns", "name"), ("partition-by", "NAME")]);
    config.case_insensitive = true;
    let made = identifier::with_identifier(schema(), &config).unwrap();
    assert_eq!(made.identifier_field_ids().collect::<Vec<_>>(), [3]);
    let spec = of_new_table(&schema(), &config).unwrap().unwrap();
    assert_eq!(spec.fields()[0].name, "Name");
}

#[test]
fn an_order_that_the_table_knows_has_its_id() {
    let by = config(&[("sort-by", "day(ts) desc, id")]);
    let order = sort::of_new_table(&schema(), &by).unwrap().unwrap();
    let metadata = table(UnboundPartitionSpec::default(), order);
    let id = |config: &TableConfig| {
        let order = sort::of_table(&metadata, config).unwrap();
        order.map(|order| order.id)
    };
    assert_eq!(id(&config(&[])), Some(Some(1)), "the table's own order");
    assert_eq!(id(&by), Some(Some(1)));
    assert_eq!(
        id(&config(&[("sort-by", "id")])),
        Some(None),
        "an order of ours alone"
    );
    let unsorted = partitioned("");
    assert!(sort::of_table(&unsorted, &config(&[])).unwrap().is_none());
}

#[test]
fn orders_that_cannot_be_are_refused() {
    let metadata = partitioned("");
    for (by, code) in [
        ("nope", "SORT_COLUMN_MISSING"),
        ("home", "SORT_BY_INVALID"),
        ("day(id)", "SORT_BY_INVALID"),
    ] {
        let error = check_existing(&metadata, &config(&[("sort-by", by)])).unwrap_err();
        assert_eq!(error.code(), code, "{by}");
    }
    let error = sort::of_new_table(&schema(), &config(&[("sort-by", "nope")])).unwrap_err();
    assert_eq!(error.code(), "CREATE_COLUMN_MISSING");
}

fn changed(metadata: &TableMetadata, keys: &[(&str, &str)]) -> Result<(), &'static str> {
    let upserts = [("mode", "upsert"), ("id-columns", "id")];
    let keys: Vec<_> = upserts.iter().chain(keys).copied().collect();
    super::changed::check(metadata, &config(&keys)).map_err(|error| error.code())
}

// Promise: columns that are to order changes are checked when the connector is configured
#[test]
fn order_columns_are_checked_on_existing_tables() {
    let table = partitioned("");
    for (columns, expected) in [
        ("ts", Ok(())),
        ("Name, key", Ok(())),
        ("home.zip", Ok(())),
        ("tss", Err("ORDER_COLUMN_MISSING")),
        ("name", Err("ORDER_COLUMN_MISSING")),
        ("weight", Err("CHANGE_ORDER_UNSUPPORTED")),
        ("home", Err("CHANGE_ORDER_UNSUPPORTED")),
    ] {
        let seen = changed(&table, &[("order-columns", columns)]);
        assert_eq!(seen, expected, "{columns}");
    }
    // It may come with a record.
    let evolving = [("order-columns", "tss"), ("evolve-schema-mode", "full")];
    assert_eq!(changed(&table, &evolving), Ok(()));
}

// Promise: a table whose engines delete with `copy-on-write` takes no changes, also one that is to be made
#[test]
fn copy_on_write_is_refused_of_new_tables_too() {
    let table = partitioned("");
    let upserts = [("mode", "upsert"), ("id-columns", "id")];
    let new = |keys: &[(&str, &str)]| {
        let keys: Vec<_> = upserts.iter().chain(keys).copied().collect();
        super::changed::check_new(&config(&keys)).map_err(|error| error.code())
    };
    let modes = |prefix: &str, word| (format!("{prefix}.write.merge.mode"), word);
    let (made, cow) = modes("auto-create-props", "copy-on-write");
    let (laid, read) = modes("write-props", "merge-on-read");
    assert_eq!(new(&[]), Ok(()));
    for keys in [&[(&*made, cow)][..], &[(&*laid, cow)]] {
        assert_eq!(new(keys), Err("CHANGE_MODE_UNSUPPORTED"));
    }
    // What is laid over counts.
    assert_eq!(new(&[(&made, cow), (&laid, read)]), Ok(()));
    assert_eq!(
        changed(&table, &[(&laid, cow)]),
        Err("CHANGE_MODE_UNSUPPORTED")
    );
    assert_eq!(changed(&table, &[(&made, cow)]), Ok(()));
    let keyless = super::changed::check_new(&config(&[("mode", "upsert")]));
    assert_eq!(keyless.unwrap_err().code(), "CHANGE_KEY_MISSING");
    // A word that nobody knows is not passed over.
    let (unknown, word) = modes("write-props", "merge-on-write");
    assert_eq!(new(&[(&unknown, word)]), Err("CHANGE_MODE_UNSUPPORTED"));
}

// Promise: `delete-mode` says with which deletes a table's rows go, and a table whose format version has other ones is refused
#[test]
fn deletes_are_of_the_kind_that_was_asked_for() {
    let existing = partitioned("");
    let upserts = [("mode", "upsert"), ("id-columns", "id")];
    let with = |keys: &[(&'static str, &'static str)]| -> Vec<(&str, &str)> {
        upserts.iter().chain(keys).copied().collect()
    };
    let new = |keys: &[(&'static str, &'static str)]| {
        super::changed::check_new(&config(&with(keys))).map_err(|error| error.code())
    };
    const V3: (&str, &str) = ("auto-create-props.format-version", "3");
    const REFUSED: Result<(), &str> = Err("DELETE_MODE_UNFIT");
    for (mode, of_2, of_3) in [
        ("auto", Ok(()), Ok(())),
        ("vector", REFUSED, Ok(())),
        ("position", Ok(()), REFUSED),
    ] {
        assert_eq!(new(&[("delete-mode", mode)]), of_2, "{mode}");
        assert_eq!(new(&[("delete-mode", mode), V3]), of_3, "{mode}");
        assert_eq!(changed(&existing, &[("delete-mode", mode)]), of_2, "{mode}");
    }
}
