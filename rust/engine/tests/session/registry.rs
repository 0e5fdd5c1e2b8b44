//! Records that name a schema in a registry. The registry here is a stand-in on loopback that
//! answers as Confluent's does, can be taken down and learns schemas.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use frazil_core::ErrorKind;
use frazil_core::wire::effects::ValidationLevel;
use frazil_core::wire::testing::{FrameBuilder, Row, Value, decode_validation};
use frazil_core::wire::{SourceKind, SourceSchema};

use crate::bed::{Bed, TOPIC, Task};

const BYTES: &str = "org.apache.kafka.connect.converters.ByteArrayConverter";
const ONE: &str = r#"{"type":"record","name":"Order","fields":[{"name":"id","type":"long"},
    {"name":"note","type":["null","string"]}]}"#;
/// The same with one field more, in front.
const TWO: &str = r#"{"type":"record","name":"Order","fields":[
    {"name":"extra","type":["null","int"]},{"name":"id","type":"long"},
    {"name":"note","type":["null","string"]}]}"#;

#[derive(Default)]
struct State {
    answers: Mutex<BTreeMap<String, String>>,
    is_down: AtomicBool,
    refuses: AtomicBool,
    requests: AtomicUsize,
}

struct Registry {
    url: String,
    state: Arc<State>,
}

impl Registry {
    fn start() -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &shared);
            }
        });
        let registry = Registry { url, state };
        registry.set("/schemas/types", "[\"AVRO\"]".to_owned());
        registry
    }

    fn set(&self, path: &str, body: String) {
        let mut answers = self.state.answers.lock().expect("not poisoned");
        answers.insert(path.to_owned(), body);
    }

    fn add(&self, id: u32, kind: &str, schema: &str) {
        let body = serde_json::json!({"schema": schema, "schemaType": kind}).to_string();
        self.set(&format!("/schemas/ids/{id}"), body);
    }

    fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }
}

fn answer(mut stream: TcpStream, state: &State) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(byte[0]);
    }
    if state.is_down.load(Ordering::SeqCst) {
        return;
    }
    state.requests.fetch_add(1, Ordering::SeqCst);
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let found = state
        .answers
        .lock()
        .expect("not poisoned")
        .get(path)
        .cloned();
    let (status, body) = match (state.refuses.load(Ordering::SeqCst), found) {
        (true, _) => (
            401,
            r#"{"error_code":401,"message":"Unauthorized"}"#.to_owned(),
        ),
        (false, Some(body)) => (200, body),
        (false, None) => (
            404,
            r#"{"error_code":40403,"message":"Schema not found"}"#.to_owned(),
        ),
    };
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    // A client that is gone reads nothing, which does not matter here.
    drop(stream.write_all(text.as_bytes()));
}

fn bed(registry: &Registry, format: &str) -> Bed {
    Bed::new("db.orders")
        .with("errors.tolerance", "all")
        .with("errors.deadletterqueue.topic.name", "dead")
        .with("iceberg.tables.evolve-schema-enabled", "true")
        .with("value.converter", BYTES)
        .with("frazil.value.format", format)
        .with("frazil.schema.registry.url", &registry.url)
}

fn frame(task: &Task, first: i64, values: &[Vec<u8>]) -> FrameBuilder {
    let schema = SourceSchema::scalar(SourceKind::Bytes).optional();
    let id = task.session.register_schema(&schema.to_bytes());
    let rows = values.iter().zip(first..);
    FrameBuilder::with_value_schema(id.expect("registered"), schema)
        .with_headers()
        .rows(
            rows.map(|(bytes, offset)| {
                Row::new(TOPIC, 0, offset).value(Value::Bytes(bytes.clone()))
            }),
        )
}

fn zigzag(value: i64) -> u8 {
    u8::try_from(value * 2).expect("a small number")
}

/// A record of the schema `ONE`, framed with `id`.
fn one(id: u8, order: i64) -> Vec<u8> {
    vec![0, 0, 0, 0, id, zigzag(order), 2, 4, b'h', b'i']
}

/// A record of the schema `TWO`.
fn two(id: u8, order: i64) -> Vec<u8> {
    vec![0, 0, 0, 0, id, 2, 10, zigzag(order), 0]
}

fn rejected(effects: &frazil_core::wire::Effects) -> Vec<(u32, i64, String)> {
    let rejected = effects.rejected.iter();
    let rejected = rejected.map(|it| (it.row, it.offset, it.code.clone()));
    rejected.collect()
}

