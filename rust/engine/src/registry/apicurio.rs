//! Apicurio's own API, versions 2 and 3: answers are the schemas themselves.

use frazil_core::decode::confluent::SchemaKey;
use frazil_core::decode::registered::RegistrySchema;
use frazil_core::{Result, SinkError};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::client::{self, Client};
use super::references::{Reference, walk};
use super::unknown;

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "groupId")]
    group: Option<String>,
    #[serde(rename = "artifactId")]
    artifact: String,
    version: Option<String>,
    name: String,
}

/// Identifies a schema by its text, where the answer has no id.
pub(super) fn digest(text: &str) -> SchemaKey {
    SchemaKey::Digest(Sha256::digest(text).into())
}

pub(super) async fn schema(
    client: &Client,
    version: u8,
    key: &SchemaKey,
) -> Result<RegistrySchema> {
    // Serializers of version 2 write global ids, those of version 3 content ids.
    let plain = match version {
        2 => "globalIds",
        _ => "contentIds",
    };
    let path: Vec<String> = match key {
        SchemaKey::Id(id) => ids(plain, id),
        SchemaKey::LongId(id) => ids(plain, id),
        SchemaKey::GlobalId(id) => ids("globalIds", id),
        SchemaKey::ContentId(id) => ids("contentIds", id),
        SchemaKey::Subject(subject) => artifact(version, "default", subject, None),
        SchemaKey::Guid(_) | SchemaKey::Digest(_) => {
            return Err(SinkError::data(
                "REGISTRY_SCHEMA_UNKNOWN",
                "the record names its schema by a GUID of Confluent's, which Apicurio does not know",
            ));
        }
    };
    let text = content(client, key, &path).await?;
    let first = match key {
        // A list of references is of one version, and an artifact's newest has none that is known.
        SchemaKey::Subject(_) => Vec::new(),
        _ => listed(client, version, path).await?,
    };
    let id = match key {
        SchemaKey::Subject(_) => digest(&text),
        _ => key.clone(),
    };
    Ok(RegistrySchema {
        id,
        kind: None,
        references: walk(first, async |path| {
            let text = content(client, key, path).await?;
            Ok((text, listed(client, version, path.clone()).await?))
        })
        .await?,
        text,
    })
}

fn ids(kind: &str, id: impl std::fmt::Display) -> Vec<String> {
    vec!["ids".to_owned(), kind.to_owned(), id.to_string()]
}

/// Where the text of an artifact lies: of `wanted`, else of its newest version.
fn artifact(version: u8, group: &str, artifact: &str, wanted: Option<&str>) -> Vec<String> {
    let mut path = vec!["groups", group, "artifacts", artifact];
    match (version, wanted) {
        (2, None) => {}
        (2, Some(wanted)) => path.extend(["versions", wanted]),
        (_, wanted) => path.extend(["versions", wanted.unwrap_or("branch=latest"), "content"]),
    }
    path.into_iter().map(str::to_owned).collect()
}

async fn content(client: &Client, key: &SchemaKey, path: &[String]) -> Result<String> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let answer = client.get(&path).await?;
    if !answer.is_success() {
        return Err(match client::is_unknown(&answer) {
            true => unknown(key),
            false => client::refused(&answer),
        });
    }
    String::from_utf8(answer.body.to_vec()).map_err(|_| {
        SinkError::retriable(
            "REGISTRY_ANSWER_INVALID",
            "the schema registry's answer is no text: check `frazil.schema.registry.url`",
        )
    })
}

/// Returns what the schema at `path` refers to.
async fn listed(
    client: &Client,
    version: u8,
    mut path: Vec<String>,
) -> Result<Vec<Reference<Vec<String>>>> {
    if path.last().is_some_and(|last| last == "content") {
        path.pop();
    }
    path.push("references".to_owned());
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let answer = client.get(&path).await?;
    match answer.status {
        // Registries before 2.3 have no references.
        404 => Ok(Vec::new()),
        _ if answer.is_success() => {
            let listed: Vec<Named> = answer.parse("list of references")?;
            let place = |named: Named| Reference {
                place: artifact(
                    version,
                    named.group.as_deref().unwrap_or("default"),
                    &named.artifact,
                    named.version.as_deref(),
                ),
                name: named.name,
            };
            Ok(listed.into_iter().map(place).collect())
        }
        _ => Err(client::refused(&answer)),
    }
}
