//! Makes a table with changes from the log of its changes: replays the log through a session.
//!
//! ```text
//!  log ─► files by offset ─► records of one partition after the other ─► frames ─► session ─► table
//! ```
//!
//! The session is the one of the connector, its writer id included: it skips what the table has, so that a rebuild
//! may be ended and repeated, and leaves the offsets of the log's last rows in the table, behind which the
//! connector goes on.

mod log;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frazil_core::commit::recover::state_of;
use frazil_core::commit::state::WriterState;
use frazil_core::config::{SinkConfig, TableConfig};
use frazil_core::offsets::TopicPartition;
use frazil_core::wire::replay::ReplayedRows;
use frazil_core::wire::{Effects, Request, SourceKind, SourceSchema};
use frazil_core::{ErrorKind, Result, SinkError};
use iceberg::spec::TableMetadata;

use crate::admin::Admin;
use crate::catalog::{self, Catalog, LoadedTable};
use crate::preflight;
use crate::runtime::Runtime;
use crate::session::Session;
use log::{Log, Records};

/// How long nothing may move.
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(20);
/// How often the log is read again from its beginning because the session asked for it.
const PASSES_MAX: usize = 20;

/// What is to be made of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuild {
    /// The table with changes.
    pub table: String,
    /// The table that has the changes, one row each.
    pub log: String,
    /// Whether the first row of a partition is its beginning, whatever its offset is.
    pub from_first: bool,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// Rows of the log.
    pub rows: u64,
    /// Each partition with its first offset, and the offset behind its last row.
    pub partitions: Vec<(TopicPartition, i64, i64)>,
    /// The snapshot that the table has now.
    pub snapshot_id: Option<i64>,
}

impl Rebuild {
    /// Brings the table to the end of the log. The connector of `settings` must be stopped.
    ///
    /// # Errors
    ///
    /// `REBUILD_TABLES` when the configuration does not have these tables, `REBUILD_EMPTIED`, `LOG_…`, and all that
    /// ends a task. What was committed until then stays, and a repetition goes on behind it.
    pub fn run(&self, settings: &BTreeMap<String, String>) -> Result<Rebuilt> {
        let config = preflight::start(settings)?;
        let (table, of_log) = self.tables(&config)?;
        let runtime = Runtime::shared()?;
        let catalog = catalog::open(&config.catalog)?;
        let log = runtime.handle().block_on(async {
            let loaded = catalog.load_table(&of_log.ident).await?;
            let log = Log::open(&config, of_log, &loaded).await?;
            let target = load(&*catalog, table).await?;
            let state = target.as_ref().map(|target| state(&config, table, target));
            let state = state.transpose()?.flatten();
            check_target(target.as_ref(), state.as_ref())?;
            log.check_whole(state.as_ref(), self.from_first)?;
            Ok::<_, SinkError>(log)
        });
        let log = log.map_err(|error| error.with("log", &self.log))?;
        let epoch = Admin::open(settings)?.epoch()?;
        let session = Session::open(settings::of(settings, &self.table, epoch))?;
        let replayed = Replay::new(&session, &runtime, &log).and_then(|replay| replay.run());
        session.close();
        replayed.map_err(|error| error.with("table", &self.table))?;
        let loaded = runtime
            .handle()
            .block_on(catalog.load_table(&table.ident))?;
        let head = loaded.metadata.snapshot_for_ref(&table.branch);
        let extents = log.extents.iter();
        Ok(Rebuilt {
            rows: log.extents.values().map(|extent| extent.rows).sum(),
            partitions: extents
                .map(|(partition, extent)| {
                    (
                        partition.clone(),
                        extent.lowest,
                        extent.highest.saturating_add(1),
                    )
                })
                .collect(),
            snapshot_id: head.map(|head| head.snapshot_id()),
        })
    }

    fn tables<'c>(&self, config: &'c SinkConfig) -> Result<(&'c TableConfig, &'c TableConfig)> {
        let find = |name: &str, with_changes: bool, what: &str| {
            let mut tables = config.tables.iter();
            let found = tables.find(|table| table.name == name);
            let is_of_changes = |table: &TableConfig| {
                let changes = table.changes.as_ref();
                changes.is_some_and(|changes| changes.once_within.is_none())
            };
            match found.filter(|table| is_of_changes(table) == with_changes) {
                Some(table) if with_changes || table.changes.is_none() => Ok(table),
                _ => Err(SinkError::config(
                    "REBUILD_TABLES",
                    format!("the configuration has no table `{name}` {what}"),
                )),
            }
        };
        let table = find(&self.table, true, "of the mode `upsert` or `cdc`")?;
        let log = find(&self.log, false, "of the mode `append`")?;
        Ok((table, log))
    }
}

async fn load(catalog: &dyn Catalog, table: &TableConfig) -> Result<Option<LoadedTable>> {
    match catalog.load_table(&table.ident).await {
        Ok(loaded) => Ok(Some(loaded)),
        Err(error) if error.code() == "TABLE_NOT_FOUND" => Ok(None),
        Err(error) => Err(error),
    }
}

fn state(
    config: &SinkConfig,
    table: &TableConfig,
    loaded: &LoadedTable,
) -> Result<Option<WriterState>> {
    state_of(&loaded.metadata, &config.wid, &table.branch)
}

