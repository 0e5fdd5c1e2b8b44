//! Which data files a compaction joins: small ones, and those of which many rows are deleted.
//!
//! Files are joined with files of their own partition and partition spec alone, the oldest first, up to
//! the size that the table wants its files to have:
//!
//! ```text
//!  by sequence number:  1M 1M 90M 2M(hot)      target 128M
//!  small, not hot:      1M 1M 90M
//!  left out:                  90M              as large as all the others together: it waits for its like
//!  joined:              ─ nothing: two are fewer than `inputs_min`
//! ```
//!
//! A file that is larger than all others of its group together is not written again for their sake. So each row
//! is written again about as often as its file doubles, and not with every run.

use std::collections::BTreeMap;

use iceberg::spec::TableMetadata;

/// The size of data files, where neither the table nor the configuration says it.
pub const TARGET_BYTES: u64 = 256 << 20;
const TARGET_PROPERTY: &str = "write.target-file-size-bytes";

/// When a file is written again. The defaults are those of `docs/maintenance.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionSettings {
    /// The size that files should have.
    pub target_bytes: u64,
    /// A file is small below so many hundredths of it.
    pub small_percent: u64,
    /// Small files that are joined at least.
    pub inputs_min: usize,
    /// A file with so many hundredths of its rows deleted is written again by itself.
    pub deleted_percent: u64,
    /// Files with a higher data sequence number are left alone: their rows are the likeliest to change.
    pub hot_after: i64,
    /// Groups of one run; the others wait for the next one.
    pub groups_max: usize,
}

impl CompactionSettings {
    /// Returns the settings for a table whose files `configured` properties shape too, which win over the
    /// table's own as they do when a task writes. Files of the last `hot_commits` commits are left alone.
    pub fn of(
        metadata: &TableMetadata,
        configured: &BTreeMap<String, String>,
        hot_commits: i64,
    ) -> Self {
        let own = || metadata.properties().get(TARGET_PROPERTY);
        let target = configured.get(TARGET_PROPERTY).or_else(own);
        // One that is no number is refused where files are written.
        let target = target.and_then(|text| text.trim().parse().ok());
        let last = metadata.last_sequence_number();
        CompactionSettings {
            target_bytes: target.filter(|bytes| *bytes > 0).unwrap_or(TARGET_BYTES),
            small_percent: 50,
            inputs_min: 5,
            deleted_percent: 20,
            hot_after: last.saturating_sub(hot_commits.max(0)),
            groups_max: 10,
        }
    }

    fn is_small(&self, file: &CandidateFile) -> bool {
        hundredfold(file.bytes) < u128::from(self.target_bytes) * u128::from(self.small_percent)
    }

    /// Tells whether so many rows are deleted that the file is worth writing again for that alone.
    fn is_hollow(&self, file: &CandidateFile) -> bool {
        let least = u128::from(file.rows) * u128::from(self.deleted_percent);
        file.deleted > 0 && hundredfold(file.deleted) >= least
    }

    fn wants(&self, file: &CandidateFile) -> bool {
        file.sequence <= self.hot_after && (self.is_small(file) || self.is_hollow(file))
    }
}

fn hundredfold(number: u64) -> u128 {
    u128::from(number) * 100
}

/// What is to be known of a live data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateFile {
    /// The partition spec that it was written with.
    pub spec_id: i32,
    /// A number of its partition value.
    pub partition: u64,
    /// Its length.
    pub bytes: u64,
    /// Its rows, deleted ones included.
    pub rows: u64,
    /// The deleted ones among them.
    pub deleted: u64,
    /// Its data sequence number.
    pub sequence: i64,
}

impl CandidateFile {
    /// Returns about how many bytes its rows take that are not deleted.
    fn live_bytes(&self) -> u64 {
        let live = self.rows.saturating_sub(self.deleted);
        let bytes = u128::from(self.bytes) * u128::from(live) / u128::from(self.rows.max(1));
        u64::try_from(bytes).unwrap_or(self.bytes)
    }
}

