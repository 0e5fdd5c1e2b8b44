//! The files of a snapshot: data files, and the deletes that apply to them.
//!
//! A table with changes keeps them from one commit to the next, without their metrics, and reads
//! only the manifests that it has not seen ([`LiveFiles::unseen`], [`LiveFiles::follow`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frazil_core::delete::DeletionVector;
use frazil_core::limits::MANIFEST_TABLE_TURNS;
use frazil_core::{Result, SinkError};
use futures::{StreamExt, TryStreamExt};
use iceberg::spec::{
    DataContentType, DataFile, DataFileBuilder, DataFileFormat, Literal, Manifest, ManifestFile,
    ManifestStatus, PrimitiveLiteral as Value, Struct,
};

use super::{load_positions, load_vector};
use crate::commit::{EntryKey, Layout};
use crate::storage::TableStorage;

/// What a file takes in memory beside its path, about.
const FILE_BYTES: usize = 340;
const DELETE_BYTES: usize = 1_200;

/// A live data file.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveFile {
    /// Its rows, deleted ones included.
    pub rows: u64,
    /// Its length.
    pub bytes: u64,
    /// Its partition.
    pub partition: Struct,
    /// The schema and the partition spec of its manifest.
    pub layout: Layout,
    /// Its data sequence number: deletes with a lower one do not apply.
    pub sequence: i64,
    /// Its format.
    pub format: DataFileFormat,
    /// The id of its first row, where format version 3 gave it one.
    pub first_row_id: Option<u64>,
    /// The manifest that lists it.
    manifest: Arc<str>,
}

/// A live delete file, or one vector of one.
#[derive(Debug, Clone)]
pub struct LiveDelete {
    /// The file, without metrics.
    pub file: DataFile,
    /// The partition spec that it was written with.
    pub spec_id: i32,
    /// Its data sequence number.
    pub sequence: i64,
    /// The manifest that lists it.
    manifest: Arc<str>,
}

impl LiveDelete {
    /// Returns what tells its entry from others.
    pub fn key(&self) -> EntryKey {
        let path = self.file.file_path();
        match (self.file.file_format(), self.file.referenced_data_file()) {
            (DataFileFormat::Puffin, Some(of)) => EntryKey::of_vector(path, of),
            _ => EntryKey::of_file(path),
        }
    }

    /// Tells whether it may have rows of a data file.
    fn may_apply(&self, to: &LiveFile) -> bool {
        self.sequence >= to.sequence
            && self.spec_id == to.layout.spec_id
            && is_same_partition(self.file.partition(), &to.partition)
    }
}

/// Tells whether these are the same values. Those of a manifest from before a column was promoted have the
/// type that it had then.
pub(crate) fn is_same_partition(one: &Struct, other: &Struct) -> bool {
    let (one, other) = (one.fields(), other.fields());
    let is_same = |(one, other): (&Option<Literal>, &Option<Literal>)| match (one, other) {
        (Some(Literal::Primitive(one)), Some(Literal::Primitive(other))) => match (one, other) {
            (Value::Int(one), Value::Long(other)) | (Value::Long(other), Value::Int(one)) => {
                i64::from(*one) == *other
            }
            (Value::Float(one), Value::Double(other))
            | (Value::Double(other), Value::Float(one)) => f64::from(one.0) == other.0,
            (one, other) => one == other,
        },
        (one, other) => one == other,
    };
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}

/// What an entry of a manifest is, and where it is kept.
#[derive(Debug, Clone)]
enum Held {
    Data(Arc<str>),
    Vector(Arc<str>),
    /// Of one data file, and its own path.
    Scoped(Arc<str>, Arc<str>),
    Shared(Arc<str>),
    Equality,
}

