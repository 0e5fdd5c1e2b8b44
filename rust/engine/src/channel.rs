//! The handle through which Java's consumers and producer of the control topic reach the hub.
//!
//! Java knows nothing of what the records say. It hands all of them over, in order, with the one
//! fact that decides who commits: whether this process owns the control partition. It is told what
//! to send.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use frazil_core::config::SinkConfig;
use frazil_core::wire::{Effects, Request};
use frazil_core::{Result, SinkError};

use crate::catalog;
use crate::commit::ChangedTable;
use crate::failpoint;
use crate::hub::{Hub, HubConfig, TableHub, TableIdentKey, TableKey};
use crate::logs;
use crate::metrics::{ConnectorMetrics, CountedCatalog};
use crate::runtime::Runtime;

/// When Java asks again at the latest: nothing else takes messages out of this process.
const POLL_MS: u64 = 50;

/// A process's end of the control topic.
#[derive(Debug)]
pub struct ControlChannel {
    config: SinkConfig,
    hub: Mutex<Option<Arc<Hub>>>,
    /// Keeps the parts of all tables, also of those that no task here has opened.
    _tables: Vec<Arc<TableHub>>,
    has_sent: AtomicBool,
}

impl ControlChannel {
    /// Opens the channel with the settings of the connector's tasks.
    ///
    /// # Errors
    ///
    /// Of kind `Config` for what the user must change; `INTERNAL` when the connector does not
    /// coordinate over a topic.
    pub fn open(settings: &BTreeMap<String, String>) -> Result<Arc<ControlChannel>> {
        logs::install();
        let config = crate::preflight::start(settings)?;
        let hub_config = HubConfig::of(&config);
        if !hub_config.over_topic {
            return Err(SinkError::internal(
                "a channel was opened for a connector that needs none",
            ));
        }
        let runtime = Runtime::shared()?;
        let metrics = ConnectorMetrics::of(&config.connector);
        let catalog = CountedCatalog::around(catalog::open(&config.catalog)?, &metrics);
        let hub = Hub::join(hub_config, &runtime, catalog);
        let table = |table: &frazil_core::config::TableConfig| {
            let key = TableKey {
                ident: TableIdentKey(table.ident.clone()),
                branch: table.branch.clone(),
            };
            let interval = Duration::from_millis(table.commit_interval_ms);
            let part = hub.table(key, interval, ChangedTable::of(table));
            hub.look_after(&part, table);
            part
        };
        let tables = config.tables.iter().map(table).collect();
        tracing::info!(connector = %config.connector, topic = %config.control.topic, hub = %hub.id(),
            "commits are coordinated over the control topic");
        Ok(Arc::new(ControlChannel {
            config,
            hub: Mutex::new(Some(hub)),
            _tables: tables,
            has_sent: AtomicBool::new(false),
        }))
    }

    /// Takes a request of kind channel, and answers with the messages to send.
    ///
    /// # Errors
    ///
    /// `SESSION_CLOSED` after [`close`](Self::close), `INTERNAL` for a request of a task.
    pub fn control(&self, request: &[u8]) -> Result<Vec<u8>> {
        let hub = self.hub();
        let Some(hub) = hub else {
            return Err(SinkError::fatal(
                "SESSION_CLOSED",
                "the channel of the control topic is closed",
            ));
        };
        let Request::Channel {
            leader, records, ..
        } = Request::decode(request)?
        else {
            return Err(SinkError::internal(
                "a request of a task was sent to the channel's handle",
            ));
        };
        if self.has_sent.load(Ordering::Relaxed) {
            failpoint::pass("channel.after-send")?;
        }
        let messages = hub.exchange(leader, &records);
        self.has_sent.store(!messages.is_empty(), Ordering::Relaxed);
        let mut effects = Effects {
            messages,
            timeout_ms: Some(POLL_MS),
            ..Effects::default()
        };
        logs::drain_into(&mut effects);
        Ok(effects.encode())
    }

    /// Ends the channel: this process coordinates no more. The segments of its tasks wait until it
    /// is opened again.
    pub fn close(&self) {
        let hub = self.hub.lock();
        let hub = hub.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(hub) = hub {
            hub.exchange(false, &[]);
            tracing::info!(connector = %self.config.connector, "the control topic is closed");
        }
    }

    fn hub(&self) -> Option<Arc<Hub>> {
        let hub = self.hub.lock();
        hub.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ControlChannel {
    fn drop(&mut self) {
        self.close();
    }
}
