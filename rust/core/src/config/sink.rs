//! The whole configuration of one task, or of the connector.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::catalog::{self, CatalogConfig};
use super::changes;
use super::format::{self, Formats};
use super::framework;
use super::kafka;
use super::legacy;
use super::problem::{ConfigProblem, Level, refusal};
use super::reader::Reader;
use super::registry::{self, RegistryConfig};
use super::routing::{self, DynamicTables};
use super::table::{self, TableConfig};
use crate::change::ChangeConfig;
use crate::commit::action::RollbackPolicy;
use crate::commit::location::StateLocation;
use crate::control::task::ExternalChange;
use crate::error::{Result, SinkError};
use crate::route::RoutePlan;
use crate::wire::FrameParts;

/// The longest name of a Kafka topic.
const TOPIC_NAME_MAX: usize = 249;

/// The default of the Apache sink's `iceberg.control.topic`.
const APACHE_CONTROL_TOPIC: &str = "control-iceberg";

/// Everything that the native side needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkConfig {
    /// The connector's name.
    pub connector: String,
    /// The index of this task.
    pub task: usize,
    /// The number of tasks.
    pub tasks_max: usize,
    /// What the handle opened with this configuration serves.
    pub role: Role,
    /// The name under which offsets stand in the tables.
    pub writer_id: String,
    /// The same together with the Kafka cluster, as 16 hexadecimal digits.
    pub wid: String,
    /// The id of the Kafka cluster; empty when it is not known.
    pub kafka_cluster_id: String,
    /// The catalog.
    pub catalog: CatalogConfig,
    /// The tables of `iceberg.tables`, in their order.
    pub tables: Vec<TableConfig>,
    /// Which tables a record goes to.
    pub routes: Arc<RoutePlan>,
    /// The tables that records name, when they do.
    pub dynamic: Option<DynamicTables>,
    /// The column of values that are neither structs nor maps; without it they are errors.
    pub value_column: Option<String>,
    /// What the bytes of values and keys are.
    pub formats: Formats,
    /// Where their schemas are, when they name any.
    pub registry: Option<RegistryConfig>,
    /// Whether every table skips records without a value.
    pub skips_nulls: bool,
    /// What frames have to hold of records beside their values.
    pub parts: FrameParts,
    /// About commits.
    pub control: ControlConfig,
    /// What happens to records that do not fit.
    pub errors: ErrorPolicy,
    /// The native memory of the process.
    pub memory: MemoryConfig,
    /// The consumer's `max.poll.interval.ms`: a task that stays away for longer loses its partitions.
    pub poll_interval_ms: u64,
    /// Partitions for which the task keeps a file open.
    pub writers_open_max: usize,
}

/// What says how much native memory the tasks of a process share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryConfig {
    /// The size of the pool, when it is configured.
    pub pool_bytes: Option<u64>,
    /// The largest heap of the JVM.
    pub heap_bytes: u64,
}

/// What concerns commits of all tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlConfig {
    /// Milliseconds between two commits, unless a table says otherwise.
    pub commit_interval_ms: u64,
    /// How long a table may refuse commits before its tasks fail.
    pub table_block_max_ms: u64,
    /// The longest property that holds source offsets.
    pub state_bytes_max: usize,
    /// Where source offsets are kept.
    pub state_location: StateLocation,
    /// What to do when the group's offsets were moved, and not through Connect.
    pub external_change: ExternalChange,
    /// Where the tasks of the connector agree on commits.
    pub coordination: Coordination,
    /// The topic of coordination through a topic.
    pub topic: String,
    /// The number of the last offset reset, as the connector knew it when the task started.
    pub epoch: u64,
    /// What to do when a branch was rolled back behind the connector's last commit.
    pub rollback: RollbackPolicy,
    /// How long a sealed segment may wait for its commit.
    pub segment_ttl_ms: u64,
    /// How many partitions a topic of changes may come to have.
    pub partitions_accepted: Option<u32>,
}

/// Where the tasks of a connector agree on commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coordination {
    /// Inside each process.
    Local,
    /// Through the control topic: one task commits for all processes.
    Topic,
}

/// What a native handle serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// One task.
    Task,
    /// The control topic, for all tasks of the connector in this process.
    Channel,
    /// The connector itself: offsets and epochs.
    Admin,
}

