//! What changes of a large table cost, from rows to a snapshot: `./x bench upsert`, with `--keys N` (of the
//! table), `--changes N` (of a commit), `--commits N` and `--files N` (of the table).
//!
//! Tables of whole numbers (keys of at most 8 bytes, kept exactly) and of texts of 16 bytes (hashed) on local
//! disk, with an SQL catalog beside them. Prints for each
//!
//! - how long a process takes that begins with the first commit of changes, and the keys it reads a second;
//! - bytes of the index for each key, of what the pool of memory counts;
//! - changes of random keys a second of CPU, of all threads: rows written, keys numbered, run sorted and
//!   stored, commit resolved, deletes written; what decodes records is not among it;
//! - the time of a commit by the number of data files that it deletes rows of.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use frazil_core::change::KeyPlan;
use frazil_core::commit::outcome::SegmentOutcome;
use frazil_core::control::message::Ranges;
use frazil_core::control::segment::Segment;
use frazil_core::index::{KeyForm, KeyHasher, Location};
use frazil_core::layout::identifier::key_plan;
use frazil_core::offsets::{SourceRange, TopicPartition};
use frazil_engine::catalog::{Catalog, CreateTable, LoadedTable, open_sql};
use frazil_engine::commit::{
    ChangedTable, Layout, ManifestIdentity, TableCommitter, write_manifest,
};
use frazil_engine::keyrun::{Effect, KeyRun, KeyRunIdentity, RunChange, write_key_run};
use frazil_engine::memory::Memory;
use frazil_engine::writer::{TableWriter, TableWriterConfig};
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::spec::{DataFile, FormatVersion, NestedField, PrimitiveType, Schema, Type};
use iceberg::{NamespaceIdent, TableIdent};
use uuid::Uuid;

const WID: &str = "00112233445566ff";
const BATCH_ROWS: u64 = 8_192;
/// Clock ticks a second, as `/proc` counts them.
const TICKS: f64 = 100.0;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    keys: u64,
    changes: u64,
    commits: u64,
    files: u64,
}

impl Sizes {
    fn of(words: &[String]) -> Outcome<Self> {
        let mut sizes = Sizes {
            keys: 1_000_000,
            changes: 100_000,
            commits: 10,
            files: 64,
        };
        let mut words = words.iter().filter(|word| *word != "--bench");
        while let Some(word) = words.next() {
            let number = words.next().ok_or("an option needs a number")?.parse()?;
            match word.as_str() {
                "--keys" => sizes.keys = number,
                "--changes" => sizes.changes = number,
                "--commits" => sizes.commits = number,
                "--files" => sizes.files = number,
                other => return Err(format!("{other} is no option").into()),
            }
        }
        match sizes.files.min(sizes.keys).min(sizes.changes) {
            0 => Err("the numbers must not be 0".into()),
            _ => Ok(sizes),
        }
    }
}

/// Returns the seconds that all threads of this process have been on a core.
fn cpu_seconds() -> Outcome<f64> {
    let line = std::fs::read_to_string("/proc/self/stat")?;
    let (_, after) = line.rsplit_once(')').ok_or("no name in stat")?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let mut ticks = 0.0;
    for place in [11, 12] {
        ticks += fields.get(place).ok_or("a short stat")?.parse::<f64>()?;
    }
    Ok(ticks / TICKS)
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end.max(1)
    }
}

/// What the key of a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Text,
}

impl Kind {
    fn column(self, ids: &[u64]) -> ArrayRef {
        match self {
            Kind::Number => {
                let ids = ids.iter().map(|id| i64::try_from(*id).unwrap_or_default());
                Arc::new(Int64Array::from_iter_values(ids))
            }
            Kind::Text => {
                let ids = ids.iter().map(|id| format!("key-{id:012}"));
                Arc::new(StringArray::from_iter_values(ids))
            }
        }
    }
}

