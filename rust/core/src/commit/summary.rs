//! The summary of a snapshot: Iceberg's counters and Frazil's own entries.

use std::collections::{BTreeMap, BTreeSet};

use iceberg::spec::{Operation, Summary};

use super::state::{WriterState, is_topic_key};
use crate::control::segment::{FileCounts, Segment};
use crate::offsets::TopicPartition;

/// The writer that made the commit.
pub const WRITER: &str = "frazil.wid";
/// The commit's id, kept across all attempts of a batch.
pub const COMMIT_ID: &str = "frazil.commit-id";
/// The writer epoch.
pub const EPOCH: &str = "frazil.epoch";
/// The number of segments in the commit.
pub const SEGMENTS: &str = "frazil.segments";
/// The timestamp up to which the table holds every record.
pub const VALID_THROUGH: &str = "frazil.valid-through-ms";
/// The offsets that the commit brought: `topic key:partition=start-end,partition=start-end,…`, and
/// the next topic's key before its first partition. A key that is an id is followed by `/` and the
/// topic's name.
pub const OFFSETS: &str = "frazil.offsets";
/// The digest of all offsets of the writer after the commit.
pub const STATE_DIGEST: &str = "frazil.state-sha256";
/// The job of a snapshot of maintenance, which is of no writer and brings no offsets.
pub const MAINTENANCE: &str = "frazil.maintenance";
/// The id of its commit, kept across all attempts.
pub const MAINTENANCE_ID: &str = "frazil.maintenance-id";
/// Larger offset lists stay out of the summary, which every later metadata file repeats.
const OFFSETS_BYTES_MAX: usize = 2 << 10;

/// What a commit does to the files of its table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileChanges {
    /// What it adds.
    pub added: FileCounts,
    /// What it removes.
    pub removed: FileCounts,
    /// One number for each partition value among these files.
    pub partitions: BTreeSet<u64>,
}

impl FileChanges {
    /// Returns what a commit does that adds the files of `segments` as they are.
    pub fn of_segments(segments: &[&Segment]) -> Self {
        let mut changes = FileChanges::default();
        for manifest in segments.iter().flat_map(|segment| &segment.manifests) {
            changes.added.add(&manifest.counts);
            changes.partitions.extend(&manifest.partitions);
        }
        changes
    }
}

/// Builds the summary of a commit of `segments` on a parent with summary `parent`, after which the
/// writer's state is `state`. It does what `files` says.
pub fn summary(
    wid: &str,
    state: &WriterState,
    segments: &[&Segment],
    files: &FileChanges,
    parent: Option<&Summary>,
) -> Summary {
    let FileChanges {
        added,
        removed,
        partitions,
    } = files;
    let mut entries = counters(added, removed, parent);
    entries.insert("changed-partition-count", partitions.len().to_string());
    entries.insert("engine-name", "frazil".into());
    entries.insert("engine-version", env!("CARGO_PKG_VERSION").into());
    entries.insert(WRITER, wid.into());
    entries.insert(COMMIT_ID, state.commit_id.to_string());
    entries.insert(EPOCH, state.epoch.to_string());
    entries.insert(SEGMENTS, segments.len().to_string());
    entries.insert(STATE_DIGEST, state.digest());
    if let Some(ms) = state.valid_through_ms() {
        entries.insert(VALID_THROUGH, ms.to_string());
    }
    let offsets = format_offsets(state, segments);
    if offsets.len() <= OFFSETS_BYTES_MAX {
        entries.insert(OFFSETS, offsets);
    }
    Summary {
        operation: operation(added, removed),
        additional_properties: entries
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
    }
}

/// Returns what a snapshot does that adds and removes these files.
pub fn operation(added: &FileCounts, removed: &FileCounts) -> Operation {
    let takes_away = added.delete_files() + removed.data_files + removed.delete_files() > 0;
    match (added.data_files > 0, takes_away) {
        (_, false) => Operation::Append,
        (false, true) => Operation::Delete,
        (true, true) => Operation::Overwrite,
    }
}

