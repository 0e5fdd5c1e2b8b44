//! Which of a table's manifests a commit merges, so that its list does not grow with every commit.
//!
//! A commit lists one manifest for each segment. Left alone, a table of 20 tasks that commits every
//! ten seconds has 170,000 of them after a day, and each commit writes the list of all anew. So a
//! commit first merges older ones. Only those of about one size become one: small ones as soon as
//! there are enough of them, larger ones once they fill a manifest of the target size. An entry is
//! thus written a few times and not with every merge again, and the list has one manifest for each
//! target size of entries, and a few hundred more.
//!
//! Only manifests that Frazil wrote are merged: what other engines put into theirs may be more than
//! is read here. The manifests of the commit's own segments are left for a later one.

use std::collections::BTreeMap;

use iceberg::spec::{ManifestContentType, ManifestFile, TableMetadata};

use crate::limits::{MANIFEST_MERGED_BYTES_MAX, MANIFESTS_MERGED_MAX};

/// Manifests below these parts of the target size are merged with their like once there are enough.
const SMALL_PARTS: [u64; 2] = [256, 16];
/// Where the name of a manifest begins that Frazil wrote, and how it ends.
const OWN_NAME: (&str, &str) = ("frazil-", "-m.avro");
/// What the name of a merged one says before the schema that its files were written with.
const SCHEMA_MARK: (&str, &str) = ("-merged-", "-s");

/// What the table wants of its manifests, by Iceberg's own properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeSettings {
    /// Whether manifests are merged (`commit.manifest-merge.enabled`).
    pub enabled: bool,
    /// The size that a manifest may have (`commit.manifest.target-size-bytes`).
    pub target_bytes: u64,
    /// Small manifests that are merged at once, at least (`commit.manifest.min-count-to-merge`).
    pub count_min: usize,
}

impl Default for MergeSettings {
    fn default() -> Self {
        MergeSettings {
            enabled: true,
            target_bytes: 8 << 20,
            count_min: 100,
        }
    }
}

impl MergeSettings {
    /// Reads the table's properties. One that is malformed counts as not set: no row depends on it,
    /// and it belongs to all engines.
    pub fn of(metadata: &TableMetadata) -> Self {
        let text = |key: &str| metadata.properties().get(key).map(|text| text.trim());
        let default = MergeSettings::default();
        let enabled = text("commit.manifest-merge.enabled");
        let target = text("commit.manifest.target-size-bytes");
        let target: Option<u64> = target.and_then(|text| text.parse().ok());
        let count = text("commit.manifest.min-count-to-merge").and_then(|text| text.parse().ok());
        MergeSettings {
            enabled: !enabled.is_some_and(|text| text.eq_ignore_ascii_case("false")),
            target_bytes: target
                .filter(|bytes| *bytes > 0)
                .unwrap_or(default.target_bytes)
                .min(MANIFEST_MERGED_BYTES_MAX),
            // Two make one; one of one would be written for nothing, for ever.
            count_min: count.unwrap_or(default.count_min).max(2),
        }
    }
}

/// Returns the groups of `manifests`, by their places, that are to become one manifest each. Entries
/// keep their order within a group. Where rows have ids, a manifest must have those of its rows.
pub fn groups(
    manifests: &[ManifestFile],
    settings: &MergeSettings,
    with_row_ids: bool,
) -> Vec<Vec<usize>> {
    if !settings.enabled {
        return Vec::new();
    }
    let mut tiers: BTreeMap<TierKey, Tier> = BTreeMap::new();
    let mut groups = Vec::new();
    let mut left = MANIFESTS_MERGED_MAX;
    // The oldest first, so that those written together come together.
    for (place, manifest) in manifests.iter().enumerate().rev() {
        let bytes = u64::try_from(manifest.manifest_length).unwrap_or(u64::MAX);
        if bytes >= settings.target_bytes || !may_merge(manifest, with_row_ids) {
            continue;
        }
        let tier = tiers.entry(TierKey {
            is_deletes: manifest.content == ManifestContentType::Deletes,
            spec_id: manifest.partition_spec_id,
            schema_id: schema_of(manifest),
            size: size_of(bytes, settings),
        });
        let tier = tier.or_default();
        if tier.bytes.saturating_add(bytes) > settings.target_bytes {
            take(&mut groups, &mut left, std::mem::take(tier));
        }
        tier.bytes = tier.bytes.saturating_add(bytes);
        tier.places.push(place);
    }
    for (key, tier) in tiers {
        if key.size < SMALL_PARTS.len() && tier.places.len() >= settings.count_min {
            take(&mut groups, &mut left, tier);
        }
    }
    groups
}