/// A table and who commits to it.
struct Bench {
    catalog: Arc<dyn Catalog>,
    ident: TableIdent,
    kind: Kind,
    plan: KeyPlan,
    hasher: KeyHasher,
    committer: TableCommitter,
    memory: Arc<Memory>,
    random: Random,
    offset: i64,
    seq: u64,
}

impl Bench {
    async fn new(folder: &Path, kind: Kind) -> Outcome<Bench> {
        let at = folder.display();
        let properties = [
            ("uri".to_owned(), format!("sqlite:{at}/catalog.db")),
            ("warehouse".to_owned(), format!("file://{at}/warehouse")),
        ];
        let catalog = open_sql("bench", &BTreeMap::from(properties))?;
        let ident = TableIdent::new(NamespaceIdent::new("db".into()), "t".into());
        catalog.create_namespace(ident.namespace()).await?;
        let key = match kind {
            Kind::Number => PrimitiveType::Long,
            Kind::Text => PrimitiveType::String,
        };
        let column = |id, name, kind| NestedField::required(id, name, Type::Primitive(kind));
        let fields = [column(1, "id", key), column(2, "v", PrimitiveType::Long)];
        let table = CreateTable {
            schema: Schema::builder()
                .with_fields(fields.map(Arc::new))
                .build()?,
            partition_spec: None,
            sort_order: None,
            location: None,
            properties: BTreeMap::new(),
            format_version: FormatVersion::V3,
        };
        let loaded = catalog.create_table(&ident, table).await?;
        let plan = key_plan(loaded.metadata.current_schema(), &["id".to_owned()], false)?;
        let form = KeyForm::of(plan.bytes_max());
        let memory = Memory::new(None);
        Ok(Bench {
            committer: committer(&catalog, &ident, &memory),
            hasher: KeyHasher::new(form, loaded.metadata.uuid()),
            catalog,
            ident,
            kind,
            plan,
            memory,
            random: Random(7),
            offset: 0,
            seq: 0,
        })
    }

    /// Begins a new process, as far as the table goes.
    fn restart(&mut self) {
        self.memory = Memory::new(None);
        self.committer = committer(&self.catalog, &self.ident, &self.memory);
    }

    /// Writes one file of these keys.
    async fn write(&self, loaded: &LoadedTable, ids: &[u64]) -> Outcome<Vec<DataFile>> {
        let metadata = &loaded.metadata;
        let schema = metadata.current_schema().clone();
        let arrow = Arc::new(schema_to_arrow_schema(&schema)?);
        let spec = metadata.default_partition_spec().clone();
        let name = format!("frazil-w-{}", Uuid::now_v7());
        let config = TableWriterConfig::new(schema, spec, metadata.location(), name);
        let runtime = tokio::runtime::Handle::current();
        let mut writer = TableWriter::new(config, loaded.storage.clone(), runtime)?;
        for ids in ids.chunks(usize::try_from(BATCH_ROWS)?) {
            let values = ids.iter().map(|id| i64::try_from(*id).unwrap_or_default());
            let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
            let columns = vec![self.kind.column(ids), values];
            writer.write(RecordBatch::try_new(Arc::clone(&arrow), columns)?)?;
        }
        Ok(writer.seal()?.wait().await?)
    }

