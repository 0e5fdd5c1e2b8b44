use super::*;
use crate::commit::create::{evolve_schema, load_or_create};

fn nested() -> TableIdent {
    let namespace = NamespaceIdent::from_strs(["a", "b", "c"]).unwrap();
    TableIdent::new(namespace, "made".into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_tasks_that_make_a_table_at_once_all_get_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let catalog = open_catalog(&dir);
        tasks.push(tokio::spawn(async move {
            let table = || Ok(create_table(FormatVersion::V2));
            load_or_create(&*catalog, &nested(), table).await
        }));
    }
    let mut uuids = Vec::new();
    for task in tasks {
        uuids.push(task.await.unwrap().unwrap().metadata.uuid());
    }
    uuids.dedup();
    assert_eq!(uuids.len(), 1);
}

#[tokio::test]
async fn a_table_that_is_there_is_only_loaded() {
    let world = World::new(FormatVersion::V2).await;
    let table = || panic!("not asked for");
    let loaded = load_or_create(&*world.catalog, &world.ident, table).await;
    assert_eq!(
        loaded.unwrap().metadata.uuid(),
        world.load().await.metadata.uuid()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_that_add_columns_at_once_add_each_column_once() {
    let world = Arc::new(World::new(FormatVersion::V2).await);
    let mut tasks = Vec::new();
    for task in 0..6 {
        let world = world.clone();
        tasks.push(tokio::spawn(async move {
            // Three names for six tasks: two tasks want the same column.
            let name = format!("c{}", task % 3);
            evolve_schema(&*world.catalog, &world.ident, |metadata| {
                let schema = metadata.current_schema();
                if schema.field_by_name(&name).is_some() {
                    return Ok(None);
                }
                let mut fields = schema.as_struct().fields().to_vec();
                fields.push(Arc::new(NestedField::optional(
                    metadata.last_column_id() + 1,
                    &name,
                    Type::Primitive(PrimitiveType::String),
                )));
                Ok(Some(Schema::builder().with_fields(fields).build().unwrap()))
            })
            .await
        }));
    }
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let loaded = world.load().await;
    let schema = loaded.metadata.current_schema();
    let mut names: Vec<&str> = schema
        .as_struct()
        .fields()
        .iter()
        .map(|f| f.name.as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["c0", "c1", "c2", "id"]);
    assert_eq!(loaded.metadata.last_column_id(), 4);
}