/// The files of a snapshot.
#[derive(Debug, Clone, Default)]
pub struct LiveFiles {
    /// Data files by their location.
    pub data: BTreeMap<Arc<str>, LiveFile>,
    /// The deletion vectors by the location of their data file.
    pub vectors: BTreeMap<Arc<str>, LiveDelete>,
    /// Position delete files that name the one data file that they are about, by that and their own
    /// location.
    scoped: BTreeMap<Arc<str>, BTreeMap<Arc<str>, LiveDelete>>,
    /// Other position delete files by their location.
    shared: BTreeMap<Arc<str>, LiveDelete>,
    /// The number of equality delete files.
    pub equality_deletes: usize,
    manifests: BTreeMap<Arc<str>, Vec<Held>>,
    path_bytes: usize,
}

/// The deleted rows of a data file, and the entries that a new delete file of it stands for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KnownDeletes {
    /// The rows.
    pub vector: DeletionVector,
    /// The entries that go when the data file gets a new delete file, or goes itself.
    pub replaced: BTreeSet<EntryKey>,
}

/// A data file with its location.
type Named<'a> = (&'a Arc<str>, &'a LiveFile);

/// The entries of a manifest that are live.
#[derive(Debug)]
pub struct Entries {
    manifest: Arc<str>,
    files: Vec<Entry>,
}

#[derive(Debug)]
enum Entry {
    Data(Arc<str>, LiveFile),
    Delete(Box<LiveDelete>),
}

impl Entries {
    /// Takes the live entries of the manifest `listed`, whose bytes are `bytes`.
    pub fn parse(listed: &ManifestFile, bytes: &[u8]) -> Result<Self> {
        let manifest = Manifest::parse_avro(bytes).map_err(crate::commit::format_error)?;
        let name: Arc<str> = Arc::from(listed.manifest_path.as_str());
        let layout = Layout {
            schema_id: manifest.metadata().schema_id(),
            spec_id: listed.partition_spec_id,
        };
        let live = manifest.entries().iter();
        let live = live.filter(|entry| entry.status() != ManifestStatus::Deleted);
        let mut next_row_id = listed.first_row_id;
        let files = live.map(|entry| {
            // An entry without a number is new in its manifest.
            let sequence = entry.sequence_number().unwrap_or(listed.sequence_number);
            let row_id = row_id_of(entry.data_file(), &mut next_row_id);
            Entry::of(entry.data_file(), layout, sequence, row_id, &name)
        });
        Ok(Entries {
            files: files.collect::<Result<_>>()?,
            manifest: name,
        })
    }

    /// Makes the entries of a manifest of these files, each with its spec and sequence number.
    #[cfg(test)]
    pub(super) fn of(name: &str, files: &[(DataFile, i32, i64)]) -> Self {
        let manifest: Arc<str> = Arc::from(name);
        let files = files.iter().map(|(file, spec_id, sequence)| {
            let layout = Layout {
                schema_id: 0,
                spec_id: *spec_id,
            };
            Entry::of(file, layout, *sequence, None, &manifest).unwrap()
        });
        Entries {
            files: files.collect(),
            manifest: Arc::clone(&manifest),
        }
    }
}

/// Returns the id of the first row of a live file, which it inherits where it has none of its own: then the
/// next ones of its manifest follow. In a manifest without row ids no file has any.
fn row_id_of(file: &DataFile, next: &mut Option<u64>) -> Option<u64> {
    let first = (*next)?;
    if let Some(own) = file.first_row_id() {
        return u64::try_from(own).ok();
    }
    *next = Some(first.saturating_add(file.record_count()));
    Some(first)
}

impl Entry {
    fn of(
        file: &DataFile,
        layout: Layout,
        sequence: i64,
        first_row_id: Option<u64>,
        manifest: &Arc<str>,
    ) -> Result<Self> {
        let manifest = Arc::clone(manifest);
        Ok(match file.content_type() {
            DataContentType::Data => Entry::Data(
                Arc::from(file.file_path()),
                LiveFile {
                    rows: file.record_count(),
                    bytes: file.file_size_in_bytes(),
                    partition: file.partition().clone(),
                    layout,
                    sequence,
                    format: file.file_format(),
                    first_row_id,
                    manifest,
                },
            ),
            _ => Entry::Delete(Box::new(LiveDelete {
                file: without_metrics(file, layout.spec_id)?,
                spec_id: layout.spec_id,
                sequence,
                manifest,
            })),
        })
    }
}

