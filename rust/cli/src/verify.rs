//! `frazil verify`: reads the metadata columns of a table and compares them with the stream. Of a table
//! with changes it reads the keys and the deletes.

use std::collections::BTreeMap;
use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use frazil_core::commit::recover::state_of;
use frazil_core::config::{SinkConfig, TableConfig};
use frazil_core::layout::identifier::key_plan;
use frazil_engine::catalog::{self, LoadedTable};
use frazil_engine::commit::manifests_of;
use frazil_engine::index::{Audit, audit};
use frazil_engine::runtime::Runtime;
use iceberg::spec::{DataContentType, ManifestStatus};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::offsets::{Seen, Source};
use crate::settings::read_settings;

const COLUMNS: [&str; 3] = ["_topic", "_partition", "_offset"];

struct Arguments {
    config: String,
    table: Option<String>,
    expected: BTreeMap<Source, Range<i64>>,
}

/// Runs the command; `true` when the table keeps the promise.
pub(crate) fn run(arguments: lexopt::Parser) -> Result<bool, String> {
    let arguments = parse(arguments).map_err(|error| error.to_string())?;
    let settings = read_settings(&arguments.config)?;
    let config = frazil_engine::preflight::start(&settings).map_err(|error| error.report())?;
    let table = choose(&config, arguments.table.as_deref())?;
    let runtime = Runtime::shared().map_err(|error| error.report())?;
    let (seen, durable) = match runtime.handle().block_on(read(&config, table))? {
        Read::Appended(seen, durable) => (seen, durable),
        Read::Changed(audit) if arguments.expected.is_empty() => {
            return Ok(report(&table.name, &audit));
        }
        Read::Changed(_) => {
            return Err(
                "a table with changes holds the last row of each key and not every record: \
                 leave --expect away"
                    .into(),
            );
        }
    };
    let findings = seen.compare(&arguments.expected, &durable);
    for finding in &findings {
        println!("{finding}");
    }
    let bad = findings.iter().filter(|finding| finding.is_bad()).count();
    let rows: usize = findings.iter().map(|finding| finding.rows).sum();
    println!(
        "{}: {rows} rows of {} partitions, {bad} bad",
        table.name,
        findings.len()
    );
    Ok(bad == 0)
}

fn parse(mut parser: lexopt::Parser) -> Result<Arguments, lexopt::Error> {
    use lexopt::prelude::{Long, ValueExt};
    let mut arguments = Arguments {
        config: String::new(),
        table: None,
        expected: BTreeMap::new(),
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("config") => arguments.config = parser.value()?.string()?,
            Long("table") => arguments.table = Some(parser.value()?.string()?),
            Long("expect") => {
                let text = parser.value()?.string()?;
                let (source, range) = parse_range(&text)
                    .ok_or_else(|| format!("`{text}` is not TOPIC:PARTITION=START-END"))?;
                arguments.expected.insert(source, range);
            }
            _ => return Err(argument.unexpected()),
        }
    }
    if arguments.config.is_empty() {
        return Err("--config is missing".into());
    }
    Ok(arguments)
}

fn parse_range(text: &str) -> Option<(Source, Range<i64>)> {
    let (source, range) = text.rsplit_once('=')?;
    let (topic, partition) = source.rsplit_once(':')?;
    let (start, end) = range.split_once('-')?;
    let range = start.parse().ok()?..end.parse().ok()?;
    Some(((topic.to_owned(), partition.parse().ok()?), range))
}

fn choose<'c>(config: &'c SinkConfig, name: Option<&str>) -> Result<&'c TableConfig, String> {
    let mut tables = config.tables.iter();
    let table = match name {
        Some(name) => tables.find(|table| table.name == name),
        None if config.tables.len() > 1 => return Err("several tables: name one by --table".into()),
        None => tables.next(),
    };
    table.ok_or_else(|| "the configuration has no such table".into())
}

/// What was read of a table.
enum Read {
    /// The offsets in its rows, and those in its state.
    Appended(Seen, BTreeMap<Source, i64>),
    /// What the keys and deletes of a table with changes say.
    Changed(Box<Audit>),
}

