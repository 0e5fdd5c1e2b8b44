//! Keys about the process, keys that the connector hands to its tasks, and keys of the Apache sink
//! that mean nothing here.

use super::KeyType::{Boolean, Int, List, Long, String};
use super::{Group, Key};

/// Keys about the process.
pub(super) const PROCESS: Group = Group {
    title: "Process",
    intro: "Identity, errors, memory and the native library.",
    keys: &[
        Key::own(
            "frazil.writer.id",
            String,
            "The name under which offsets stand in the tables; `connect-<name>`, after the \
             connector's name, when not set. Set it to the old one when you rename a connector.",
        )
        .medium(),
        Key::own(
            "frazil.kafka.cluster.id",
            String,
            "The id of the Kafka cluster, part of the writer's identity. Set it when connectors of \
             one name on several clusters write to one table; never change it otherwise.",
        ),
        Key::own(
            "frazil.errors.drop",
            Boolean,
            "With `errors.tolerance=all`, accept that records that do not fit are dropped when there \
             is no dead letter queue.",
        )
        .or("false")
        .medium(),
        Key::own(
            "frazil.memory.max.bytes",
            Long,
            "Bytes of native memory that all tasks of a process share, of all its connectors; when \
             these say different sizes, the largest counts. Each task is sure of 32 MiB. When not \
             set: 50 % of what the container's limit, or else the machine, has beside the largest \
             heap and 256 MiB (`docs/memory.md`).",
        )
        .within(32 << 20, i64::MAX)
        .medium(),
        Key::own(
            "frazil.writers.max-open",
            Int,
            "Partitions for which one task keeps a file open; beyond it the least used is closed.",
        )
        .or("256")
        .within(1, 1 << 16),
        Key::own(
            "frazil.mapping-version",
            Int,
            "The version of the type mapping (`docs/types.md`) that new tables are made with. A table \
             keeps its own in its property of this name.",
        )
        .or("1")
        .within(1, 1),
        Key::own(
            "frazil.native.path",
            String,
            "The native library to load, in place of the one that the plugin brings.",
        ),
        Key::own(
            "frazil.native.dir",
            String,
            "Where the native library is put when it has to be taken out of the JAR; \
             `java.io.tmpdir` when not set.",
        ),
        Key::own(
            "frazil.engines",
            List,
            "The engines that read the tables, as `name` or `name:version`. A table with changes is \
             refused when one of them is not known to read its deletes (`docs/compatibility.md`). The \
             format version does not follow from it.",
        ),
    ],
};

/// Keys that the connector puts into the configuration of its tasks.
pub(super) const INTERNAL: Group = Group {
    title: "Internal",
    intro: "The connector puts these into the configuration of its tasks. Do not set them.",
    keys: &[
        Key::own("frazil.internal.task", Int, "The index of the task.")
            .or("0")
            .within(0, 1 << 20),
        Key::own(
            "frazil.internal.tasks",
            Int,
            "The number of tasks; `tasks.max` when not set.",
        )
        .within(1, 1 << 20),
        Key::own(
            "frazil.internal.coordination",
            String,
            "What `frazil.coordination` came to.",
        )
        .one_of(&["local", "topic"], ""),
        Key::own(
            "frazil.internal.epoch",
            Long,
            "The number of the last offset reset.",
        )
        .or("0")
        .within(0, i64::MAX),
        Key::own(
            "frazil.internal.topic-partitions",
            List,
            "How many partitions source topics have, each as `topic=count`; only at `validate`.",
        ),
        Key::own(
            "frazil.internal.heap-max-bytes",
            Long,
            "The largest heap of the JVM.",
        )
        .or("0")
        .within(0, i64::MAX),
        Key::own(
            "frazil.internal.poll-interval-ms",
            Long,
            "The consumer's `max.poll.interval.ms`.",
        )
        .or("300000")
        .within(1, i64::MAX),
        Key::own(
            "frazil.internal.role",
            String,
            "What a native handle serves.",
        )
        .or("task")
        .one_of(&["task", "channel", "admin"], ""),
    ],
};

/// Keys of the Apache sink without a meaning here.
pub(super) const INERT: Group = Group {
    title: "Without effect",
    intro: "Keys of the Apache sink that mean nothing here. They are accepted, with one warning \
            each, so that a configuration moves by changing `connector.class`.",
    keys: &[
        Key::inert(
            "iceberg.control.topic",
            String,
            "Frazil never touches the Apache sink's control topic; its own is `frazil.control.topic`.",
        ),
        Key::inert(
            "iceberg.control.group-id-prefix",
            String,
            "The group that elects the coordinator is named after the sink's consumer group.",
        ),
        Key::inert(
            "iceberg.control.group-id",
            String,
            "Offsets stand in the tables and in the sink's own consumer group.",
        ),
        Key::inert(
            "iceberg.connect.group-id",
            String,
            "The consumer group is known without it.",
        ),
        Key::inert(
            "iceberg.control.commit.timeout-ms",
            Int,
            "A commit waits for no other task, so there is nothing to time out.",
        ),
        Key::inert(
            "iceberg.control.commit.threads",
            Int,
            "Tables are committed independently of each other.",
        ),
        Key::inert(
            "iceberg.control.commit.max-consecutive-failures",
            Int,
            "A table that refuses commits fails its tasks after `frazil.table.block.max-ms`.",
        ),
        Key::inert(
            "iceberg.coordinator.transactional.prefix",
            String,
            "Frazil uses no Kafka transactions.",
        ),
        Key::inert(
            "iceberg.coordinator.transactional.suffix",
            String,
            "Frazil uses no Kafka transactions.",
        ),
        Key::inert(
            "iceberg.coordinator-executor-keep-alive-timeout-ms",
            Long,
            "There is no such thread pool.",
        ),
        Key::inert(
            "frazil.warnings",
            String,
            "Filled in by the answer of `validate`, never read: what it found that is no error.",
        ),
        Key::inert(
            "iceberg.hadoop-conf-dir",
            String,
            "Frazil does not use Hadoop.",
        ),
        Key::inert("iceberg.hadoop.*", String, "Frazil does not use Hadoop."),
    ],
};
