//! Confluent's API.

use std::collections::BTreeSet;

use frazil_core::decode::confluent::SchemaKey;
use frazil_core::decode::registered::RegistrySchema;
use frazil_core::limits::SCHEMA_REFERENCES_MAX;
use frazil_core::{Result, SinkError};
use serde::Deserialize;

use super::client::{self, Client};
use super::unknown;

/// A schema in an answer.
#[derive(Deserialize)]
struct Stored {
    /// Not in answers to a request by id.
    id: Option<u32>,
    schema: String,
    /// Avro when there is none.
    #[serde(rename = "schemaType")]
    kind: Option<String>,
    #[serde(default)]
    references: Vec<Reference>,
}

#[derive(Deserialize, Clone)]
struct Reference {
    name: String,
    subject: String,
    version: i64,
}

pub(super) async fn schema(client: &Client, key: &SchemaKey) -> Result<RegistrySchema> {
    let stored = match key {
        SchemaKey::Id(id) => ask(client, key, &["schemas", "ids", &id.to_string()]).await?,
        SchemaKey::LongId(id) => ask(client, key, &["schemas", "ids", &id.to_string()]).await?,
        SchemaKey::Guid(guid) => {
            let guid = uuid::Uuid::from_bytes(*guid).to_string();
            ask(client, key, &["schemas", "guids", &guid]).await?
        }
        SchemaKey::Subject(subject) => {
            ask(client, key, &["subjects", subject, "versions", "latest"]).await?
        }
        SchemaKey::GlobalId(_) | SchemaKey::ContentId(_) | SchemaKey::Digest(_) => {
            return Err(SinkError::data(
                "REGISTRY_SCHEMA_UNKNOWN",
                "the record names its schema by an id of Apicurio's, which no other registry \
                 knows: name an Apicurio registry in `frazil.schema.registry.url`",
            ));
        }
    };
    let id = match (key, stored.id) {
        (SchemaKey::Subject(_), Some(id)) => SchemaKey::Id(id),
        (SchemaKey::Subject(_), None) => super::apicurio::digest(&stored.schema),
        _ => key.clone(),
    };
    Ok(RegistrySchema {
        id,
        kind: Some(stored.kind.unwrap_or_else(|| "AVRO".to_owned())),
        references: references(client, key, stored.references).await?,
        text: stored.schema,
    })
}

async fn ask(client: &Client, key: &SchemaKey, path: &[&str]) -> Result<Stored> {
    let answer = client.get(path).await?;
    if answer.is_success() {
        return answer.parse("schema");
    }
    match client::is_unknown(&answer) {
        true => Err(unknown(key)),
        false => Err(client::refused(&answer)),
    }
}

/// Fetches what a schema refers to, and what that refers to; those that others use come first.
async fn references(
    client: &Client,
    key: &SchemaKey,
    first: Vec<Reference>,
) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    // Each is met twice: before and after what it refers to.
    let mut steps: Vec<(Reference, Option<String>)> = first
        .into_iter()
        .rev()
        .map(|reference| (reference, None))
        .collect();
    while let Some((reference, text)) = steps.pop() {
        if let Some(text) = text {
            found.push((reference.name, text));
            continue;
        }
        if !seen.insert((reference.subject.clone(), reference.version)) {
            continue;
        }
        if seen.len() > SCHEMA_REFERENCES_MAX {
            let message =
                format!("a schema refers to more than {SCHEMA_REFERENCES_MAX} other schemas");
            return Err(SinkError::data("SCHEMA_TOO_LARGE", message));
        }
        let version = reference.version.to_string();
        let path = ["subjects", &reference.subject, "versions", &version];
        let stored = ask(client, key, &path).await?;
        steps.push((reference, Some(stored.schema)));
        let inner = stored.references.into_iter().rev();
        steps.extend(inner.map(|reference| (reference, None)));
    }
    Ok(found)
}
