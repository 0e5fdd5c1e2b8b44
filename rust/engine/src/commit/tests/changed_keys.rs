//! The key of a table with changes becomes another one, or the table does.

use frazil_core::commit::validate::RejectReason;
use iceberg::TableUpdate;

use super::changed::{Changed, put};
use super::changed_races::{Racing, Turn};
use super::*;
use crate::commit::ChangedTable;
use crate::memory::Memory;

/// What an engine does that makes the column `id` the table's identifier field.
async fn identified_by(table: &Changed, id: i32) -> Vec<TableUpdate> {
    let loaded = table.world.load().await;
    let schema = loaded.metadata.current_schema().as_ref().clone();
    let schema = schema.into_builder().with_identifier_field_ids([id]);
    vec![
        TableUpdate::AddSchema {
            schema: schema.build().unwrap(),
        },
        TableUpdate::SetCurrentSchema { schema_id: -1 },
    ]
}

// Promise: When the columns of the key become others between two attempts of a commit, its changes are not resolved by the new ones: no row of another key goes, and the session writes them again.
#[tokio::test]
async fn changes_of_other_columns_are_not_resolved() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = Changed::new("t", version).await;
        let updates = identified_by(&table, 1).await;
        table.change(updates).await;
        let racing = Racing::before(&mut table);
        let catalog: Arc<dyn Catalog> = racing.clone();
        let committer = committer(catalog, &table.world.ident, WID);
        table.committer = committer.with_changes(ChangedTable::default(), Memory::new(None));
        table.commit(&[put((1, 0, 5)), put((5, 0, 1))]).await;
        let segment = table.segment(1, 0, &[put((1, 0, 9))]).await;
        let mut foreign = table.foreign_append(&[(7, 0, 7)]).await;
        foreign.updates = identified_by(&table, 3).await;
        racing.next([Turn::Foreign(foreign)]);
        let outcomes = table.committer.commit(vec![segment]).await;
        let [(0, SegmentOutcome::Rejected(RejectReason::KeysUnusable { .. }))] = &outcomes[..]
        else {
            panic!("{outcomes:?}");
        };
        assert!(racing.is_over());
        table.expect(&[put((7, 0, 7))]);
        table.check().await;
    }
}

// Promise: What is remembered of a table's changes says nothing about another table of its name.
#[tokio::test]
async fn orders_of_a_table_that_was_replaced_are_forgotten() {
    for version in [FormatVersion::V2, FormatVersion::V3] {
        let mut table = Changed::new("t", version).await;
        table.commit(&[put((1, 0, 9)).at(0, 9)]).await;
        table.replace(version).await;
        table.commit(&[put((1, 0, 5)).at(0, 5)]).await;
    }
}