/// Files of one partition and spec that are written again together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The partition spec, which the new files have too.
    pub spec_id: i32,
    /// The files by their place among the candidates, the oldest first.
    pub files: Vec<usize>,
    /// Their length.
    pub bytes: u64,
    /// Their rows, deleted ones included.
    pub rows: u64,
    /// The deleted ones among them.
    pub deleted: u64,
}

/// Returns the groups of `files` that are worth writing again, the one with most files first.
pub fn plan(files: &[CandidateFile], settings: &CompactionSettings) -> Vec<Group> {
    let mut partitions: BTreeMap<(i32, u64), Vec<Numbered<'_>>> = BTreeMap::new();
    for (number, file) in files.iter().enumerate() {
        if settings.wants(file) {
            let of_it = partitions.entry((file.spec_id, file.partition));
            of_it.or_default().push((number, file));
        }
    }
    let mut groups = Vec::new();
    for ((spec_id, _), mut of_it) in partitions {
        of_it.sort_by_key(|(number, file)| (file.sequence, *number));
        for pack in packs(of_it, settings.target_bytes) {
            if let Some(pack) = worthwhile(pack, settings) {
                groups.push(group(spec_id, &pack));
            }
        }
    }
    groups.sort_by_key(|group| (usize::MAX - group.files.len(), group.files.first().copied()));
    groups.truncate(settings.groups_max);
    groups
}

type Numbered<'f> = (usize, &'f CandidateFile);

/// Cuts files into packs that come to one file each.
fn packs<'f>(files: Vec<Numbered<'f>>, target: u64) -> Vec<Vec<Numbered<'f>>> {
    let mut packs = Vec::new();
    let (mut pack, mut bytes) = (Vec::new(), 0u64);
    for (number, file) in files {
        let live = file.live_bytes();
        if !pack.is_empty() && bytes.saturating_add(live) > target {
            packs.push(std::mem::take(&mut pack));
            bytes = 0;
        }
        bytes = bytes.saturating_add(live);
        pack.push((number, file));
    }
    packs.push(pack);
    packs
}

/// Leaves those files out that are not written again for the sake of the others; `None` when what is left is
/// not worth it.
fn worthwhile<'f>(
    mut pack: Vec<Numbered<'f>>,
    settings: &CompactionSettings,
) -> Option<Vec<Numbered<'f>>> {
    loop {
        let all: u128 = pack
            .iter()
            .map(|(_, file)| u128::from(file.live_bytes()))
            .sum();
        let whole = pack.iter().enumerate();
        let whole = whole.filter(|(_, (_, file))| !settings.is_hollow(file));
        let largest = whole.max_by_key(|(_, (_, file))| file.live_bytes());
        match largest {
            Some((at, (_, file))) if 2 * u128::from(file.live_bytes()) > all => {
                pack.remove(at);
            }
            _ => break,
        }
    }
    let hollow = pack.iter().any(|(_, file)| settings.is_hollow(file));
    let enough = pack.len() >= settings.inputs_min.max(2);
    (hollow || enough).then_some(pack)
}