/// Says what was found of a table with changes; `true` when that is what it promises. Rows are named
/// by their place, for their keys are nobody's business.
fn report(table: &str, audit: &Audit) -> bool {
    for (one, other) in &audit.named {
        println!(
            "BAD  a key is there twice: {} row {}, {} row {}",
            one.file, one.row, other.file, other.row
        );
    }
    for path in &audit.several_deletes {
        println!("BAD  {path} has several delete files");
    }
    for path in &audit.without_rows {
        println!("BAD  {path} has no row left");
    }
    if audit.equality_deletes > 0 {
        println!("BAD  {} equality delete files", audit.equality_deletes);
    }
    println!(
        "{table}: {} rows in {} files, {} deleted, {} keys doubled",
        audit.rows, audit.files, audit.deleted, audit.doubled
    );
    !audit.is_bad()
}

async fn read(config: &SinkConfig, table: &TableConfig) -> Result<Read, String> {
    let catalog = catalog::open(&config.catalog).map_err(|error| error.report())?;
    let loaded = catalog
        .load_table(&table.ident)
        .await
        .map_err(|error| error.report())?;
    let state =
        state_of(&loaded.metadata, &config.wid, &table.branch).map_err(|error| error.report())?;
    let durable = state
        .iter()
        .flat_map(|state| state.bounds())
        .map(|(partition, next)| ((partition.topic.to_string(), partition.partition), next))
        .collect();
    let appended = match table.changes {
        Some(_) => None,
        None => data_files(&loaded, &table.branch).await?,
    };
    let Some(paths) = appended else {
        let schema = loaded.metadata.current_schema();
        let key = key_plan(schema, &table.id_columns, table.case_insensitive);
        let key = key.map_err(|error| error.report())?;
        let found = audit(&loaded, &table.branch, &key).await;
        return Ok(Read::Changed(Box::new(
            found.map_err(|error| error.report())?,
        )));
    };
    let mut seen = Seen::default();
    for path in paths {
        let bytes = loaded
            .storage
            .get(&path)
            .await
            .map_err(|error| error.report())?;
        add_rows(&mut seen, bytes).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(Read::Appended(seen, durable))
}

/// Returns the locations of the live data files of `branch`; `None` when it has deletes, and so is that
/// of a table with changes.
async fn data_files(table: &LoadedTable, branch: &str) -> Result<Option<Vec<String>>, String> {
    let Some(snapshot) = table.metadata.snapshot_for_ref(branch) else {
        return Ok(Some(Vec::new()));
    };
    let io = table.storage.file_io();
    let version = table.metadata.format_version();
    let manifests = manifests_of(&table.storage, snapshot, version)
        .await
        .map_err(|error| error.report())?;
    let mut paths = Vec::new();
    for file in manifests {
        let manifest = file
            .load_manifest(&io)
            .await
            .map_err(|error| error.to_string())?;
        for entry in manifest.entries() {
            if entry.status() == ManifestStatus::Deleted {
                continue;
            }
            if entry.content_type() != DataContentType::Data {
                return Ok(None);
            }
            paths.push(entry.file_path().to_owned());
        }
    }
    Ok(Some(paths))
}

fn add_rows(
    seen: &mut Seen,
    bytes: bytes::Bytes,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
    let mask = ProjectionMask::columns(builder.parquet_schema(), COLUMNS);
    for batch in builder
        .with_projection(mask)
        .with_batch_size(65_536)
        .build()?
    {
        let batch = batch?;
        let column = |name: &str| {
            let remedy = "set `iceberg.tables.metadata-columns=_topic,_partition,_offset`";
            batch
                .column_by_name(name)
                .ok_or_else(|| format!("no column {name}; {remedy}"))
        };
        let topics = column(COLUMNS[0])?.as_string::<i32>();
        let partitions = column(COLUMNS[1])?.as_primitive::<Int32Type>();
        let offsets = column(COLUMNS[2])?.as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            seen.add(topics.value(row), partitions.value(row), offsets.value(row));
        }
    }
    Ok(())
}