impl Role {
    /// Returns the role that settings ask for.
    pub fn of(values: &BTreeMap<String, String>) -> Role {
        let word = values.get("frazil.internal.role").map(|word| word.trim());
        match word {
            Some(word) if word.eq_ignore_ascii_case("channel") => Role::Channel,
            Some(word) if word.eq_ignore_ascii_case("admin") => Role::Admin,
            _ => Role::Task,
        }
    }
}

/// What happens to records that do not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorPolicy {
    /// Whether the task goes on after such a record.
    pub tolerate_all: bool,
    /// The topic that such records go to.
    pub dead_letter_topic: Option<String>,
    /// Whether such records may vanish when there is no such topic.
    pub drop: bool,
}

const PARTITIONS: &str = "frazil.partitions.accept";

impl SinkConfig {
    /// Parses the submitted map and returns all problems, each on its key. There is a configuration
    /// exactly when no problem is an error.
    pub fn parse(values: &BTreeMap<String, String>) -> (Option<SinkConfig>, Vec<ConfigProblem>) {
        let renamed = legacy::rename(values);
        let mut reader = Reader::new(&renamed.values);
        let dynamic = routing::is_dynamic(&renamed.values);
        reader.judge(&table::names(&renamed.values), dynamic);
        kafka::judge(&mut reader);
        framework::judge(&mut reader);
        let config = read(&mut reader);
        let problems = renamed.place(reader.problems);
        let sound = problems.iter().all(|problem| problem.level != Level::Error);
        (config.filter(|_| sound), problems)
    }

    /// Parses the submitted map for a task that is about to start: the configuration and its
    /// warnings, or one error that names every key at fault.
    pub fn start(values: &BTreeMap<String, String>) -> Result<(SinkConfig, Vec<ConfigProblem>)> {
        let (config, problems) = Self::parse(values);
        match (config, refusal(&problems)) {
            (Some(config), None) => Ok((config, problems)),
            (_, Some(error)) => Err(error),
            (None, None) => Err(SinkError::internal(
                "the configuration is incomplete and nothing says why",
            )),
        }
    }
}

