use frazil_core::control::segment::FileCounts;

use super::*;

fn connector(name: &str) -> Arc<ConnectorMetrics> {
    ConnectorMetrics::of(name)
}

fn bean<'b>(beans: &'b [Bean], family: &str, last_key: &str) -> &'b Bean {
    let mut found = beans.iter().filter(|bean| {
        bean.family.name == family && bean.keys.last().is_some_and(|key| key == last_key)
    });
    let first = found.next().expect("the bean is there");
    assert!(found.next().is_none(), "once");
    first
}

fn value(bean: &Bean, metric: &str) -> i64 {
    let metrics = bean.family.metrics;
    let at = metrics.iter().position(|one| one.name == metric);
    bean.values[at.expect("the metric is there")]
}

fn beans(connector: &ConnectorMetrics) -> Vec<Bean> {
    let mut beans = Vec::new();
    connector.beans(&mut beans);
    beans
}

#[test]
fn times_are_counted_in_nanoseconds_and_shown_in_milliseconds() {
    let values = Values::<TaskMetric>::new();
    for _ in 0..4 {
        values.add_time(TaskMetric::PutTime, Duration::from_micros(400));
    }
    let read = values.read();
    assert_eq!(read[TaskMetric::PutTime.index()], 1);
    assert_eq!(read[TaskMetric::LagSince.index()], UNKNOWN);
    assert_eq!(read.len(), TaskMetric::FAMILY.metrics.len());
}

#[test]
fn a_connector_has_its_metrics_while_somebody_holds_them() {
    let first = connector("held");
    first.values.add(ConnectorMetric::Elections, 2);
    assert!(Arc::ptr_eq(&first, &connector("held")));
    assert!(!Arc::ptr_eq(&first, &connector("another")));
    drop(first);
    let again = connector("held");
    assert_eq!(again.values.get(ConnectorMetric::Elections), 0);
}

#[test]
fn tables_beyond_the_limit_are_added_up() {
    let connector = connector("many");
    for number in 0..TABLES_MAX {
        connector.table(&format!("db.t{number}"));
    }
    for number in TABLES_MAX..TABLES_MAX + 3 {
        let table = connector.table(&format!("db.t{number}"));
        table.add(TableMetric::Commits, 2);
        let offsets = 10;
        let since_ms = Some(i64::try_from(number).unwrap());
        table.behind(
            1,
            Some(Behind {
                rows: 1,
                offsets,
                since_ms,
            }),
        );
    }
    connector.table("db.t0").add(TableMetric::Commits, 1);
    let beans = beans(&connector);
    assert_eq!(beans.len(), 1 + TABLES_MAX + 1);
    let others = bean(&beans, "sink-table-metrics", OTHER_TABLES);
    assert_eq!(value(others, "commits-total"), 6);
    assert_eq!(value(others, "lag-offsets"), 30);
    assert_eq!(value(others, "lag-ms"), TABLES_MAX as i64, "the oldest");
    let own = bean(&beans, "sink-table-metrics", "db.t0");
    assert_eq!(value(own, "commits-total"), 1);
}

#[test]
fn the_lag_of_a_table_is_that_of_all_tasks_and_goes_with_them() {
    let connector = connector("lagging");
    let table = connector.table("db.t");
    let behind = |offsets, since_ms| Behind {
        rows: 2,
        offsets,
        since_ms: Some(since_ms),
    };
    table.behind(1, Some(behind(5, 100)));
    table.behind(2, Some(behind(7, 90)));
    let shown = beans(&connector);
    let shown = bean(&shown, "sink-table-metrics", "db.t");
    let lag = ["open-rows", "lag-offsets", "lag-ms"].map(|metric| value(shown, metric));
    assert_eq!(lag, [4, 12, 90]);
    table.behind(2, None);
    table.behind(1, Some(Behind::default()));
    let shown = beans(&connector);
    let shown = bean(&shown, "sink-table-metrics", "db.t");
    assert_eq!(value(shown, "lag-offsets"), 0);
    assert_eq!(value(shown, "lag-ms"), UNKNOWN);
}

