//! `frazil compat`: tells a producer's build what a new schema would do to the tables, before the
//! first record of it.

mod avro;
mod json;
mod native;
mod protobuf;
mod report;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use frazil_core::wire::SourceSchema;
use frazil_engine::runtime::Runtime;
use frazil_engine::{catalog, compat, preflight};
use regex::Regex;

use crate::settings::read_settings;

/// The key with which Confluent's JSON Schema converter makes properties optional.
const OPTIONAL_KEY: &str = "value.converter.use.optional.for.nonrequired";

struct Arguments {
    schema: String,
    /// The message of a Protobuf file.
    message: Option<String>,
    config: String,
    topic: String,
    /// The tables to compare with, when the topic does not say.
    tables: Vec<String>,
    as_json: bool,
}

/// Runs the command; `true` when no table is blocked.
pub(crate) fn run(arguments: lexopt::Parser) -> Result<bool, String> {
    let arguments = parse(arguments).map_err(|error| error.to_string())?;
    let settings = read_settings(&arguments.config)?;
    check_topic(&settings, &arguments.topic)?;
    let source = Arc::new(read_schema(&arguments, &settings)?);
    let config = preflight::start(&settings).map_err(|error| error.report())?;
    let tables = compat::tables(&config, &arguments.topic, &arguments.tables);
    let tables = tables.map_err(|error| error.report())?;
    let runtime = Runtime::shared().map_err(|error| error.report())?;
    let checked = runtime.handle().block_on(async {
        let catalog = catalog::open(&config.catalog)?;
        compat::check(&tables, &catalog, &source).await
    });
    let tables = checked.map_err(|error| error.report())?;
    match arguments.as_json {
        true => println!("{}", report::json(&tables)),
        false => print!("{}", report::text(&tables)),
    }
    Ok(!tables.iter().any(compat::TableFindings::is_blocked))
}

fn parse(mut parser: lexopt::Parser) -> Result<Arguments, lexopt::Error> {
    use lexopt::prelude::{Long, ValueExt};
    let mut arguments = Arguments {
        schema: String::new(),
        message: None,
        config: String::new(),
        topic: String::new(),
        tables: Vec::new(),
        as_json: false,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("schema") => arguments.schema = parser.value()?.string()?,
            Long("message") => arguments.message = Some(parser.value()?.string()?),
            Long("config") => arguments.config = parser.value()?.string()?,
            Long("topic") => arguments.topic = parser.value()?.string()?,
            Long("subject") => {
                let subject = parser.value()?.string()?;
                arguments.topic = topic_of(&subject)?;
            }
            Long("table") => arguments.tables.push(parser.value()?.string()?),
            Long("json") => arguments.as_json = true,
            _ => return Err(argument.unexpected()),
        }
    }
    if arguments.schema.is_empty() || arguments.config.is_empty() {
        return Err("--schema and --config are needed".into());
    }
    if arguments.topic.is_empty() {
        return Err("--topic or --subject is missing".into());
    }
    Ok(arguments)
}

/// Returns the topic of a subject that is named after it.
fn topic_of(subject: &str) -> Result<String, String> {
    match (subject.strip_suffix("-value"), subject.strip_suffix("-key")) {
        (Some(topic), _) if !topic.is_empty() => Ok(topic.to_owned()),
        (_, Some(_)) => Err(
            "the schema of a key makes no columns: name the subject of the \
                             values, `…-value`"
                .to_owned(),
        ),
        _ => Err("the subject is not named after a topic (`TOPIC-value`): use --topic".to_owned()),
    }
}

/// Fails when the connector does not read `topic`: a check of the wrong connector finds nothing.
fn check_topic(settings: &BTreeMap<String, String>, topic: &str) -> Result<(), String> {
    let mut topics = settings
        .get("topics")
        .into_iter()
        .flat_map(|topics| topics.split(','));
    if topics.any(|listed| listed.trim() == topic) {
        return Ok(());
    }
    if let Some(pattern) = settings.get("topics.regex") {
        let pattern = Regex::new(&format!("^(?:{pattern})$"))
            .map_err(|error| format!("topics.regex: {error}"))?;
        if pattern.is_match(topic) {
            return Ok(());
        }
    }
    Err(format!("the connector does not read topic `{topic}`"))
}

fn read_schema(
    arguments: &Arguments,
    settings: &BTreeMap<String, String>,
) -> Result<SourceSchema, String> {
    let path = &arguments.schema;
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let extension = Path::new(path).extension().and_then(|name| name.to_str());
    if arguments.message.is_some() && extension != Some("proto") {
        return Err("--message names a message of a .proto file".to_owned());
    }
    if let Some(kind) = native::kind(settings) {
        let schema = native::read(kind, Path::new(path), &text, arguments.message.as_deref());
        return schema.map_err(|error| format!("{path}: {error}"));
    }
    let schema = match extension {
        Some("avsc") => avro::parse(&text),
        Some("json") => {
            let optional = settings.get(OPTIONAL_KEY);
            json::parse(&text, optional.is_some_and(|word| word.trim() == "true"))
        }
        Some("proto") => {
            let options = protobuf::Options::of(settings);
            protobuf::parse(Path::new(path), arguments.message.as_deref(), options)
        }
        _ => Err("the name must end in .avsc (Avro), .json (JSON Schema) or .proto".to_owned()),
    };
    schema.map_err(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use frazil_core::schema::semantic::type_name;
    use frazil_core::wire::SourceKind;

    /// Writes a schema in one line.
    pub(super) fn shown(schema: &SourceSchema) -> String {
        let mark = if schema.optional { "?" } else { "" };
        let inside = match schema.kind() {
            SourceKind::Struct => {
                let fields = schema.fields().iter();
                let fields =
                    fields.map(|field| format!("{}: {}", field.name, shown(&field.schema)));
                format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
            }
            SourceKind::Array | SourceKind::Map => {
                let value = schema.value().map(|value| shown(value));
                format!("{}<{}>", schema.kind().name(), value.unwrap_or_default())
            }
            _ => type_name(schema).to_owned(),
        };
        format!("{inside}{mark}")
    }

    #[test]
    fn a_subject_names_its_topic() {
        assert_eq!(topic_of("orders-value").unwrap(), "orders");
        assert_eq!(topic_of("a-b-value").unwrap(), "a-b");
        for subject in ["orders-key", "com.shop.Order", "-value"] {
            assert!(topic_of(subject).is_err(), "{subject}");
        }
    }

    #[test]
    fn a_topic_that_the_connector_does_not_read_is_an_error() {
        let with = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
        assert!(check_topic(&with("topics", "a, orders"), "orders").is_ok());
        assert!(check_topic(&with("topics", "a, orders2"), "orders").is_err());
        assert!(check_topic(&with("topics.regex", "ord.*"), "orders").is_ok());
        assert!(check_topic(&with("topics.regex", "ord"), "orders").is_err());
    }
}
