//! Confluent's API.

use frazil_core::decode::confluent::SchemaKey;
use frazil_core::decode::registered::RegistrySchema;
use frazil_core::{Result, SinkError};
use serde::Deserialize;

use super::client::{self, Client};
use super::references::{Reference, walk};
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
    references: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
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
        references: walk(places(stored.references), async |(subject, version)| {
            let version = version.to_string();
            let path = ["subjects", subject, "versions", &version];
            let stored = ask(client, key, &path).await?;
            Ok((stored.schema, places(stored.references)))
        })
        .await?,
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

/// Returns where references lead: subjects and their versions.
fn places(references: Vec<Named>) -> Vec<Reference<(String, i64)>> {
    let place = |named: Named| Reference {
        name: named.name,
        place: (named.subject, named.version),
    };
    references.into_iter().map(place).collect()
}