/// Returns how large a manifest of `bytes` is: the number of the first small part that it is below.
fn size_of(bytes: u64, settings: &MergeSettings) -> usize {
    let below = |part: &u64| bytes < settings.target_bytes / part;
    let first = SMALL_PARTS.iter().position(below);
    first.unwrap_or(SMALL_PARTS.len())
}

/// What manifests have in common that may become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TierKey {
    is_deletes: bool,
    spec_id: i32,
    /// The schema of a merged manifest: those of different schemas were read once, and need not be
    /// again. The list does not say that of others.
    schema_id: Option<i32>,
    size: usize,
}

/// Manifests that may become one.
#[derive(Debug, Default)]
struct Tier {
    places: Vec<usize>,
    bytes: u64,
}

/// Makes a group of a tier, or of as many of its manifests as a commit may still read.
fn take(groups: &mut Vec<Vec<usize>>, left: &mut usize, tier: Tier) {
    let mut places = tier.places;
    places.truncate(*left);
    if places.len() < 2 {
        return;
    }
    *left -= places.len();
    // As they are in the list.
    places.reverse();
    groups.push(places);
}

/// Tells whether everything that `manifest` says is known here. One that the commit has made itself is
/// left: what it says of entries that go belongs to its snapshot. What older ones say of that is left
/// out.
fn may_merge(manifest: &ManifestFile, with_row_ids: bool) -> bool {
    let name = manifest.manifest_path.rsplit('/').next();
    let has_row_ids = manifest.first_row_id.is_some();
    name.is_some_and(|name| name.starts_with(OWN_NAME.0))
        && manifest.sequence_number >= 0
        && manifest.key_metadata.is_none()
        && match manifest.content {
            ManifestContentType::Data => has_row_ids == with_row_ids,
            ManifestContentType::Deletes => !has_row_ids,
        }
}

/// Returns the name of the manifest number `index` that the commit `commit` merged others into; all of
/// them were written with the schema `schema_id`.
pub fn merged_name(wid: &str, commit: uuid::Uuid, index: usize, schema_id: i32) -> String {
    let ((begin, end), (merged, schema)) = (OWN_NAME, SCHEMA_MARK);
    format!("{begin}{wid}{merged}{commit}-{index}{schema}{schema_id}{end}")
}