    /// Seals files with `count` rows, which are changes when there is a run of them.
    async fn seal(
        &mut self,
        loaded: &LoadedTable,
        files: Vec<DataFile>,
        count: u64,
        run: Option<KeyRun>,
    ) -> Outcome<Segment> {
        let start = self.offset;
        self.offset += i64::try_from(count)?;
        let seq = self.seq;
        self.seq += 1;
        let mut segment = Segment {
            session: Uuid::from_u128(if run.is_some() { 2 } else { 1 }),
            seq,
            first_unacked: seq,
            epoch: 0,
            table: self.ident.clone(),
            table_uuid: loaded.metadata.uuid(),
            branch: "main".into(),
            ranges: vec![SourceRange {
                partition: TopicPartition::new("t", 0),
                start: Some(start),
                end: self.offset,
                lowest: Some(start),
                timestamp_max_ms: None,
            }],
            watermarks: BTreeMap::new(),
            topic_ids: BTreeMap::new(),
            manifests: Vec::new(),
            key_run: None,
            rows: count,
            bytes: 0,
        };
        let identity = ManifestIdentity {
            wid: WID.into(),
            session: segment.session,
            seq,
            index: 0,
            ranges: Ranges::of(&segment),
        };
        let (storage, metadata) = (&loaded.storage, &loaded.metadata);
        let layout = Layout::of(metadata);
        let sealed = write_manifest(storage, metadata, layout, files, &identity).await?;
        segment.manifests.push(sealed);
        if let Some(mut run) = run {
            let identity = KeyRunIdentity {
                table: metadata.uuid(),
                wid: WID.into(),
                session: segment.session,
                seq,
                form: KeyForm::of(self.plan.bytes_max()),
                key: self.plan.fingerprint().to_owned(),
                ranges: Ranges::of(&segment),
            };
            let path = format!("{}/data/frazil-{seq}-keys.parquet", metadata.location());
            let stored = write_key_run(storage, &path, &mut run, &identity).await?;
            segment.key_run = Some(stored);
        }
        Ok(segment)
    }

    /// Fills the table with rows of the keys from 0 on, spread over so many files.
    async fn fill(&mut self, sizes: Sizes) -> Outcome<()> {
        let filler = TableCommitter::new(
            Arc::clone(&self.catalog),
            self.ident.clone(),
            "main",
            WID,
            "bench",
        );
        let loaded = self.catalog.load_table(&self.ident).await?;
        let mut files = Vec::new();
        for file in 0..sizes.files {
            let ids: Vec<u64> = ids_of(sizes, file).collect();
            files.extend(self.write(&loaded, &ids).await?);
        }
        let segment = self.seal(&loaded, files, sizes.keys, None).await?;
        done(&filler.commit(vec![segment]).await)
    }

    /// Makes a segment that updates the rows of these keys.
    async fn updates(&mut self, ids: &[u64]) -> Outcome<Segment> {
        let loaded = self.catalog.load_table(&self.ident).await?;
        let files = self.write(&loaded, ids).await?;
        let mut run = KeyRun::default();
        let mut bytes = Vec::new();
        let columns = [self.kind.column(ids)];
        let rows = self.plan.rows(&columns)?;
        let (mut file, mut row) = (0usize, 0u32);
        for (at, offset) in (0..ids.len()).zip(self.offset..) {
            while files
                .get(file)
                .is_some_and(|one| one.record_count() <= u64::from(row))
            {
                (file, row) = (file + 1, 0);
            }
            let key = self.hasher.number(rows.encode(at, &mut bytes)?)?;
            let place = Location {
                file: u32::try_from(file)?,
                row,
            };
            row += 1;
            let change = RunChange::new(key, Effect::Upsert(place), (0, offset));
            run.push(&change, None)?;
        }
        self.seal(&loaded, files, u64::try_from(ids.len())?, Some(run))
            .await
    }

    async fn commit(&self, segment: Segment) -> Outcome<Duration> {
        let begun = Instant::now();
        done(&self.committer.commit(vec![segment]).await)?;
        Ok(begun.elapsed())
    }

    /// Returns the bytes of what lasts from commit to commit.
    fn index_bytes(&self) -> Outcome<u64> {
        let uses = self.memory.usage().uses;
        let index = uses
            .split(' ')
            .find_map(|one| one.strip_prefix("key-index="));
        Ok(index.ok_or("no index is counted")?.parse()?)
    }