fn group(spec_id: i32, pack: &[Numbered<'_>]) -> Group {
    let sum = |of: fn(&CandidateFile) -> u64| {
        let numbers = pack.iter().map(|(_, file)| of(file));
        numbers.fold(0u64, u64::saturating_add)
    };
    Group {
        spec_id,
        files: pack.iter().map(|(number, _)| *number).collect(),
        bytes: sum(|file| file.bytes),
        rows: sum(|file| file.rows),
        deleted: sum(|file| file.deleted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn settings() -> CompactionSettings {
        CompactionSettings {
            target_bytes: 128 * MB,
            small_percent: 50,
            inputs_min: 5,
            deleted_percent: 20,
            hot_after: 100,
            groups_max: 10,
        }
    }

    fn file(sequence: i64, bytes: u64) -> CandidateFile {
        CandidateFile {
            spec_id: 0,
            partition: 1,
            bytes,
            rows: 1_000,
            deleted: 0,
            sequence,
        }
    }

    fn files_of(groups: &[Group]) -> Vec<Vec<usize>> {
        groups.iter().map(|group| group.files.clone()).collect()
    }

    #[test]
    fn small_files_of_one_partition_are_joined_oldest_first() {
        let mut files: Vec<_> = (0..6).map(|at| file(20 - at, MB)).collect();
        files.push(file(1, 64 * MB));
        for other in [(1, 1), (0, 2)] {
            let (spec_id, partition) = other;
            files.extend((0..4).map(|at| CandidateFile {
                spec_id,
                partition,
                ..file(at, MB)
            }));
        }
        let groups = plan(&files, &settings());
        assert_eq!(files_of(&groups), [[5, 4, 3, 2, 1, 0]]);
        assert_eq!((groups[0].bytes, groups[0].rows), (6 * MB, 6_000));
    }

    #[test]
    fn files_of_the_last_commits_are_left_alone() {
        let files: Vec<_> = (96..=105).map(|at| file(at, MB)).collect();
        assert_eq!(files_of(&plan(&files, &settings())), [[0, 1, 2, 3, 4]]);
    }

    #[test]
    fn a_file_with_many_deleted_rows_is_written_again_by_itself() {
        let mut files = vec![file(1, 500 * MB), file(2, 500 * MB), file(3, 500 * MB)];
        (files[0].deleted, files[1].deleted) = (199, 200);
        let groups = plan(&files, &settings());
        assert_eq!(files_of(&groups), [[1]]);
        assert_eq!(groups[0].deleted, 200);
        // One without rows counts as well, and one without any row ever does no harm.
        let empty = CandidateFile {
            rows: 0,
            ..file(1, MB)
        };
        assert_eq!(plan(&[empty], &settings()), []);
    }

    #[test]
    fn a_group_comes_to_one_file() {
        let files: Vec<_> = (0..11).map(|at| file(at, 25 * MB)).collect();
        assert_eq!(
            files_of(&plan(&files, &settings())),
            [vec![0, 1, 2, 3, 4], vec![5, 6, 7, 8, 9]]
        );
        let one = CompactionSettings {
            groups_max: 1,
            ..settings()
        };
        assert_eq!(plan(&files, &one).len(), 1);
    }

    #[test]
    fn a_large_file_is_not_written_again_for_a_few_small_ones() {
        let mut files = vec![file(0, 50 * MB)];
        files.extend((1..=6).map(|at| file(at, MB)));
        assert_eq!(files_of(&plan(&files, &settings())), [[1, 2, 3, 4, 5, 6]]);
        files.truncate(5);
        assert_eq!(plan(&files, &settings()), []);
        // One that is written anyway takes the small ones along, and not the large one.
        files[1].deleted = 900;
        assert_eq!(files_of(&plan(&files, &settings())), [[1, 2, 3, 4]]);
    }

    /// A file comes with each commit, and every tenth commit compacts.
    #[test]
    fn each_row_is_written_again_a_few_times_only() {
        let mut files: Vec<CandidateFile> = Vec::new();
        let (mut written, mut most) = (0u64, 0);
        let commits = 3_000;
        for commit in 1..=commits {
            files.push(file(commit, MB / 4));
            if commit % 10 != 0 {
                continue;
            }
            let now = CompactionSettings {
                hot_after: commit - 2,
                ..settings()
            };
            let groups = plan(&files, &now);
            let mut gone: Vec<usize> = groups
                .iter()
                .flat_map(|group| group.files.clone())
                .collect();
            let made = groups.iter().map(|group| file(commit, group.bytes));
            let made: Vec<_> = made.collect();
            written += made.iter().map(|file| file.bytes).sum::<u64>();
            gone.sort_unstable();
            for at in gone.into_iter().rev() {
                files.remove(at);
            }
            files.extend(made);
            let small = files.iter().filter(|file| file.bytes < 64 * MB);
            most = most.max(small.count());
        }
        let all = commits as u64 * MB / 4;
        assert!(written < 8 * all, "{} times", written / all);
        assert!(most < 40, "{most} small files");
    }
}