// Promise: Avro with Confluent's framing lands natively; writer schemas may change inside of a batch, and bytes that are not Avro are set aside alone.
#[test]
fn avro_of_several_schemas_lands_in_one_batch() {
    let registry = Registry::start();
    registry.add(1, "AVRO", ONE);
    registry.add(2, "AVRO", TWO);
    let bed = bed(&registry, "avro");
    let task = bed.task();
    task.tick();
    let values = [
        one(1, 0),
        two(2, 1),
        one(1, 2),
        b"no frame".to_vec(),
        one(9, 4),
        vec![0, 0, 0, 0, 1, 10],
        two(2, 6),
    ];
    let effects = task.try_put(&frame(&task, 0, &values)).expect("taken");
    let expected = [
        (3, 3, "DECODE_MALFORMED"),
        (4, 4, "REGISTRY_SCHEMA_UNKNOWN"),
        (5, 5, "DECODE_MALFORMED"),
    ];
    let expected = expected.map(|(row, offset, code)| (row, offset, code.to_owned()));
    assert_eq!(rejected(&effects), expected);
    task.until_durable(7);
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 6]);
    let notes: Vec<_> = bed
        .texts("db.orders", "note")
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(notes, ["hi", "hi"]);
    assert!(
        bed.load("db.orders")
            .metadata
            .current_schema()
            .field_by_name("extra")
            .is_some()
    );
    // Two schemas and one that is not known were asked for; they are not asked for again.
    let asked = registry.requests();
    task.tick();
    task.try_put(&frame(&task, 7, &[one(1, 7), one(9, 8)]))
        .expect("taken");
    assert_eq!(registry.requests(), asked);
}

// Promise: While the schema registry is away a batch is not taken: nothing is lost, nothing is reported, and it lands when the registry is back.
#[test]
fn an_outage_of_the_registry_loses_nothing() {
    let registry = Registry::start();
    registry.add(1, "AVRO", ONE);
    registry.add(2, "AVRO", TWO);
    let bed = bed(&registry, "avro");
    let task = bed.task();
    task.tick();
    task.try_put(&frame(&task, 0, &[one(1, 0)])).expect("taken");
    registry.state.is_down.store(true, Ordering::SeqCst);
    // A schema that is known needs no registry.
    task.tick();
    task.try_put(&frame(&task, 1, &[one(1, 1)])).expect("taken");
    task.tick();
    let values = [one(1, 2), two(2, 3)];
    let error = task
        .try_put(&frame(&task, 2, &values))
        .expect_err("no registry");
    assert_eq!(
        (error.code(), error.kind()),
        ("REGISTRY_UNAVAILABLE", ErrorKind::Retriable)
    );
    registry.state.is_down.store(false, Ordering::SeqCst);
    task.tick();
    let effects = task.try_put(&frame(&task, 2, &values)).expect("taken");
    assert_eq!(rejected(&effects), []);
    task.until_durable(4);
    assert_eq!(bed.ids("db.orders"), [0, 1, 2, 3]);
}

// Promise: Avro whose schema id is in a header of Apicurio's lands, also when its bytes begin with 0.
#[test]
fn an_id_in_a_header_is_told_from_a_frame() {
    let registry = Registry::start();
    registry.set("/apis/registry/v2/ids/globalIds/3", ONE.to_owned());
    registry.set("/apis/registry/v2/system/info", "{}".to_owned());
    let apicurio = format!("{}/apis/registry/v2", registry.url);
    let bed = bed(&registry, "avro").with("frazil.schema.registry.url", &apicurio);
    let task = bed.task();
    task.tick();
    let schema = SourceSchema::scalar(SourceKind::Bytes).optional();
    let id = task
        .session
        .register_schema(&schema.to_bytes())
        .expect("registered");
    let row = |offset, bytes: Vec<u8>, header: Value| {
        Row::new(TOPIC, 0, offset)
            .value(Value::Bytes(bytes))
            .header("apicurio.value.globalId", header)
    };
    let global = || Value::Bytes(3_i64.to_be_bytes().to_vec());
    let text = Value::text("\0\0\0\0\0\0\0\u{3}");
    let frame = FrameBuilder::with_value_schema(id, schema)
        .with_headers()
        .rows([
            row(0, vec![0, 0], global()),
            row(1, vec![2, 0], text),
            row(2, vec![4, 0], Value::text("short")),
            Row::new(TOPIC, 0, 3).value(Value::Bytes(vec![0, 0, 0, 0, 3, 6, 0])),
        ]);
    let effects = task.try_put(&frame).expect("taken");
    assert_eq!(rejected(&effects), [(2, 2, "DECODE_MALFORMED".to_owned())]);
    task.until_durable(4);
    assert_eq!(bed.ids("db.orders"), [0, 1, 3]);
}

#[test]
fn records_without_an_id_have_the_newest_schema_of_their_subject() {
    let registry = Registry::start();
    let latest = |id: u32, schema: &str| {
        let body = serde_json::json!({"subject": "s", "version": id, "id": id, "schema": schema});
        registry.set(
            &format!("/subjects/{TOPIC}-value/versions/latest"),
            body.to_string(),
        );
    };
    latest(1, ONE);
    let bed = bed(&registry, "avro")
        .with("frazil.value.schema.id", "latest")
        .with("frazil.schema.registry.latest.cache.ttl.sec", "1");
    let task = bed.task();
    task.tick();
    task.try_put(&frame(&task, 0, &[vec![0, 0], vec![2, 0]]))
        .expect("taken");
    latest(2, TWO);
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    task.tick();
    task.try_put(&frame(&task, 2, &[vec![2, 10, 4, 0]]))
        .expect("taken");
    task.until_durable(3);
    assert_eq!(bed.ids("db.orders"), [0, 1, 2]);
}