/// Refuses a table that lost its rows and not the offsets of them: nothing would be written.
fn check_target(target: Option<&LoadedTable>, state: Option<&WriterState>) -> Result<()> {
    let has_offsets = state.is_some_and(|state| state.bounds().next().is_some());
    let rows = target.and_then(|target| rows_of(&target.metadata));
    match has_offsets && rows == Some(0) {
        false => Ok(()),
        true => Err(SinkError::config(
            "REBUILD_EMPTIED",
            "the table has no rows, and its state says that it has the changes: drop the table, it is made anew",
        )),
    }
}

fn rows_of(metadata: &TableMetadata) -> Option<u64> {
    let summary = metadata.current_snapshot()?.summary();
    summary
        .additional_properties
        .get("total-records")?
        .parse()
        .ok()
}

/// A log on its way into a session.
struct Replay<'a> {
    session: &'a Session,
    runtime: &'a Runtime,
    log: &'a Log,
    schema: u32,
    keys: Option<u32>,
}

/// What became of records.
#[derive(Debug, PartialEq, Eq)]
enum Fed {
    Taken,
    /// The session wants them again.
    Again,
}

impl<'a> Replay<'a> {
    fn new(session: &'a Arc<Session>, runtime: &'a Runtime, log: &'a Log) -> Result<Self> {
        let schema = session.register_schema(&log.value_schema().to_bytes())?;
        let bytes = SourceSchema::scalar(SourceKind::Bytes).optional();
        let keys = log
            .has_keys()
            .then(|| session.register_schema(&bytes.to_bytes()));
        Ok(Replay {
            session,
            runtime,
            log,
            schema,
            keys: keys.transpose()?,
        })
    }

    fn run(&self) -> Result<()> {
        let partitions: Vec<TopicPartition> = self.log.extents.keys().cloned().collect();
        check(&self.session.request(Request::Assign(partitions))?)?;
        for _ in 0..PASSES_MAX {
            if self.pass()? == Fed::Taken {
                return Ok(());
            }
        }
        Err(SinkError::fatal(
            "REBUILD_INTERRUPTED",
            "the session asked too often for the log from its beginning; run it again, and look at the log for the reason",
        ))
    }

    /// Gives the session the whole log, and waits until the table has it.
    fn pass(&self) -> Result<Fed> {
        for partition in self.log.extents.keys() {
            let mut records = self.log.read(partition);
            while let Some(next) = self.runtime.handle().block_on(records.next())? {
                if self.feed(partition, &next)? == Fed::Again {
                    return Ok(Fed::Again);
                }
            }
        }
        let ends: Vec<(TopicPartition, i64)> = self
            .log
            .extents
            .iter()
            .map(|(partition, extent)| (partition.clone(), extent.highest.saturating_add(1)))
            .collect();
        let (mut before, mut moved) = (Vec::new(), Instant::now());
        loop {
            if self.tick()? == Fed::Again {
                return Ok(Fed::Again);
            }
            let effects = self.session.request(Request::PreCommit(ends.clone()))?;
            if effects.durable == ends {
                return Ok(Fed::Taken);
            }
            if effects.durable != before {
                (before, moved) = (effects.durable, Instant::now());
            }
            wait(moved)?;
        }
    }

    fn feed(&self, partition: &TopicPartition, records: &Records) -> Result<Fed> {
        let frame = ReplayedRows {
            topic: &partition.topic,
            partition: partition.partition,
            rows: &records.rows,
            schema: (self.schema, self.log.value_schema()),
            columns: &records.columns,
            keys: self.keys.zip(records.keys.as_ref()),
        };
        let frame = frame.frame()?;
        let since = Instant::now();
        loop {
            let effects = self.session.request(Request::Tick)?;
            if check(&effects)? == Fed::Again {
                return Ok(Fed::Again);
            }
            if effects.pause {
                wait(since)?;
                continue;
            }
            match self.session.take(&frame, frame.len()) {
                Ok(effects) => return check(&effects),
                Err(error) if error.kind() == ErrorKind::Retriable => {
                    wait(since).map_err(|_| error)?
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn tick(&self) -> Result<Fed> {
        check(&self.session.request(Request::Tick)?)
    }
}

fn wait(since: Instant) -> Result<()> {
    if since.elapsed() > PATIENCE {
        let message = "nothing moved for five minutes; run it again, it goes on where it was";
        return Err(SinkError::fatal("REBUILD_INTERRUPTED", message));
    }
    std::thread::sleep(PAUSE);
    Ok(())
}

/// Looks at what a session answers.
fn check(effects: &Effects) -> Result<Fed> {
    if let Some(rejected) = effects.rejected.first() {
        let message = format!("a row of the log cannot be applied: {}", rejected.message);
        return Err(SinkError::fatal("REBUILD_ROW_REFUSED", message)
            .with("code", &rejected.code)
            .with("partition", &rejected.partition)
            .with("offset", rejected.offset));
    }
    if let Some(error) = &effects.error {
        return Err(
            SinkError::fatal("REBUILD_INTERRUPTED", error.message.clone())
                .with("code", &error.code),
        );
    }
    match effects.rewinds.is_empty() {
        true => Ok(Fed::Taken),
        false => Ok(Fed::Again),
    }
}
