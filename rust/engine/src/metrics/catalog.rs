//! A catalog whose operations are counted.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use frazil_core::Result;
use frazil_core::metrics::ConnectorMetric as Metric;
use iceberg::{NamespaceIdent, TableIdent};

use super::ConnectorMetrics;
use crate::catalog::{Catalog, CommitOutcome, CreateTable, LoadedTable, TableCommit};

/// Answers that are no failures: whoever asked is ready for them.
const EXPECTED: [&str; 3] = ["TABLE_NOT_FOUND", "TABLE_EXISTS", "NAMESPACE_NOT_FOUND"];

/// Hands everything on to another catalog, and counts.
#[derive(Debug)]
pub(crate) struct CountedCatalog {
    inner: Arc<dyn Catalog>,
    metrics: Arc<ConnectorMetrics>,
}

impl CountedCatalog {
    /// Returns `inner`, counted.
    pub(crate) fn around(
        inner: Arc<dyn Catalog>,
        metrics: &Arc<ConnectorMetrics>,
    ) -> Arc<dyn Catalog> {
        Arc::new(CountedCatalog {
            inner,
            metrics: Arc::clone(metrics),
        })
    }

    async fn counted<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let done = self.timed(work).await;
        if let Err(error) = &done
            && !EXPECTED.contains(&error.code())
        {
            self.metrics.values.add(Metric::CatalogErrors, 1);
        }
        done
    }

    async fn timed<T>(&self, work: impl Future<Output = T>) -> T {
        self.metrics.values.add(Metric::CatalogRequests, 1);
        let begun = Instant::now();
        let done = work.await;
        let time = begun.elapsed();
        self.metrics.values.add_time(Metric::CatalogTime, time);
        done
    }
}

#[async_trait]
impl Catalog for CountedCatalog {
    async fn load_table(&self, ident: &TableIdent) -> Result<LoadedTable> {
        self.counted(self.inner.load_table(ident)).await
    }

    async fn create_table(&self, ident: &TableIdent, table: CreateTable) -> Result<LoadedTable> {
        self.counted(self.inner.create_table(ident, table)).await
    }

    async fn create_namespace(&self, namespace: &NamespaceIdent) -> Result<()> {
        self.counted(self.inner.create_namespace(namespace)).await
    }

    async fn namespace_exists(&self, namespace: &NamespaceIdent) -> Result<bool> {
        self.counted(self.inner.namespace_exists(namespace)).await
    }

    async fn list_tables(&self, below: &[String]) -> Result<Vec<TableIdent>> {
        self.counted(self.inner.list_tables(below)).await
    }

    async fn commit(&self, base: &LoadedTable, commit: TableCommit) -> CommitOutcome {
        let outcome = self.timed(self.inner.commit(base, commit)).await;
        let values = &self.metrics.values;
        values.add(Metric::CatalogCommits, 1);
        match &outcome {
            CommitOutcome::Committed(_) => {}
            CommitOutcome::Conflict(_) => values.add(Metric::CatalogConflicts, 1),
            CommitOutcome::Refused(_) | CommitOutcome::Unauthorized(_) => {
                values.add(Metric::CatalogErrors, 1);
            }
            CommitOutcome::Unknown(_) => {
                values.add(Metric::CatalogUnknown, 1);
                values.add(Metric::CatalogErrors, 1);
            }
        }
        outcome
    }

    async fn drop_table(&self, ident: &TableIdent) -> Result<()> {
        self.counted(self.inner.drop_table(ident)).await
    }

    async fn check(&self) -> Result<()> {
        self.counted(self.inner.check()).await
    }
}