// Promise: Protobuf with Confluent's framing and message indexes lands natively.
#[test]
fn protobuf_lands_by_its_message_indexes() {
    let registry = Registry::start();
    registry.add(
        5,
        "PROTOBUF",
        r#"syntax = "proto3"; message Other { string s = 1; }
           message Order { int64 id = 1; string note = 2; }"#,
    );
    registry.add(1, "AVRO", ONE);
    let bed = bed(&registry, "protobuf").with("frazil.value.schema.id", "frame");
    let task = bed.task();
    task.tick();
    let values = [
        // The second message of the file: one index, 1.
        vec![0, 0, 0, 0, 5, 2, 2, 0x08, 0x00, 0x12, 0x01, b'a'],
        vec![0, 0, 0, 0, 5, 2, 2, 0x08, 0x07],
        // An index too far.
        vec![0, 0, 0, 0, 5, 2, 8, 0x08, 0x07],
        one(1, 3),
    ];
    let effects = task.try_put(&frame(&task, 0, &values)).expect("taken");
    let expected = [(2, 2, "SCHEMA_INVALID"), (3, 3, "DECODE_SCHEMA_MISMATCH")];
    let expected = expected.map(|(row, offset, code)| (row, offset, code.to_owned()));
    assert_eq!(rejected(&effects), expected);
    task.until_durable(4);
    assert_eq!(bed.ids("db.orders"), [0, 7]);
    let notes: BTreeSet<_> = bed
        .texts("db.orders", "note")
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(notes, BTreeSet::from(["a".to_owned(), String::new()]));
}

// Promise: JSON with Confluent's framing lands by its JSON Schema.
#[test]
fn json_lands_by_its_json_schema() {
    let registry = Registry::start();
    let schema = r#"{"type":"object","required":["id"],"properties":{
        "id":{"type":"integer"},"note":{"type":"string"}}}"#;
    registry.add(4, "JSON", schema);
    let bed = bed(&registry, "json-schema");
    let task = bed.task();
    task.tick();
    let framed = |text: &str| [&[0, 0, 0, 0, 4], text.as_bytes()].concat();
    let values = [
        framed(r#"{"id":0,"note":"n"}"#),
        framed(r#"{"note":"n"}"#),
        framed(r#"{"id":2}"#),
        framed(r#"{"id":"#),
    ];
    let effects = task.try_put(&frame(&task, 0, &values)).expect("taken");
    let expected = [(1, 1, "DECODE_NULL"), (3, 3, "JSON_MALFORMED")];
    let expected = expected.map(|(row, offset, code)| (row, offset, code.to_owned()));
    assert_eq!(rejected(&effects), expected);
    assert!(
        effects.rejected[1].message.contains("byte="),
        "{:?}",
        effects.rejected[1]
    );
    task.until_durable(4);
    assert_eq!(bed.ids("db.orders"), [0, 2]);
}

// Promise: Keys are decoded by their own format and schema.
#[test]
fn keys_have_a_format_of_their_own() {
    let registry = Registry::start();
    registry.add(1, "AVRO", ONE);
    registry.add(2, "AVRO", r#""string""#);
    let bed = bed(&registry, "avro")
        .with("key.converter", BYTES)
        .with("frazil.key.format", "avro")
        .with("iceberg.tables.metadata-columns", "_key");
    let task = bed.task();
    task.tick();
    let schema = SourceSchema::scalar(SourceKind::Bytes).optional();
    let id = task
        .session
        .register_schema(&schema.to_bytes())
        .expect("registered");
    let row = |offset, key: &[u8], order| {
        Row::new(TOPIC, 0, offset)
            .key(Value::Bytes(key.to_vec()))
            .value(Value::Bytes(one(1, order)))
    };
    let frame = FrameBuilder::with_value_schema(id, schema.clone())
        .key_schema(id, schema)
        .with_headers()
        .rows([row(0, &[0, 0, 0, 0, 2, 2, b'k'], 0), row(1, &[9], 1)]);
    let effects = task.try_put(&frame).expect("taken");
    assert_eq!(rejected(&effects), [(1, 1, "DECODE_MALFORMED".to_owned())]);
    task.until_durable(2);
    assert_eq!(bed.texts("db.orders", "_key"), [Some("k".to_owned())]);
}

#[test]
fn validate_asks_the_registry_and_names_the_key() {
    let registry = Registry::start();
    let problems = |bed: &Bed| {
        let problems = decode_validation(&bed.validate()).expect("it follows the format");
        let errors = problems
            .into_iter()
            .filter(|(_, level, _)| *level == ValidationLevel::Error);
        errors.map(|(key, ..)| key).collect::<Vec<_>>()
    };
    let bed = bed(&registry, "avro").with("frazil.schema.registry.bearer.auth.token", "t0ken");
    assert_eq!(problems(&bed), Vec::<String>::new());
    registry.state.refuses.store(true, Ordering::SeqCst);
    assert_eq!(problems(&bed), ["frazil.schema.registry.bearer.auth.token"]);
    registry.state.is_down.store(true, Ordering::SeqCst);
    assert_eq!(problems(&bed), ["frazil.schema.registry.url"]);
}