fn event(snapshot_id: i64) -> CommitEvent<'static> {
    CommitEvent {
        branch: "main",
        snapshot_id,
        segments: 2,
        ranges: 3,
        rows: 40,
        added: FileCounts {
            data_files: 5,
            position_deletes: 6,
            bytes: 700,
            ..FileCounts::default()
        },
        valid_through_ms: Some(1_000),
        attempts: 3,
        phases: Phases {
            all: Duration::from_millis(90),
            build: Duration::from_millis(30),
            ..Phases::default()
        },
    }
}

#[test]
fn a_commit_is_counted_and_told_once() {
    let connector = connector("commits");
    connector.table("db.t").committed(&event(7));
    let shown = beans(&connector);
    let shown = bean(&shown, "sink-table-metrics", "db.t");
    for (metric, expected) in [
        ("commits-total", 1),
        ("commits-retried-total", 2),
        ("rows-committed-total", 40),
        ("files-committed-total", 5),
        ("bytes-committed-total", 700),
        ("rows-deleted-total", 6),
        ("commit-time-ms-total", 90),
        ("commit-build-time-ms-total", 30),
        ("last-commit-time-ms", 90),
        ("last-snapshot-id", 7),
        ("freshness-ms", 1_000),
    ] {
        assert_eq!(value(shown, metric), expected, "{metric}");
    }
    let lines: Vec<String> = connector.events.take().collect();
    let told: serde_json::Value = serde_json::from_str(&lines[0]).expect("JSON");
    assert_eq!(told["table"], "db.t");
    assert_eq!(told["connector"], "commits");
    assert_eq!(told["snapshot_id"], 7);
    assert_eq!(told["ms"]["all"], 90);
    assert_eq!((lines.len(), connector.events.take().count()), (1, 0));
}

#[test]
fn events_that_nobody_fetches_are_bounded_and_counted() {
    let connector = connector("silent");
    let table = connector.table("db.t");
    for snapshot in 0..1_005 {
        table.committed(&event(snapshot));
    }
    let shown = beans(&connector);
    let shown = bean(&shown, "sink-connector-metrics", "silent");
    assert_eq!(value(shown, "commit-events-dropped-total"), 5);
    let lines: Vec<String> = connector.events.take().collect();
    assert_eq!(lines.len(), 1_000);
    assert!(lines[0].contains("\"snapshot_id\":5,"), "the newest stay");
}

#[test]
fn an_answer_has_the_snapshot_first_and_then_the_events() {
    let connector = connector("answers");
    let task = TaskMetrics::new(Arc::clone(&connector), 3, &Memory::of_process());
    connector.table("db.t").committed(&event(1));
    let answer = task.answer();
    assert_eq!(answer.messages.len(), 2);
    assert_eq!(answer.messages[0], encode(&task.beans()));
    assert!(answer.messages[1].starts_with(b"{"));
    assert_eq!(task.answer().messages.len(), 1, "told once");
}

#[tokio::test]
async fn requests_to_a_store_are_counted_with_their_bytes() {
    use object_store::ObjectStoreExt;
    use object_store::path::Path;

    let counted = counted(Arc::new(object_store::memory::InMemory::new()));
    let at = Path::from("a");
    let read = |metric| WORKER.get(metric);
    // Other tests of this process count too: at least is all that can be said.
    let before = [
        WorkerMetric::StoreRequests,
        WorkerMetric::StoreBytesSent,
        WorkerMetric::StoreBytesRead,
    ]
    .map(read);
    counted
        .put(&at, bytes::Bytes::from_static(b"12345").into())
        .await
        .unwrap();
    assert_eq!(counted.get_range(&at, 1..3).await.unwrap().len(), 2);
    assert!(counted.head(&Path::from("b")).await.is_err());
    counted.delete(&at).await.unwrap();
    assert!(read(WorkerMetric::StoreRequests) >= before[0] + 4);
    assert!(read(WorkerMetric::StoreBytesSent) >= before[1] + 5);
    assert!(read(WorkerMetric::StoreBytesRead) >= before[2] + 2);
}