/// Returns the identity of a writer: 16 hexadecimal digits from the Kafka cluster's id and the
/// writer's. They name table properties and files, so they never change for the same two ids.
pub fn wid(kafka_cluster_id: &str, writer_id: &str) -> String {
    Sha256::digest(format!("1|{kafka_cluster_id}|{writer_id}"))
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn read(reader: &mut Reader<'_>) -> Option<SinkConfig> {
    let tables = table::read(reader);
    let routes = Arc::new(routing::read(reader, &tables));
    let dynamic = routing::dynamic_tables(reader, &routes);
    let changes = changes::all(reader, &tables);
    let parts = frame_parts(reader, &routes, &changes);
    let formats = format::read(reader, parts);
    changes::judge_keys(reader, formats, &changes);
    let registry = registry::read(reader, formats);
    let parts = FrameParts {
        headers: parts.headers
            || registry
                .as_ref()
                .is_some_and(|it| it.reads_headers(formats)),
        ..parts
    };
    let skips_nulls = skips_nulls(reader, &changes);
    let catalog = catalog::read(reader);
    let errors = read_error_policy(reader);
    let Some(connector) = reader.word("name").map(str::to_owned) else {
        reader.error("name", "missing: the connector's name");
        return None;
    };
    let task = count(reader, "frazil.internal.task")?;
    let tasks_max =
        count(reader, "frazil.internal.tasks").or_else(|| count(reader, "tasks.max"))?;
    if task >= tasks_max {
        reader.error(
            "frazil.internal.task",
            format!("is {task}, and there are only {tasks_max} tasks"),
        );
    }
    let kafka_cluster_id = reader.word("frazil.kafka.cluster.id").unwrap_or_default();
    let writer_id = match reader.word("frazil.writer.id") {
        Some(id) => id.to_owned(),
        None => format!("connect-{connector}"),
    };
    Some(SinkConfig {
        task,
        tasks_max,
        role: match reader.word("frazil.internal.role")? {
            word if word.eq_ignore_ascii_case("channel") => Role::Channel,
            word if word.eq_ignore_ascii_case("admin") => Role::Admin,
            _ => Role::Task,
        },
        wid: wid(kafka_cluster_id, &writer_id),
        kafka_cluster_id: kafka_cluster_id.to_owned(),
        writer_id,
        connector,
        catalog: catalog?,
        tables,
        routes,
        dynamic,
        value_column: reader
            .word("iceberg.tables.value-column")
            .map(str::to_owned),
        formats,
        registry,
        skips_nulls,
        parts,
        control: read_control(reader, &changes, tasks_max)?,
        errors,
        memory: MemoryConfig {
            pool_bytes: reader.number("frazil.memory.max.bytes"),
            heap_bytes: reader.number("frazil.internal.heap-max-bytes")?,
        },
        poll_interval_ms: reader.number("frazil.internal.poll-interval-ms")?,
        writers_open_max: count(reader, "frazil.writers.max-open")?,
    })
}

/// Tells whether no table makes anything of a record without a value.
fn skips_nulls(reader: &Reader<'_>, changes: &[ChangeConfig]) -> bool {
    let mut keys = reader.values().iter();
    let skips = |(key, value): (&String, &String)| {
        !key.ends_with(".null-value-behavior") || value.trim().eq_ignore_ascii_case("skip")
    };
    !changes.iter().any(ChangeConfig::tombstones_count) && keys.all(skips)
}

fn read_control(
    reader: &mut Reader<'_>,
    changes: &[ChangeConfig],
    tasks_max: usize,
) -> Option<ControlConfig> {
    let resolved = reader
        .word("frazil.internal.coordination")
        .or_else(|| reader.word("frazil.coordination"))?;
    // `auto` is resolved by the connector, which knows the worker; without it there is no channel.
    let coordination = match resolved.eq_ignore_ascii_case("topic") {
        true => Coordination::Topic,
        false => Coordination::Local,
    };
    if !changes.is_empty() {
        check_owner(reader, coordination, tasks_max);
    } else if reader.has(PARTITIONS) {
        reader.error(PARTITIONS, "has no effect: rows are appended to all tables");
    }
    Some(ControlConfig {
        commit_interval_ms: reader.number("iceberg.control.commit.interval-ms")?,
        table_block_max_ms: reader.number("frazil.table.block.max-ms")?,
        state_bytes_max: count(reader, "frazil.state.max-bytes")?,
        state_location: StateLocation::parse(reader.word("frazil.state.location")?)
            .unwrap_or_default(),
        coordination,
        topic: read_control_topic(reader)?,
        epoch: reader.number("frazil.internal.epoch")?,
        rollback: match reader.word("frazil.rollback.policy")? {
            word if word.eq_ignore_ascii_case("fail") => RollbackPolicy::Fail,
            _ => RollbackPolicy::Warn,
        },
        segment_ttl_ms: reader.number("frazil.segment.ttl-ms")?,
        partitions_accepted: reader
            .number(PARTITIONS)
            .and_then(|partitions| u32::try_from(partitions).ok()),
        external_change: match reader.word("frazil.offsets.external.change")? {
            word if word.eq_ignore_ascii_case("fail") => ExternalChange::Fail,
            _ => ExternalChange::Warn,
        },
    })
}

/// Tables with changes have one owner that finds their rows. Whether all tasks are in one process,
/// which commits by itself, nobody knows here: that has to be said.
fn check_owner(reader: &mut Reader<'_>, coordination: Coordination, tasks_max: usize) {
    const COORDINATION: &str = "frazil.coordination";
    let said = reader.word(COORDINATION);
    let is_said = said.is_some_and(|word| word.eq_ignore_ascii_case("local"));
    // Only the connector knows what `auto` comes to.
    let is_resolved = reader.has("frazil.internal.coordination");
    let is_local = coordination == Coordination::Local && is_resolved;
    if tasks_max > 1 && is_local && !is_said {
        reader.error(
            COORDINATION,
            "came to `local`, and tables with changes need one committer: set \
             `iceberg.kafka.bootstrap.servers`, so that the tasks agree through the control topic, or \
             `tasks.max=1`, or this to `local` when there is one worker",
        );
    }
}

/// Reads the control topic, and refuses one that something else writes to: its records would be
/// read as ours, and ours as theirs.
fn read_control_topic(reader: &mut Reader<'_>) -> Option<String> {
    const TOPIC: &str = "frazil.control.topic";
    let topic = reader.text(TOPIC)?.trim().to_owned();
    let legal = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if !(1..=TOPIC_NAME_MAX).contains(&topic.len())
        || topic == "."
        || topic == ".."
        || !topic.chars().all(legal)
    {
        reader.error(
            TOPIC,
            format!("not a name of a topic: 1 to {TOPIC_NAME_MAX} letters, digits, `.`, `_`, `-`"),
        );
        return None;
    }
    if topic == APACHE_CONTROL_TOPIC {
        reader.error(
            TOPIC,
            "this is the Apache sink's control topic, and that sink fails on records that are not \
             its own; choose another name",
        );
        return None;
    }
    for other in [
        "topics",
        "errors.deadletterqueue.topic.name",
        "iceberg.control.topic",
    ] {
        let named = reader.word(other).unwrap_or_default();
        if named.split(',').any(|name| name.trim() == topic) {
            reader.error(
                TOPIC,
                format!("`{other}` names this topic too; it must be Frazil's alone"),
            );
            return None;
        }
    }
    Some(topic)
}

/// Finds out which parts of records any table or route needs.
fn frame_parts(reader: &Reader<'_>, routes: &RoutePlan, changes: &[ChangeConfig]) -> FrameParts {
    let set = |suffix: &str, names: &str| {
        reader.values().iter().any(|(key, value)| {
            let of_tables = key.starts_with("iceberg.table.") || key.starts_with("iceberg.tables.");
            of_tables && key.ends_with(suffix) && value.contains(names)
        })
    };
    FrameParts {
        keys: routes.needs(|source| source.needs_key())
            || !changes.is_empty()
            || set(".metadata-columns", "_key")
            || set(".key-columns", "")
            || set(".null-value-behavior", "key-row"),
        headers: routes.needs(|source| source.needs_headers())
            || changes.iter().any(|one| one.envelope.needs_headers())
            || set(".metadata-columns", "_headers"),
        topics: routes.needs(|source| source.is_topic()),
    }
}

fn count(reader: &Reader<'_>, key: &str) -> Option<usize> {
    usize::try_from(reader.number(key)?).ok()
}

/// Reads what happens to records that do not fit, and refuses to lose them silently.
fn read_error_policy(reader: &mut Reader<'_>) -> ErrorPolicy {
    const TOLERANCE: &str = "errors.tolerance";
    const DEAD_LETTERS: &str = "errors.deadletterqueue.topic.name";
    const DROP: &str = "frazil.errors.drop";
    let policy = ErrorPolicy {
        tolerate_all: reader
            .word(TOLERANCE)
            .is_some_and(|word| word.eq_ignore_ascii_case("all")),
        dead_letter_topic: reader.word(DEAD_LETTERS).map(str::to_owned),
        drop: reader.truth(DROP).unwrap_or(false),
    };
    if policy.tolerate_all && policy.dead_letter_topic.is_none() && !policy.drop {
        reader.error(
            TOLERANCE,
            format!(
                "`all` without `{DEAD_LETTERS}` loses records that do not fit; name that topic, or \
                 accept the loss with `{DROP}=true`"
            ),
        );
    }
    if policy.drop && !policy.tolerate_all {
        reader.warn(DROP, format!("has no effect without `{TOLERANCE}=all`"));
    }
    policy
}

// The names above must be rows of the table, or their defaults would be lost.
#[cfg(test)]
#[test]
fn the_keys_read_here_are_in_the_table() {
    for name in [
        "name",
        "iceberg.tables.value-column",
        "frazil.value.format",
        "frazil.key.format",
        "tasks.max",
        "errors.tolerance",
        "errors.deadletterqueue.topic.name",
        "frazil.errors.drop",
        "frazil.internal.task",
        "frazil.internal.tasks",
        "frazil.kafka.cluster.id",
        "frazil.writer.id",
        "iceberg.control.commit.interval-ms",
        "frazil.table.block.max-ms",
        "frazil.state.max-bytes",
        "frazil.state.location",
        "frazil.offsets.external.change",
        "frazil.coordination",
        "frazil.control.topic",
        "frazil.segment.ttl-ms",
        PARTITIONS,
        "frazil.internal.coordination",
        "frazil.internal.epoch",
        "frazil.rollback.policy",
        "frazil.internal.role",
        "frazil.memory.max.bytes",
        "frazil.internal.heap-max-bytes",
        "frazil.internal.poll-interval-ms",
        "frazil.writers.max-open",
    ] {
        assert_eq!(
            super::keys::find(name).map(|found| found.key.name),
            Some(name),
            "{name}"
        );
    }
}