/// Returns the schema that the name of a merged manifest says.
fn schema_of(manifest: &ManifestFile) -> Option<i32> {
    let name = manifest.manifest_path.strip_suffix(OWN_NAME.1)?;
    let (_, rest) = name.rsplit_once(SCHEMA_MARK.0)?;
    let (_, schema_id) = rest.rsplit_once(SCHEMA_MARK.1)?;
    schema_id.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::test_support;

    const SETTINGS: MergeSettings = MergeSettings {
        enabled: true,
        target_bytes: 1_600,
        count_min: 4,
    };

    fn groups(manifests: &[ManifestFile], settings: &MergeSettings) -> Vec<Vec<usize>> {
        super::groups(manifests, settings, false)
    }

    fn manifest(number: usize, bytes: i64) -> ManifestFile {
        let mut manifest = test_support::manifest(0, 1).manifest;
        manifest.manifest_path = format!("s3://b/t/metadata/frazil-x-{number}-m.avro");
        manifest.manifest_length = bytes;
        manifest.sequence_number = 1;
        manifest
    }

    fn list(bytes: &[i64]) -> Vec<ManifestFile> {
        let numbered = bytes.iter().enumerate();
        numbered.map(|(n, bytes)| manifest(n, *bytes)).collect()
    }

    #[test]
    fn small_manifests_wait_until_there_are_enough() {
        assert_eq!(groups(&list(&[50; 3]), &SETTINGS), Vec::<Vec<usize>>::new());
        assert_eq!(groups(&list(&[50; 4]), &SETTINGS), [[0, 1, 2, 3]]);
        let off = MergeSettings {
            enabled: false,
            ..SETTINGS
        };
        assert!(groups(&list(&[50; 400]), &off).is_empty());
    }

    #[test]
    fn larger_ones_wait_until_they_fill_a_manifest() {
        assert!(groups(&list(&[500; 3]), &SETTINGS).is_empty());
        // The newest one is left, and full ones are never touched.
        assert_eq!(groups(&list(&[500, 500, 500, 500]), &SETTINGS), [[1, 2, 3]]);
        assert!(groups(&list(&[1_600, 2_000, 1_601, 1_600]), &SETTINGS).is_empty());
    }

    #[test]
    fn a_group_fits_the_target_and_one_commit_reads_only_so_many() {
        let sizes = vec![90; 40];
        let found = groups(&list(&sizes), &SETTINGS);
        let most = found.iter().map(|group| group.len() as i64 * 90).max();
        assert!(most <= Some(1_600), "{found:?}");
        assert_eq!(found.iter().map(Vec::len).sum::<usize>(), 40);
        let many = groups(&list(&[2; 5_000]), &SETTINGS);
        assert_eq!(
            many.iter().map(Vec::len).sum::<usize>(),
            MANIFESTS_MERGED_MAX
        );
        assert!(many[0].contains(&4_999), "the oldest come first");
    }

    #[test]
    fn merged_manifests_of_different_schemas_are_not_read_again() {
        let named = |schema_id| {
            let mut made = manifest(0, 900);
            let name = merged_name("x", uuid::Uuid::nil(), 3, schema_id);
            made.manifest_path = format!("s3://b/t/metadata/{name}");
            assert_eq!(schema_of(&made), Some(schema_id));
            made
        };
        assert_eq!(schema_of(&manifest(12, 900)), None);
        let three = |first, second| [named(7), named(second), named(first)];
        assert_eq!(SETTINGS.target_bytes, 1_600);
        let settings = MergeSettings {
            target_bytes: 2_000,
            ..SETTINGS
        };
        assert_eq!(groups(&three(7, 7), &settings), [[1, 2]]);
        assert!(groups(&three(7, 8), &settings).is_empty());
    }

    #[test]
    fn what_others_wrote_is_left_alone() {
        let mut all = list(&[50; 8]);
        all[1].manifest_path = "s3://b/frazil-x/metadata/1c-m0.avro".to_owned();
        all[2].content = ManifestContentType::Deletes;
        all[3].key_metadata = Some(vec![1]);
        all[4].sequence_number = -1;
        assert_eq!(groups(&all, &SETTINGS), [[0, 5, 6, 7]]);
        all[5].partition_spec_id = 1;
        assert!(groups(&all, &SETTINGS).is_empty());
        // Row ids that the list has not given out yet cannot be written down.
        all = list(&[50; 5]);
        assert!(super::groups(&all, &SETTINGS, true).is_empty());
        all[1..]
            .iter_mut()
            .for_each(|one| one.first_row_id = Some(7));
        assert_eq!(super::groups(&all, &SETTINGS, true), [[1, 2, 3, 4]]);
    }

    #[test]
    fn deletes_are_merged_with_deletes() {
        let mut all = list(&[50; 8]);
        for deletes in all.iter_mut().step_by(2) {
            deletes.content = ManifestContentType::Deletes;
            deletes.deleted_files_count = Some(3);
        }
        assert_eq!(groups(&all, &SETTINGS), [[1, 3, 5, 7], [0, 2, 4, 6]]);
        all[0].first_row_id = Some(7);
        assert_eq!(groups(&all, &SETTINGS), [[1, 3, 5, 7]]);
    }

    // Promise: The manifest list of a table stays short, however long and with however many tasks it is written.
    #[test]
    fn the_list_stays_short() {
        // 192 tasks for a day of commits every 30 s; entries of 700 bytes in manifests of 4 KB.
        let settings = MergeSettings::default();
        let (mut all, mut number, mut written, mut longest) = (Vec::new(), 0, 0_u64, 0);
        let entry = 700;
        for _ in 0..2_880 {
            let merged = groups(&all, &settings);
            let gone: Vec<usize> = merged.iter().flatten().copied().collect();
            let mut next: Vec<ManifestFile> = Vec::new();
            for group in &merged {
                let bytes = group
                    .iter()
                    .map(|place| all[*place].manifest_length - 3_300);
                number += 1;
                let made = manifest(number, 3_300 + bytes.sum::<i64>());
                written += made.manifest_length.unsigned_abs();
                next.push(made);
            }
            let kept = all.iter().enumerate();
            next.extend(
                kept.filter(|(at, _)| !gone.contains(at))
                    .map(|(_, m)| m.clone()),
            );
            for _ in 0..192 {
                number += 1;
                next.insert(0, manifest(number, 3_300 + entry));
            }
            all = next;
            longest = longest.max(all.len());
        }
        let entries = 2_880 * 192 * entry.unsigned_abs();
        assert!(
            longest < 450,
            "{longest} manifests for {entries} bytes of entries"
        );
        assert!(
            written < 3 * entries,
            "{written} bytes written for {entries}"
        );
    }
}
