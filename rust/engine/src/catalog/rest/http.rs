//! The HTTP client of a REST catalog, made from its properties.

use std::collections::BTreeMap;
use std::time::Duration;

use frazil_core::{Result, SinkError};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

pub(super) use crate::http::{Answer, Http, Request};
use crate::http::{ClientSettings, Service};
use crate::storage::ca_file;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(60);

static CATALOG: Service = Service {
    name: "the catalog",
    unavailable: "CATALOG_UNAVAILABLE",
    answer_invalid: "CATALOG_ANSWER_INVALID",
    answer_too_large: ("CATALOG_ANSWER_TOO_LARGE", "expire snapshots of the table"),
    trust_key: "iceberg.catalog.tls.ca-file",
    address_key: "iceberg.catalog.uri",
    // Metadata of a table with very many snapshots takes some ten megabytes.
    body_bytes_max: 256 << 20,
    retry_budget: Duration::from_secs(60),
};

/// Makes a client from `rest.client.connection-timeout-ms`, `rest.client.socket-timeout-ms` and
/// `tls.ca-file`.
pub(super) fn client(properties: &BTreeMap<String, String>) -> Result<Http> {
    let connect = millis(
        properties,
        "rest.client.connection-timeout-ms",
        CONNECT_TIMEOUT,
    )?;
    let read = millis(properties, "rest.client.socket-timeout-ms", READ_TIMEOUT)?;
    let trusted = match properties.get("tls.ca-file") {
        None => Vec::new(),
        Some(file) => {
            let pem =
                std::fs::read(file).map_err(|error| ca_file("cannot be read").caused_by(error))?;
            reqwest::Certificate::from_pem_bundle(&pem)
                .map_err(|_| ca_file("holds no PEM certificates"))?
        }
    };
    let settings = ClientSettings {
        connect,
        read,
        trusted,
        identity: None,
    };
    Http::new(&CATALOG, settings).map_err(|reason| {
        SinkError::config("CATALOG_PROPERTY_INVALID", "no HTTP client can be made")
            .with("reason", reason)
    })
}

fn millis(properties: &BTreeMap<String, String>, key: &str, default: Duration) -> Result<Duration> {
    match properties.get(key).map(|value| value.trim().parse()) {
        None => Ok(default),
        Some(Ok(millis)) if millis > 0 => Ok(Duration::from_millis(millis)),
        Some(_) => Err(SinkError::config(
            "CATALOG_PROPERTY_INVALID",
            format!("`iceberg.catalog.{key}` must be a number of milliseconds above 0"),
        )),
    }
}

/// The `header.*` properties.
pub(crate) fn user_headers(properties: &BTreeMap<String, String>) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (key, value) in properties {
        let Some(name) = key.strip_prefix("header.") else {
            continue;
        };
        let pair = (name.parse::<HeaderName>(), HeaderValue::from_str(value));
        let (Ok(name), Ok(mut value)) = pair else {
            return Err(SinkError::config(
                "CATALOG_PROPERTY_INVALID",
                format!("`iceberg.catalog.{key}` is no valid HTTP header"),
            ));
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}