/// Returns what is needed of a delete file; bounds and counts take the most memory by far.
fn without_metrics(file: &DataFile, spec_id: i32) -> Result<DataFile> {
    let mut slim = DataFileBuilder::default();
    slim.content(file.content_type())
        .file_path(file.file_path().to_owned())
        .file_format(file.file_format())
        .partition(file.partition().clone())
        .partition_spec_id(spec_id)
        .record_count(file.record_count())
        .file_size_in_bytes(file.file_size_in_bytes())
        .referenced_data_file(file.referenced_data_file())
        .content_offset(file.content_offset())
        .content_size_in_bytes(file.content_size_in_bytes());
    slim.build()
        .map_err(|error| SinkError::internal("a delete file cannot be copied").caused_by(error))
}

impl LiveFiles {
    /// Reads the manifests of a snapshot.
    pub async fn read(storage: &TableStorage, manifests: &[ManifestFile]) -> Result<Self> {
        let mut live = LiveFiles::default();
        let reads: Vec<_> = live.unseen(manifests).collect();
        let reads = reads.into_iter().map(|listed| async move {
            let bytes = storage.get(&listed.manifest_path).await?;
            Entries::parse(listed, &bytes)
        });
        let reads: Vec<_> = reads.collect();
        let reads = futures::stream::iter(reads).buffered(MANIFEST_TABLE_TURNS);
        let entries = reads.try_collect().await?;
        live.follow(manifests, entries)?;
        Ok(live)
    }

