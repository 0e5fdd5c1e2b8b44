//! The metrics themselves.

use super::{Family, Kind, Metric, Named};

macro_rules! family {
    ($about:literal, $id:ident, $name:literal, $keys:expr,
     $($variant:ident $metric:literal $kind:ident $unit:literal $doc:literal)*) => {
        #[doc = $about]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $id {
            $(#[doc = $doc] $variant,)*
        }

        impl Named for $id {
            const FAMILY: &'static Family = &Family {
                name: $name,
                keys: $keys,
                doc: $about,
                metrics: &[$(Metric {
                    name: $metric,
                    kind: Kind::$kind,
                    unit: $unit,
                    doc: $doc,
                },)*],
            };

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

family! {
    "The worker's process: native memory and object stores, of all connectors together.",
    WorkerMetric, "sink-worker-metrics", &[],
    MemoryLimit "memory-limit-bytes" Gauge "bytes" "What all tasks of the process may hold: `frazil.memory.max.bytes`, or its default."
    MemoryHeld "memory-held-bytes" Gauge "bytes" "What they hold now."
    MemoryPeak "memory-peak-bytes" Gauge "bytes" "The most that they have held."
    MemoryFrames "memory-frames-bytes" Gauge "bytes" "Buffers in which Java hands records over."
    MemoryDecoding "memory-decoding-bytes" Gauge "bytes" "What bytes of records were decoded into."
    MemoryBuilders "memory-builders-bytes" Gauge "bytes" "Rows that are no batch yet."
    MemoryGathered "memory-gathered-bytes" Gauge "bytes" "Batches that wait for their file."
    MemoryOpenFiles "memory-open-files-bytes" Gauge "bytes" "Row groups and parts of files that are being written."
    MemoryEndedFiles "memory-ended-files-bytes" Gauge "bytes" "What is known of files that ended."
    MemoryUploads "memory-uploads-bytes" Gauge "bytes" "Parts of files on their way to the store."
    MemorySealed "memory-sealed-bytes" Gauge "bytes" "Segments whose manifests are being written."
    MemoryCommits "memory-commits-bytes" Gauge "bytes" "Commits: manifests that are read, merged and written."
    MemoryKeyIndex "memory-key-index-bytes" Gauge "bytes" "Where the row of each key is, for tables with changes."
    MemoryRewrites "memory-rewrites-bytes" Gauge "bytes" "Files that are written again."
    StoreRequests "store-requests-total" Total "requests" "Requests to object stores, parts of uploads included; an answer that is read in pieces is one."
    StoreErrors "store-errors-total" Total "requests" "Those that failed, after the client's own retries; a file that is not there is no failure."
    StoreTime "store-request-time-ms-total" Time "ms" "Time of these requests, added up."
    StoreBytesSent "store-sent-bytes-total" Total "bytes" "Bytes sent in requests to write."
    StoreBytesRead "store-read-bytes-total" Total "bytes" "Bytes asked for in requests to read."
    LogDropped "log-lines-dropped-total" Total "lines" "Log lines that were dropped, since too many waited for the worker's logger."
}

family! {
    "A connector in one worker: its catalog and its end of the control topic.",
    ConnectorMetric, "sink-connector-metrics", &["connector"],
    CatalogRequests "catalog-requests-total" Total "requests" "Operations asked of the catalog: loads, commits, creations, checks."
    CatalogErrors "catalog-errors-total" Total "requests" "Those that failed; lost races, and tables that are not there, are no failures."
    CatalogTime "catalog-request-time-ms-total" Time "ms" "Time of these operations, added up."
    CatalogCommits "catalog-commits-total" Total "requests" "Those that asked for a commit or a change of a table."
    CatalogConflicts "catalog-conflicts-total" Total "requests" "Those commits that another writer's won against, or that a busy catalog turned away."
    CatalogUnknown "catalog-unknown-outcomes-total" Total "requests" "Those commits without a clear answer; the table is read to find out."
    RegistryRequests "registry-requests-total" Total "requests" "Schemas asked of the schema registry; those that are known need no request."
    RegistryErrors "registry-errors-total" Total "requests" "Those requests that failed."
    ControlReceived "control-messages-received-total" Total "messages" "Records read from the control topic."
    ControlSent "control-messages-sent-total" Total "messages" "Messages for the control topic."
    ControlIgnored "control-messages-ignored-total" Total "messages" "Records of the control topic that were not obeyed, those of other connectors included."
    Coordinator "coordinator" Gauge "0 or 1" "1 while this worker commits for all workers; always 1 without a control topic."
    Elections "coordinator-elections-total" Total "elections" "How often this worker became the one that commits for all."
    Tables "tables" Gauge "tables" "Tables that this worker knows of the connector."
    EventsDropped "commit-events-dropped-total" Total "events" "Commit events that were dropped, since too many waited for the worker's logger."
}

family! {
    "One task.",
    TaskMetric, "sink-task-metrics", &["connector", "task"],
    RecordsReceived "records-received-total" Total "records" "Records that Connect delivered, those that came again included."
    RecordsRepeated "records-repeated-total" Total "records" "Those that the task had taken before; they change nothing."
    BytesReceived "bytes-received-total" Total "bytes" "Bytes of the frames that Java handed over."
    RecordsUnmatched "records-unmatched-total" Total "records" "Records dropped as `iceberg.tables.unmatched-behavior=drop` allows: no table takes them."
    RecordsNull "records-null-total" Total "records" "Records without a value that were skipped as the configuration says."
    RecordsUnchanging "records-unchanging-total" Total "records" "Records of change streams that change nothing, such as heartbeats and schema messages."
    PutTime "put-time-ms-total" Time "ms" "Time in the native side to take records in."
    DecodeTime "decode-time-ms-total" Time "ms" "The part of it in which bytes became rows."
    ConvertTime "convert-time-ms-total" Time "ms" "The part of it in which rows became columns of tables."
    WriteTime "write-time-ms-total" Time "ms" "The part of it in which columns became Parquet; uploads go on beside it."
    RoomTime "memory-wait-time-ms-total" Time "ms" "The part of it in which a frame waited for memory."
    MemoryFull "memory-full-total" Total "deliveries" "Deliveries that were put off since there was no memory."
    Paused "paused" Gauge "0 or 1" "1 while the task takes nothing in, for want of memory or since it starts over."
    Pauses "pauses-total" Total "pauses" "How often the consumer was paused."
    PausedTime "paused-time-ms-total" Time "ms" "Time in which it was paused; counted when a pause ends."
    MemoryHeld "memory-held-bytes" Gauge "bytes" "Native memory that the task holds."
    MemoryShare "memory-share-bytes" Gauge "bytes" "What it may hold when all tasks want memory."
    Partitions "partitions" Gauge "partitions" "Partitions that are assigned to it."
    Tables "tables" Gauge "tables" "Tables that it has met."
    TablesBlocked "tables-blocked" Gauge "tables" "Those that take no rows, since a record told of a change that they cannot follow."
    SegmentsInFlight "segments-in-flight" Gauge "segments" "Sealed segments that wait for their commit."
    LagOffsets "lag-offsets" Gauge "offsets" "Offsets taken in and not in a snapshot yet, of all partitions; of each the table that is behind most."
    LagSince "lag-ms" Since "ms" "Since when the oldest row waits that is in no snapshot; not a number when all are."
    StartOvers "start-overs-total" Total "times" "How often the task read again from what the tables hold."
    SealFailures "seal-failures-total" Total "segments" "Segments that could not be made durable; their records are read again."
    LastSeen "snapshot-age-ms" Since "ms" "Since when the task has last looked at itself: what a stuck task does not do."
}

family! {
    "One table in one worker. What is about commits is counted where they are made: with a control topic, in the worker that commits for all.",
    TableMetric, "sink-table-metrics", &["connector", "table"],
    RowsWritten "rows-written-total" Total "rows" "Rows, or changes, that tasks of this worker put into files."
    Segments "segments-total" Total "segments" "Segments that they sealed."
    FilesWritten "files-written-total" Total "files" "Data files of these segments."
    BytesWritten "bytes-written-total" Total "bytes" "Bytes of these files."
    OpenRows "open-rows" Gauge "rows" "Rows that are in no segment yet."
    LagOffsets "lag-offsets" Gauge "offsets" "Offsets taken in by tasks of this worker, of which the table has no snapshot yet."
    LagSince "lag-ms" Since "ms" "Since when the oldest row waits that is in no snapshot; not a number when all are."
    DurableTime "durable-time-ms-total" Time "ms" "Time from the first row of a segment to the news of its commit, added up."
    Durable "segments-durable-total" Total "segments" "Segments of this worker's tasks that are in a snapshot."
    Commits "commits-total" Total "commits" "Snapshots made."
    CommitFailures "commits-failed-total" Total "commits" "Commits that were refused for now, or for good: the table's offsets wait."
    CommitRetries "commits-retried-total" Total "attempts" "Attempts beyond the first, of commits that came through."
    CommitUnclear "commits-unclear-total" Total "attempts" "Attempts without a clear answer, after which the table was read."
    SegmentsLost "segments-rejected-total" Total "segments" "Segments that can never be committed; their records are read again."
    RolledBack "rollbacks-total" Total "times" "How often the table was found rolled back behind the connector's last commit."
    Refusing "refusing-commits" Gauge "0 or 1" "1 after a commit that was refused, until the next one that came through."
    CommitRows "rows-committed-total" Total "rows" "Rows, or changes, in these snapshots."
    CommitFiles "files-committed-total" Total "files" "Data files added by them."
    CommitBytes "bytes-committed-total" Total "bytes" "Bytes of the files added by them."
    CommitDeletes "rows-deleted-total" Total "rows" "Rows that they deleted by position."
    CommitTime "commit-time-ms-total" Time "ms" "Time of the commits from begin to answer, pauses included."
    LoadTime "commit-load-time-ms-total" Time "ms" "The part of it in which the table was loaded."
    CheckTime "commit-check-time-ms-total" Time "ms" "The part of it in which sealed manifests were looked at."
    BuildTime "commit-build-time-ms-total" Time "ms" "The part of it in which manifests, lists and deletes were made."
    SubmitTime "commit-submit-time-ms-total" Time "ms" "The part of it in which the catalog was asked to commit."
    PauseTime "commit-pause-time-ms-total" Time "ms" "The part of it between two attempts."
    LastCommitTime "last-commit-time-ms" Gauge "ms" "Time of the last commit."
    LastCommit "last-commit-age-ms" Since "ms" "Since when the last commit of this worker is in the table."
    ValidThrough "freshness-ms" Since "ms" "The age of the timestamp up to which the table has every record, as far as timestamps rise within a partition."
    SnapshotId "last-snapshot-id" Gauge "id" "The snapshot of the last commit of this worker; 0 before the first."
    SchemaChanges "schema-changes-total" Total "changes" "How often the table's schema was changed to follow records."
    Created "created-total" Total "tables" "How often this worker created the table."
    Inserted "changes-inserted-total" Total "changes" "Changes that brought a new key."
    Updated "changes-updated-total" Total "changes" "Changes that replaced a key's row."
    Deleted "changes-deleted-total" Total "changes" "Changes that deleted a key's row."
    Missing "changes-missing-total" Total "changes" "Deletes of keys that the table does not have."
    Superseded "changes-superseded-total" Total "changes" "Changes that a later one of the same commit made needless."
    Stale "changes-stale-total" Total "changes" "Changes that are older than what the table has."
    Repeated "rows-repeated-total" Total "rows" "Rows that were not added because the table has one with their key (`append-once`)."
    Truncated "rows-truncated-total" Total "rows" "Rows that truncations of the source's table removed."
    MaintenanceRuns "maintenance-runs-total" Total "runs" "How often the table's files were looked after."
    MaintenanceFailures "maintenance-failures-total" Total "failures" "Runs, and groups of files in them, that failed; the log says why."
    FilesCompacted "files-compacted-total" Total "files" "Data files whose rows were written into others."
    BytesCompacted "bytes-compacted-total" Total "bytes" "Bytes of these files."
    IndexKeys "index-keys" Gauge "keys" "Entries of the key index."
    IndexBytes "index-bytes" Gauge "bytes" "Memory of the key index."
    IndexBuilds "index-builds-total" Total "builds" "How often the key index was built from the whole table: once after a start, and more when it cannot be followed."
}

/// What was rejected is counted in Java, where it is known what became of it.
pub(super) const REJECTIONS: &Family = &Family {
    name: "sink-rejection-metrics",
    keys: &["connector", "task", "code"],
    doc: "Records of one task that do not fit, by the code of `docs/errors.md`; code `all` adds them up.",
    metrics: &[
        Metric {
            name: "records-reported-total",
            kind: Kind::Total,
            unit: "records",
            doc: "Handed to Connect's error reporter, which logs them or sets them aside in the dead letter queue.",
        },
        Metric {
            name: "records-dropped-total",
            kind: Kind::Total,
            unit: "records",
            doc: "Lost as `frazil.errors.drop=true` allows.",
        },
    ],
};
