//! Reads what Java wrote and writes what Java reads: `tests/wire`.
//!
//! `*.bin` are written by `GoldenFramesTest` and compared here with their `.txt`; `effects/*.bin`
//! are written here and compared by `EffectsTest`. `UPDATE_EXPECT=1` renews what Rust owns.
#![expect(clippy::disallowed_methods, reason = "golden files are files")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use frazil_core::SinkError;
use frazil_core::offsets::TopicPartition;
use frazil_core::wire::{
    Cell, Effects, Frame, FrameParts, LogLevel, ParkedError, Rejected, Request, SchemaRegistry,
    SourceSchema,
};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/wire")
}

/// Splits a golden file into its items: kind and bytes.
fn items(name: &str) -> Vec<(u8, Vec<u8>)> {
    let bytes = std::fs::read(directory().join(name)).expect("golden file");
    let mut rest = bytes.as_slice();
    let mut items = Vec::new();
    while let [kind, length @ ..] = rest {
        let (length, after) = length.split_at(4);
        let length = u32::from_be_bytes(length.try_into().expect("4 bytes")) as usize;
        let (item, after) = after.split_at(length);
        items.push((*kind, item.to_vec()));
        rest = after;
    }
    items
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn render(cell: Cell<'_>) -> String {
    match cell {
        Cell::Null => "null".into(),
        Cell::Bool(value) => value.to_string(),
        Cell::Int8(value) => format!("{value}i8"),
        Cell::Int16(value) => format!("{value}i16"),
        Cell::Int32(value) => format!("{value}i32"),
        Cell::Int64(value) => format!("{value}i64"),
        Cell::Float32(value) => format!("{value:?}f32"),
        Cell::Float64(value) => format!("{value:?}f64"),
        Cell::String(text) => format!("{text:?}"),
        Cell::Bytes(bytes) => format!("bytes({})", hex(bytes)),
        Cell::Decimal { unscaled, scale } => format!("decimal({}, scale {scale})", hex(unscaled)),
        Cell::Number { unscaled, scale } => format!("number({unscaled}, scale {scale})"),
        Cell::Date { days } => format!("date({days} d)"),
        Cell::Time { ms } => format!("time({ms} ms)"),
        Cell::Timestamp { ms } => format!("timestamp({ms} ms)"),
        Cell::ClockTime { nanos } => format!("time({nanos} ns)"),
        Cell::Moment {
            seconds,
            nanos,
            zoned,
        } => {
            let kind = if zoned { "instant" } else { "local" };
            format!("{kind}({seconds} s {nanos} ns)")
        }
        Cell::Uuid(bytes) => format!("uuid({})", hex(bytes)),
        Cell::Array(array) => {
            let items: Vec<_> = array.iter().map(render).collect();
            format!("[{}]", items.join(", "))
        }
        Cell::Map(map) => {
            let entry = |entry: frazil_core::wire::MapEntry<'_>| {
                format!("{}: {}", render(entry.key), render(entry.value))
            };
            let entries: Vec<_> = map.entries().map(entry).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Cell::Struct(of) => {
            let field =
                |index: usize| format!("{}={}", of.fields()[index].name, render(of.field(index)));
            let fields: Vec<_> = (0..of.fields().len()).map(field).collect();
            format!("struct({})", fields.join(", "))
        }
    }
}

fn render_schema(schema: &SourceSchema) -> String {
    let mut text = schema.kind().name().to_owned();
    if schema.optional {
        text.push('?');
    }
    let mut notes = Vec::new();
    notes.extend(schema.name.clone());
    notes.extend(schema.version.map(|version| format!("v{version}")));
    notes.extend(schema.doc.as_ref().map(|doc| format!("doc {doc:?}")));
    notes.extend(match &schema.default {
        Some(text) => Some(format!("default {text:?}")),
        None => schema.has_default.then(|| "default".to_owned()),
    });
    notes.extend(schema.logical().map(|logical| format!("{logical:?}")));
    notes.extend(
        schema
            .parameters
            .iter()
            .map(|(name, value)| format!("{name}={value}")),
    );
    if !notes.is_empty() {
        write!(text, "({})", notes.join(", ")).expect("string");
    }
    let children: Vec<_> = [schema.key(), schema.value()]
        .into_iter()
        .flatten()
        .collect();
    if !children.is_empty() {
        let children: Vec<_> = children
            .into_iter()
            .map(|child| render_schema(child))
            .collect();
        write!(text, "<{}>", children.join(", ")).expect("string");
    }
    for field in schema.fields() {
        let child = render_schema(&field.schema).replace('\n', "\n  ");
        write!(text, "\n  {}: {child}", field.name).expect("string");
    }
    text
}

fn render_frame(frame: &Frame<'_>) -> String {
    let mut text = String::new();
    let (rows, value, key) = (frame.rows(), frame.value_schema_id(), frame.key_schema_id());
    writeln!(
        text,
        "frame: {rows} rows, value schema {value}, key schema {key}"
    )
    .expect("string");
    for run in frame.runs() {
        let offsets: Vec<_> = (0..run.rows)
            .map(|row| run.offset(row).to_string())
            .collect();
        let gaps = if run.is_contiguous() {
            ""
        } else {
            " with gaps"
        };
        let (partition, first) = (&run.partition, run.first_row);
        let offsets = offsets.join(" ");
        let renamed = match run.topic() {
            topic if *topic == *partition.topic => String::new(),
            topic => format!(" as {topic}"),
        };
        writeln!(
            text,
            "  run {partition}{renamed} from row {first}{gaps}: {offsets}"
        )
        .expect("string");
    }
    for row in 0..frame.rows() {
        write!(text, "  {row}:").expect("string");
        if frame.is_skipped(row) {
            text.push_str(" skipped");
        }
        if let Some(timestamp) = frame.timestamp(row) {
            write!(text, " @{timestamp}").expect("string");
        }
        if !frame.key(row).is_null() {
            write!(text, " key {}", render(frame.key(row))).expect("string");
        }
        if let Some(headers) = frame.headers(row) {
            write!(text, " headers {}", render(Cell::Map(headers))).expect("string");
        }
        writeln!(text, " {}", render(frame.value(row))).expect("string");
    }
    text
}

fn render_file(name: &str) -> String {
    let mut registry = SchemaRegistry::default();
    let mut text = String::new();
    for (kind, bytes) in items(name) {
        match kind {
            1 => {
                let id = registry.register(&bytes).expect("valid schema");
                let schema = registry.get(id).expect("registered");
                assert_eq!(schema.to_bytes(), bytes, "both sides write a schema alike");
                writeln!(text, "schema {id}: {}", render_schema(&schema)).expect("string");
            }
            2 => {
                let frame = Frame::decode(&bytes, &|id| registry.get(id)).expect("valid frame");
                text.push_str(&render_frame(&frame));
            }
            _ => {
                let request = Request::decode(&bytes).expect("valid request");
                writeln!(text, "{request:?}").expect("string");
            }
        }
    }
    text
}

macro_rules! golden {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            let text = concat!("../../../tests/wire/", stringify!($name), ".txt");
            expect_file![text].assert_eq(&render_file(concat!(stringify!($name), ".bin")));
        }
    )*};
}