    /// Returns those of the manifests of a snapshot whose entries are not known.
    pub fn unseen<'m>(
        &self,
        manifests: &'m [ManifestFile],
    ) -> impl Iterator<Item = &'m ManifestFile> {
        let unseen = manifests.iter();
        unseen.filter(|listed| !self.manifests.contains_key(listed.manifest_path.as_str()))
    }

    /// Becomes the files of the snapshot with `manifests`; `entries` are those that were not
    /// [known](Self::unseen). After an error it is of no use.
    ///
    /// # Errors
    ///
    /// `METADATA_FORMAT` when the snapshot lists a file twice.
    pub fn follow(&mut self, manifests: &[ManifestFile], entries: Vec<Entries>) -> Result<()> {
        let listed = manifests.iter().map(|one| one.manifest_path.as_str());
        let listed: BTreeSet<&str> = listed.collect();
        let gone = self.manifests.keys();
        let gone: Vec<Arc<str>> = gone
            .filter(|name| !listed.contains(&***name))
            .cloned()
            .collect();
        for name in gone {
            for held in self.manifests.remove(&name).unwrap_or_default() {
                self.let_go(&held);
            }
        }
        for manifest in entries {
            let mut held = Vec::with_capacity(manifest.files.len());
            for entry in manifest.files {
                held.push(self.add(entry)?);
            }
            self.manifests.insert(manifest.manifest, held);
        }
        Ok(())
    }

    fn add(&mut self, entry: Entry) -> Result<Held> {
        let mut is_twice = false;
        let held = match entry {
            Entry::Data(path, file) => {
                self.path_bytes += path.len();
                is_twice = self.data.insert(Arc::clone(&path), file).is_some();
                Held::Data(path)
            }
            Entry::Delete(delete) => {
                let delete = *delete;
                let file = &delete.file;
                let path: Arc<str> = Arc::from(file.file_path());
                self.path_bytes += path.len();
                let of = file.referenced_data_file().map(Arc::<str>::from);
                match (file.content_type(), file.file_format(), of) {
                    (DataContentType::EqualityDeletes, ..) => {
                        self.equality_deletes += 1;
                        Held::Equality
                    }
                    (_, DataFileFormat::Puffin, None) => {
                        return Err(unfit("a deletion vector names no data file"));
                    }
                    (_, DataFileFormat::Puffin, Some(of)) => {
                        is_twice = self.vectors.insert(Arc::clone(&of), delete).is_some();
                        Held::Vector(of)
                    }
                    (_, _, Some(of)) => {
                        let files = self.scoped.entry(Arc::clone(&of)).or_default();
                        is_twice = files.insert(Arc::clone(&path), delete).is_some();
                        Held::Scoped(of, path)
                    }
                    (_, _, None) => {
                        is_twice = self.shared.insert(Arc::clone(&path), delete).is_some();
                        Held::Shared(path)
                    }
                }
            }
        };
        match is_twice {
            false => Ok(held),
            true => Err(unfit("a snapshot has a data or delete file twice")),
        }
    }

    fn let_go(&mut self, held: &Held) {
        let path = match held {
            Held::Data(path) => {
                self.data.remove(path);
                path
            }
            Held::Vector(of) => {
                self.vectors.remove(of);
                of
            }
            Held::Scoped(of, path) => {
                if let Some(files) = self.scoped.get_mut(of) {
                    files.remove(path);
                    if files.is_empty() {
                        self.scoped.remove(of);
                    }
                }
                path
            }
            Held::Shared(path) => {
                self.shared.remove(path);
                path
            }
            Held::Equality => {
                self.equality_deletes = self.equality_deletes.saturating_sub(1);
                return;
            }
        };
        self.path_bytes = self.path_bytes.saturating_sub(path.len());
    }

    /// Returns the position delete files.
    pub fn positions(&self) -> impl Iterator<Item = &LiveDelete> {
        let scoped = self.scoped.values().flat_map(BTreeMap::values);
        scoped.chain(self.shared.values())
    }

    /// Returns the entries of delete files that are about the data file at `path` alone, as far as the
    /// entries tell.
    pub fn own_deletes(&self, path: &str) -> BTreeSet<EntryKey> {
        let vector = self.vectors.get(path);
        let scoped = self.scoped.get(path).into_iter();
        let all = scoped.flat_map(BTreeMap::values).chain(vector);
        all.map(LiveDelete::key).collect()
    }

    /// Returns how many rows of the data file at `path` are deleted, as far as entries tell that are about it
    /// alone.
    pub fn deleted_rows(&self, path: &str) -> u64 {
        if let Some(vector) = self.vectors.get(path) {
            return vector.file.record_count();
        }
        let scoped = self.scoped.get(path).into_iter();
        let scoped = scoped.flat_map(BTreeMap::values);
        scoped.map(|delete| delete.file.record_count()).sum()
    }

    /// Returns the manifests that list the data files at `data` and the delete files `deletes`.
    pub fn manifests_of(
        &self,
        data: &BTreeSet<EntryKey>,
        deletes: &BTreeSet<EntryKey>,
    ) -> BTreeSet<Arc<str>> {
        let data = data.iter().filter_map(|key| self.data.get(&*key.path));
        let mut found: BTreeSet<Arc<str>> = data.map(|file| Arc::clone(&file.manifest)).collect();
        let vectors = deletes.iter().filter_map(|key| key.referenced.as_deref());
        let vectors = vectors.filter_map(|of| self.vectors.get(of));
        found.extend(vectors.map(|delete| Arc::clone(&delete.manifest)));
        let alone = deletes.iter().filter(|key| key.referenced.is_none());
        let alone: BTreeSet<&str> = alone.map(|key| key.path.as_str()).collect();
        if !alone.is_empty() {
            let files = self.positions();
            let files = files.filter(|delete| alone.contains(delete.file.file_path()));
            found.extend(files.map(|delete| Arc::clone(&delete.manifest)));
        }
        found
    }

    /// Returns about how many bytes of memory are used.
    pub fn memory_bytes(&self) -> usize {
        let scoped: usize = self.scoped.values().map(BTreeMap::len).sum();
        let deletes = self.vectors.len() + scoped + self.shared.len();
        2 * self.path_bytes + FILE_BYTES * self.data.len() + DELETE_BYTES * deletes
    }

    /// Loads the deleted rows of the data files at `paths`, which are live; one without deletes is
    /// left out. What `kept` has for the very delete files of a data file need not be read.
    pub async fn deletes_of(
        &self,
        storage: &TableStorage,
        paths: &BTreeSet<Arc<str>>,
        kept: impl Fn(&str) -> Option<KnownDeletes>,
    ) -> Result<BTreeMap<Arc<str>, KnownDeletes>> {
        let mut known: BTreeMap<Arc<str>, KnownDeletes> = BTreeMap::new();
        let mut without = Vec::new();
        let mut vectors = Vec::new();
        for path in paths {
            let live = self.data.get(path);
            let live = live.ok_or_else(|| SinkError::internal("a data file is not live"))?;
            let ours = kept(path).filter(|kept| {
                !kept.replaced.is_empty()
                    && kept.replaced == self.own_deletes(path)
                    && self.shared.is_empty()
            });
            match (ours, self.vectors.get(path)) {
                (Some(ours), _) => drop(known.insert(Arc::clone(path), ours)),
                // It has the rows of older position delete files as well.
                (None, Some(entry)) => vectors.push((path, entry, live.rows)),
                (None, None) => without.push((path, live)),
            }
        }
        let loads = vectors.into_iter().map(|(path, entry, rows)| async move {
            let vector = load_vector(storage, &entry.file, rows).await?;
            let replaced = [entry.key()].into();
            Ok::<_, SinkError>((Arc::clone(path), KnownDeletes { vector, replaced }))
        });
        let loads: Vec<_> = loads.collect();
        let loads = futures::stream::iter(loads).buffered(MANIFEST_TABLE_TURNS);
        known.extend(loads.try_collect::<Vec<_>>().await?);
        self.add_positions(storage, &without, &mut known).await?;
        Ok(known)
    }

    /// Adds the rows of position delete files. One that is about a single data file goes with it; one
    /// that is about several stays.
    async fn add_positions(
        &self,
        storage: &TableStorage,
        files: &[Named<'_>],
        known: &mut BTreeMap<Arc<str>, KnownDeletes>,
    ) -> Result<()> {
        // One read serves all data files that a delete file may be about.
        let mut wanted: BTreeMap<&str, (&LiveDelete, Vec<Named<'_>>)> = BTreeMap::new();
        for (path, file) in files {
            let scoped = self
                .scoped
                .get(*path)
                .into_iter()
                .flat_map(BTreeMap::values);
            for delete in scoped.chain(self.shared.values()) {
                if delete.may_apply(file) {
                    let name = delete.file.file_path();
                    let (_, targets) = wanted.entry(name).or_insert((delete, Vec::new()));
                    targets.push((path, file));
                }
            }
        }
        let loads = wanted.into_values().map(|(delete, targets)| async move {
            let found = load_positions(storage, &delete.file, |_| true).await?;
            Ok::<_, SinkError>((delete, targets, found))
        });
        let loads: Vec<_> = loads.collect();
        let mut loads = futures::stream::iter(loads).buffered(MANIFEST_TABLE_TURNS);
        while let Some((delete, targets, mut found)) = loads.try_next().await? {
            let is_alone = found.len() == 1;
            for (path, file) in targets {
                let Some(vector) = found.remove(&**path) else {
                    continue;
                };
                if vector.last().is_some_and(|last| last >= file.rows) {
                    return Err(unfit(
                        "a position delete file has rows that its data file does not have",
                    ));
                }
                let of_file = known.entry(Arc::clone(path)).or_default();
                of_file.vector.union(&vector);
                if is_alone {
                    of_file.replaced.insert(delete.key());
                }
            }
        }
        Ok(())
    }
}

fn unfit(what: &'static str) -> SinkError {
    SinkError::fatal("METADATA_FORMAT", what)
}