fn took_away(removed: &FileCounts) -> [(&'static str, u64); 9] {
    [
        ("deleted-data-files", removed.data_files),
        ("deleted-records", removed.records),
        ("removed-files-size", removed.bytes),
        ("removed-delete-files", removed.delete_files()),
        (
            "removed-position-delete-files",
            removed.position_delete_files,
        ),
        ("removed-dvs", removed.deletion_vectors),
        ("removed-position-deletes", removed.position_deletes),
        (
            "removed-equality-delete-files",
            removed.equality_delete_files,
        ),
        ("removed-equality-deletes", removed.equality_deletes),
    ]
}

fn brought(counts: &FileCounts) -> [(&'static str, u64); 9] {
    [
        ("added-data-files", counts.data_files),
        ("added-records", counts.records),
        ("added-files-size", counts.bytes),
        ("added-delete-files", counts.delete_files()),
        ("added-position-delete-files", counts.position_delete_files),
        ("added-dvs", counts.deletion_vectors),
        ("added-position-deletes", counts.position_deletes),
        ("added-equality-delete-files", counts.equality_delete_files),
        ("added-equality-deletes", counts.equality_deletes),
    ]
}

/// Returns Iceberg's own entries for a snapshot that adds and removes these files, on a parent with
/// the summary `parent`.
pub fn counters(
    counts: &FileCounts,
    removed: &FileCounts,
    parent: Option<&Summary>,
) -> BTreeMap<&'static str, String> {
    let mut entries = BTreeMap::new();
    let changed = took_away(removed).into_iter().chain(brought(counts));
    for (key, count) in changed.filter(|(_, count)| *count > 0) {
        entries.insert(key, count.to_string());
    }
    for (key, added, gone) in [
        ("total-data-files", counts.data_files, removed.data_files),
        ("total-records", counts.records, removed.records),
        ("total-files-size", counts.bytes, removed.bytes),
        (
            "total-delete-files",
            counts.delete_files(),
            removed.delete_files(),
        ),
        (
            "total-position-deletes",
            counts.position_deletes,
            removed.position_deletes,
        ),
        (
            "total-equality-deletes",
            counts.equality_deletes,
            removed.equality_deletes,
        ),
    ] {
        let before = match parent {
            None => Some(0),
            // A parent without the total makes it unknown from here on, as other writers do.
            Some(parent) => parent
                .additional_properties
                .get(key)
                .and_then(|total| total.parse::<u64>().ok()),
        };
        let total = before.and_then(|before| before.checked_add(added));
        if let Some(total) = total.and_then(|total| total.checked_sub(gone)) {
            entries.insert(key, total.to_string());
        }
    }
    entries
}

fn format_offsets(state: &WriterState, segments: &[&Segment]) -> String {
    let mut ranges: BTreeMap<(String, &TopicPartition), (i64, i64)> = BTreeMap::new();
    let claims = segments.iter().flat_map(|segment| {
        let claims = segment.ranges_with_rows();
        claims.map(|range| (segment.topic_id(&range.partition.topic), range))
    });
    for (id, range) in claims {
        let start = range.start.or(range.lowest).unwrap_or(0);
        let key = state.key_of(&range.partition.topic, id);
        let place = ranges.entry((key, &range.partition));
        let merged = place.or_insert((start, range.end));
        merged.0 = merged.0.min(start);
        merged.1 = merged.1.max(range.end);
    }
    let mut text = String::new();
    let mut topic = None;
    for ((key, partition), (start, end)) in ranges {
        if !text.is_empty() {
            text.push(',');
        }
        if topic.as_ref() != Some(&key) {
            text.push_str(&key);
            if !key.starts_with("n:") {
                text.push_str(&format!("/{}", partition.topic));
            }
            text.push(':');
            topic = Some(key);
        }
        text.push_str(&format!("{}={start}-{end}", partition.partition));
    }
    text
}

/// Reads the topic keys, partitions and ends of an offset list; `None` when it is not one.
pub fn parse_offsets(text: &str) -> Option<Vec<(String, TopicPartition, i64)>> {
    let mut ends = Vec::new();
    let mut named = None;
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let (place, range) = item.rsplit_once('=')?;
        let partition = match place.rsplit_once(':') {
            Some((names, partition)) => {
                named = Some(match names.strip_prefix("n:") {
                    Some(topic) => (names, topic),
                    None => names.split_once('/')?,
                });
                partition
            }
            None => place,
        };
        let (key, topic) = named?;
        if !is_topic_key(key) || topic.is_empty() {
            return None;
        }
        let (_, end) = range.rsplit_once('-')?;
        ends.push((
            key.to_owned(),
            TopicPartition::new(topic, partition.parse().ok()?),
            end.parse().ok()?,
        ));
    }
    Some(ends)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::commit::state::topic_id_key;
    use crate::commit::test_support::{range, segment};

    fn summary(
        wid: &str,
        state: &WriterState,
        segments: &[&Segment],
        parent: Option<&Summary>,
    ) -> Summary {
        let files = FileChanges::of_segments(segments);
        super::summary(wid, state, segments, &files, parent)
    }

    fn get<'a>(summary: &'a Summary, key: &str) -> Option<&'a str> {
        summary.additional_properties.get(key).map(String::as_str)
    }

    #[test]
    fn an_append_counts_files_and_offsets() {
        let first = segment(
            0,
            vec![range("a.b", 0, 0, 10, Some(2)), range("a.b", 1, 0, 9, None)],
        );
        let second = segment(1, vec![range("a.b", 0, 10, 14, Some(10))]);
        let mut state = WriterState::new(first.table_uuid);
        state.advance(&first).unwrap();
        state.advance(&second).unwrap();
        let made = summary("w1", &state, &[&first, &second], None);
        assert_eq!(made.operation, Operation::Append);
        assert_eq!(get(&made, OFFSETS), Some("n:a.b:0=0-14"));
        assert_eq!(get(&made, "added-data-files"), Some("2"));
        assert_eq!(get(&made, "total-records"), Some("12"));
        assert_eq!(get(&made, "added-delete-files"), None);
        assert_eq!(get(&made, "total-delete-files"), Some("0"));
        assert_eq!(get(&made, SEGMENTS), Some("2"));
        assert_eq!(get(&made, VALID_THROUGH), Some("1000"));
        let next = summary("w1", &state, &[&second], Some(&made));
        assert_eq!(get(&next, "total-records"), Some("16"));
    }

    #[test]
    fn a_list_of_offsets_names_each_topic_once() {
        let ranges = vec![
            range("b", 0, 0, 4, Some(2)),
            range("a.b", 11, 7, 14, Some(9)),
            range("a.b", 2, 0, 9, Some(2)),
            range("a", 5, 0, 9, Some(2)),
        ];
        let mut made = segment(0, ranges);
        let id = Uuid::from_u128(1);
        made.topic_ids = [("b".into(), id)].into();
        let mut state = WriterState::new(made.table_uuid);
        state.advance(&made).unwrap();
        let text = format_offsets(&state, &[&made]);
        let b = topic_id_key(id);
        assert_eq!(text, format!("{b}/b:0=0-4,n:a:5=0-9,n:a.b:2=0-9,11=7-14"));
        let place = |key: &str, topic, partition, end| {
            (key.to_owned(), TopicPartition::new(topic, partition), end)
        };
        assert_eq!(
            parse_offsets(&text),
            Some(vec![
                place(&b, "b", 0, 4),
                place("n:a", "a", 5, 9),
                place("n:a.b", "a.b", 2, 9),
                place("n:a.b", "a.b", 11, 14),
            ])
        );
    }

    #[test]
    fn the_operation_follows_the_files() {
        let mut deletes = segment(0, vec![range("t", 0, 0, 10, Some(2))]);
        deletes.manifests[0].counts = FileCounts {
            equality_delete_files: 1,
            equality_deletes: 3,
            deletion_vectors: 2,
            position_deletes: 5,
            ..FileCounts::default()
        };
        let state = WriterState::new(deletes.table_uuid);
        let only = summary("w1", &state, &[&deletes], None);
        assert_eq!(only.operation, Operation::Delete);
        assert_eq!(get(&only, "added-delete-files"), Some("3"));
        assert_eq!(get(&only, "added-dvs"), Some("2"));
        assert_eq!(get(&only, "added-position-delete-files"), None);
        let rows = segment(1, vec![range("t", 0, 10, 20, Some(10))]);
        let both = summary("w1", &state, &[&deletes, &rows], None);
        assert_eq!(both.operation, Operation::Overwrite);
    }

    #[test]
    fn what_is_removed_is_taken_off_the_totals() {
        let one = segment(0, vec![range("t", 0, 0, 10, Some(2))]);
        let state = WriterState::new(one.table_uuid);
        let mut parent = summary("w1", &state, &[&one, &one], None);
        let added = FileCounts {
            deletion_vectors: 2,
            position_deletes: 9,
            bytes: 100,
            ..FileCounts::default()
        };
        let removed = FileCounts {
            data_files: 1,
            records: 4,
            deletion_vectors: 1,
            position_deletes: 3,
            bytes: 40,
            ..FileCounts::default()
        };
        let totals = &mut parent.additional_properties;
        totals.insert("total-position-deletes".into(), "3".into());
        totals.insert("total-delete-files".into(), "1".into());
        let made = counters(&added, &removed, Some(&parent));
        let get = |key| made.get(key).map(String::as_str);
        assert_eq!(get("deleted-data-files"), Some("1"));
        assert_eq!(get("deleted-records"), Some("4"));
        assert_eq!(get("removed-dvs"), Some("1"));
        assert_eq!(get("removed-delete-files"), Some("1"));
        assert_eq!(get("removed-equality-deletes"), None);
        assert_eq!(get("added-dvs"), Some("2"));
        assert_eq!(get("total-data-files"), Some("1"));
        assert_eq!(get("total-position-deletes"), Some("9"));
        assert_eq!(get("total-delete-files"), Some("2"));
        assert_eq!(operation(&added, &removed), Operation::Delete);
        assert_eq!(
            operation(&FileCounts::default(), &removed),
            Operation::Delete
        );
        let too_many = FileCounts {
            data_files: 9,
            ..removed
        };
        let made = counters(&added, &too_many, Some(&parent));
        assert_eq!(
            made.get("total-data-files"),
            None,
            "it was not right before"
        );
    }

    #[test]
    fn an_unknown_total_stays_unknown() {
        let one = segment(0, vec![range("t", 0, 0, 10, Some(2))]);
        let state = WriterState::new(one.table_uuid);
        let mut parent = summary("w1", &state, &[&one], None);
        parent.additional_properties.remove("total-records");
        let next = summary("w1", &state, &[&one], Some(&parent));
        assert_eq!(get(&next, "total-records"), None);
        assert_eq!(get(&next, "total-data-files"), Some("2"));
    }

    #[test]
    fn a_long_offset_list_stays_out() {
        let ranges = (0..300)
            .map(|p| range("topic", p, 0, 10, Some(2)))
            .collect();
        let many = segment(0, ranges);
        let state = WriterState::new(many.table_uuid);
        assert_eq!(get(&summary("w1", &state, &[&many], None), OFFSETS), None);
        for text in [
            "x",
            "n:t:0",
            "n:t:0=5",
            "n:t:x=0-5",
            "t:0=0-5",
            "t/t:0=0-5",
            "0=0-5",
        ] {
            assert_eq!(parse_offsets(text), None, "{text}");
        }
        assert_eq!(parse_offsets(""), Some(vec![]));
    }
}