golden!(
    blocks,
    headers,
    keys,
    logical_types,
    nested,
    plain_values,
    records,
    recursive,
    renamed,
    requests,
    scalars,
    schemaless,
    skipped,
    sources,
);

#[test]
fn golden_frames_survive_any_cut_and_any_flipped_byte() {
    for name in [
        "nested.bin",
        "schemaless.bin",
        "records.bin",
        "sources.bin",
        "renamed.bin",
        "headers.bin",
        "scalars.bin",
    ] {
        let mut registry = SchemaRegistry::default();
        for (kind, bytes) in items(name) {
            if kind == 1 {
                registry.register(&bytes).expect("valid schema");
                continue;
            }
            for at in 0..bytes.len() {
                assert!(Frame::decode(&bytes[..at], &|id| registry.get(id)).is_err());
                for flip in [1, 0x80, 0xff] {
                    let mut broken = bytes.clone();
                    broken[at] ^= flip;
                    if let Ok(frame) = Frame::decode(&broken, &|id| registry.get(id)) {
                        assert!(!render_frame(&frame).is_empty());
                    }
                }
            }
        }
    }
}

fn compare(name: &str, bytes: &[u8]) {
    let file = directory().join("effects").join(name);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::create_dir_all(directory().join("effects")).expect("directory");
        std::fs::write(&file, bytes).expect("golden file");
    }
    let golden = std::fs::read(&file).expect("golden file");
    assert_eq!(golden, bytes, "{name} changed; see docs/wire-format.md");
}

#[test]
fn effects_are_the_golden_ones() {
    let partition = |partition| TopicPartition::new("größe", partition);
    let rejected = |row, offset, code: &str| Rejected {
        row,
        partition: partition(1),
        offset,
        code: code.to_owned(),
        table: "db.größe".to_owned(),
        column: if row == 3 {
            "v".to_owned()
        } else {
            String::new()
        },
        message: "column `v`: does not fit int".to_owned(),
    };
    let levels = [
        LogLevel::Error,
        LogLevel::Warn,
        LogLevel::Info,
        LogLevel::Debug,
    ];
    let all = Effects {
        durable: vec![(partition(0), 7), (partition(1), i64::MAX)],
        rewinds: vec![(partition(2), 0)],
        pause: true,
        resume: true,
        request_commit: true,
        timeout_ms: Some(1_500),
        rejected: vec![
            rejected(3, 40, "VALUE_OUT_OF_RANGE"),
            rejected(255, 41, "X"),
        ],
        log: levels
            .map(|level| (level, format!("a line of {level:?}")))
            .to_vec(),
        log_dropped: 9,
        messages: vec![b"a message".to_vec(), vec![0, 255]],
        parts: FrameParts {
            keys: true,
            headers: true,
            topics: true,
        },
        error: None,
    };
    compare("all.bin", &all.encode());
    compare("none.bin", &Effects::default().encode());
    let errors = [
        (
            "retriable.bin",
            SinkError::retriable("CATALOG_UNAVAILABLE", "the catalog is away"),
        ),
        (
            "data.bin",
            SinkError::data("VALUE_OUT_OF_RANGE", "does not fit"),
        ),
        (
            "config.bin",
            SinkError::config("TABLE_NOT_FOUND", "create it").with("table", "a.b"),
        ),
        (
            "fatal.bin",
            SinkError::fatal("FENCED", "another task took over"),
        ),
    ];
    for (name, error) in errors {
        let error = Some(ParkedError::from(&error));
        compare(
            name,
            &Effects {
                error,
                ..Effects::default()
            }
            .encode(),
        );
    }
}
