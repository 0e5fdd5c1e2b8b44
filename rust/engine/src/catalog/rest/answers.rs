//! What a REST catalog's answers mean.

use std::collections::BTreeMap;

use frazil_core::SinkError;
use iceberg::TableIdent;
use serde::Deserialize;
use serde_json::Value;

use super::http::Answer;
use crate::catalog::CommitOutcome;
use crate::redact;

/// The answer to loading, making and changing a table. Metadata stays JSON until it is known
/// whether the crate can read it.
#[derive(Deserialize)]
pub(super) struct TableAnswer {
    #[serde(rename = "metadata-location")]
    pub(super) metadata_location: Option<String>,
    pub(super) metadata: Value,
    #[serde(default)]
    pub(super) config: Option<BTreeMap<String, String>>,
    #[serde(default, rename = "storage-credentials")]
    pub(super) storage_credentials: Option<Vec<StorageCredential>>,
}

/// Keys for one prefix.
#[derive(Deserialize)]
pub(super) struct StorageCredential {
    pub(super) prefix: String,
    pub(super) config: BTreeMap<String, String>,
}

/// The answer of the credentials endpoint.
#[derive(Deserialize)]
pub(super) struct CredentialsAnswer {
    #[serde(rename = "storage-credentials")]
    pub(super) storage_credentials: Vec<StorageCredential>,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error: ErrorBody,
}

#[derive(Deserialize)]
struct ErrorBody {
    #[serde(default)]
    message: String,
    #[serde(default, rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct TokenError {
    error: String,
}

/// Turns an answer that is no success into an error. Of the body only the error's type and
/// message are shown, redacted.
pub(super) fn error(answer: &Answer) -> SinkError {
    let body: Option<ErrorBody> = serde_json::from_slice::<ErrorAnswer>(&answer.body)
        .ok()
        .map(|answer| answer.error);
    let kind = body.as_ref().map_or("", |body| body.kind.as_str());
    let error = match answer.status {
        401 | 419 => SinkError::config(
            "CATALOG_UNAUTHORIZED",
            "the catalog does not know us: check `iceberg.catalog.credential` or \
             `iceberg.catalog.token`",
        ),
        403 => SinkError::fatal(
            "CATALOG_FORBIDDEN",
            "the catalog forbids this: grant the connector's identity the right",
        ),
        404 if kind.contains("NoSuchNamespace") => SinkError::config(
            "NAMESPACE_NOT_FOUND",
            "the namespace does not exist: create it",
        ),
        404 if kind.contains("NoSuchTable") => SinkError::config(
            "TABLE_NOT_FOUND",
            "the table does not exist: create it, or set `iceberg.tables.auto-create-enabled=true`",
        ),
        409 => SinkError::retriable("CATALOG_CONFLICT", "the catalog sees a conflict"),
        300..=399 => SinkError::config(
            "CATALOG_REDIRECT",
            "the catalog redirects to another address: set `iceberg.catalog.uri` to that",
        ),
        _ if answer.is_transient() => {
            SinkError::retriable("CATALOG_UNAVAILABLE", "the catalog cannot answer now")
        }
        _ => SinkError::fatal("CATALOG_REFUSED", "the catalog refuses the request"),
    };
    let error = error.with("status", answer.status);
    match body {
        Some(body) => error
            .with("type", redact::foreign(&body.kind))
            .with("catalog_says", redact::foreign(&body.message)),
        None => error,
    }
}

/// The error of a token server; its body may repeat what was sent, so only the code is shown.
pub(super) fn token_refused(answer: &Answer) -> SinkError {
    if answer.is_transient() {
        return error(answer);
    }
    let code = serde_json::from_slice::<TokenError>(&answer.body)
        .map_or_else(|_| String::new(), |body| redact::foreign(&body.error));
    SinkError::config(
        "CATALOG_UNAUTHORIZED",
        "no token was given for `iceberg.catalog.credential`: check it, \
         `iceberg.catalog.oauth2-server-uri` and `iceberg.catalog.scope`",
    )
    .with("status", answer.status)
    .with("error", code)
}

/// What an answer to a commit that is no success says about the commit.
pub(super) fn commit_outcome(ident: &TableIdent, answer: &Answer) -> CommitOutcome {
    let error = error(answer).with("table", ident);
    let coded = |code: &'static str, message: &str| {
        let coded = SinkError::retriable(code, message);
        error
            .context()
            .iter()
            .fold(coded, |coded, (name, value)| coded.with(name, value))
    };
    match answer.status {
        401 | 403 | 419 => CommitOutcome::Unauthorized(error),
        409 => CommitOutcome::Conflict(coded("COMMIT_CONFLICT", "the table has changed meanwhile")),
        // A success without the table, and every failure that may have come after the change.
        200..=299 => CommitOutcome::Unknown(coded(
            "COMMIT_UNKNOWN",
            "the catalog's answer to a commit is incomplete",
        )),
        _ if answer.is_transient() => {
            CommitOutcome::Unknown(coded("COMMIT_UNKNOWN", "the catalog failed in a commit"))
        }
        _ => CommitOutcome::Refused(error),
    }
}