    async fn measure(&mut self, sizes: Sizes) -> Outcome<()> {
        println!("keys of {:?}: {sizes:?}", self.kind);
        self.fill(sizes).await?;
        self.restart();
        let segment = self.updates(&[0]).await?;
        let before = cpu_seconds()?;
        let took = self.commit(segment).await?.as_secs_f64();
        let cpu = cpu_seconds()? - before;
        let keys = sizes.keys as f64;
        println!(
            "  first commit {took:.2} s, {:.0} keys/s, {:.0} keys a core-second",
            keys / took,
            keys / cpu.max(1.0 / TICKS)
        );
        println!(
            "  index {:.2} bytes a key",
            self.index_bytes()? as f64 / keys
        );
        self.measure_updates(sizes).await?;
        println!(
            "  index {:.2} bytes a key",
            self.index_bytes()? as f64 / keys
        );
        self.measure_files(sizes).await
    }

    async fn measure_updates(&mut self, sizes: Sizes) -> Outcome<()> {
        let (mut sealing, mut committing) = (0.0, 0.0);
        let mut longest = Duration::ZERO;
        let begun = Instant::now();
        for _ in 0..sizes.commits {
            let ids = (0..sizes.changes).map(|_| self.random.below(sizes.keys));
            let ids: Vec<u64> = ids.collect();
            let start = cpu_seconds()?;
            let segment = self.updates(&ids).await?;
            let sealed = cpu_seconds()?;
            longest = longest.max(self.commit(segment).await?);
            sealing += sealed - start;
            committing += cpu_seconds()? - sealed;
        }
        let changes = (sizes.changes * sizes.commits) as f64;
        let per = |cpu: f64| changes / cpu.max(1.0 / TICKS);
        println!(
            "  {:.0} changes a core-second (written {:.0}, committed {:.0}), {:.0}/s, longest commit {:.2} s, \
             peak {} MiB",
            per(sealing + committing),
            per(sealing),
            per(committing),
            changes / begun.elapsed().as_secs_f64(),
            longest.as_secs_f64(),
            self.memory.usage().peak >> 20
        );
        Ok(())
    }

    async fn measure_files(&mut self, sizes: Sizes) -> Outcome<()> {
        let mut touched = 1;
        while touched <= sizes.files {
            // A thousand rows, spread over the first files.
            let each = (1_000 / touched).max(1);
            let mut ids = Vec::new();
            for file in 0..touched {
                ids.extend(ids_of(sizes, file).take(usize::try_from(each)?));
            }
            let segment = self.updates(&ids).await?;
            let took = self.commit(segment).await?;
            println!(
                "  {} changes in rows of {touched} files first: {:.1} ms",
                ids.len(),
                1e3 * took.as_secs_f64()
            );
            touched *= 4;
        }
        Ok(())
    }
}

/// Returns the keys that a file of the table was filled with.
fn ids_of(sizes: Sizes, file: u64) -> impl Iterator<Item = u64> {
    (file..sizes.keys).step_by(usize::try_from(sizes.files).unwrap_or(usize::MAX))
}

fn committer(
    catalog: &Arc<dyn Catalog>,
    ident: &TableIdent,
    memory: &Arc<Memory>,
) -> TableCommitter {
    let table = ChangedTable {
        id_columns: vec!["id".into()],
        ..ChangedTable::default()
    };
    TableCommitter::new(Arc::clone(catalog), ident.clone(), "main", WID, "bench")
        .with_changes(table, Arc::clone(memory))
}

fn done(outcomes: &[(usize, SegmentOutcome)]) -> Outcome<()> {
    match outcomes {
        [(0, SegmentOutcome::Durable { .. })] => Ok(()),
        other => Err(format!("not committed: {other:?}").into()),
    }
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let sizes = Sizes::of(&words)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    for kind in [Kind::Number, Kind::Text] {
        let folder = tempfile::tempdir()?;
        // Below a spawned task, as commits are in a worker.
        let path = folder.path().to_owned();
        let measured = runtime.spawn(async move {
            let bench = Bench::new(&path, kind).await;
            let measured = async { bench?.measure(sizes).await };
            measured.await.map_err(|error| error.to_string())
        });
        runtime.block_on(measured)??;
    }
    Ok(())
}
