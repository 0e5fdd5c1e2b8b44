//! One HTTP request to a catalog: bounded in time and size, never to another host.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use frazil_core::{ErrorKind, Result, SinkError};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Response, Url, redirect};
use serde::Deserialize;
use tokio::time::Instant;

use crate::redact;
use crate::storage::ca_file;

/// Bytes of one answer. Metadata of a table with very many snapshots takes some ten megabytes.
const BODY_BYTES_MAX: usize = 256 << 20;
/// Redirects of one reading request.
const REDIRECTS_MAX: usize = 3;
/// Tries of one reading request, and the time for all of them.
const TRIES_MAX: u32 = 6;
const RETRY_BUDGET: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The longest wait that a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The whole of one request with its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// A request that can be sent again.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Bytes>,
}

/// A complete answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Bytes,
    retry_after: Option<Duration>,
    location: Option<String>,
}

/// Sends requests.
#[derive(Debug, Clone)]
pub(super) struct Http {
    client: Client,
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether trying the same again may help.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self.status, 408 | 425 | 429 | 500..=599)
    }

    /// Parses the body; the error says what was expected and nothing of what came.
    pub(super) fn parse<'a, T: Deserialize<'a>>(&'a self, what: &str) -> Result<T> {
        serde_json::from_slice(&self.body).map_err(|error| {
            SinkError::retriable(
                "CATALOG_ANSWER_INVALID",
                format!("the catalog's answer is no {what}: check `iceberg.catalog.uri`"),
            )
            .with("line", error.line())
            .with("column", error.column())
        })
    }
}

impl Http {
    /// Makes a client from `rest.client.connection-timeout-ms`, `rest.client.socket-timeout-ms`
    /// and `tls.ca-file`.
    pub(super) fn new(properties: &BTreeMap<String, String>) -> Result<Http> {
        let connect = millis(
            properties,
            "rest.client.connection-timeout-ms",
            CONNECT_TIMEOUT,
        )?;
        let read = millis(properties, "rest.client.socket-timeout-ms", READ_TIMEOUT)?;
        let mut builder = Client::builder()
            .user_agent(concat!("frazil/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(connect)
            .read_timeout(read)
            .timeout(REQUEST_TIMEOUT.max(read))
            .pool_idle_timeout(Duration::from_secs(50))
            // A redirected POST may come back as the answer to a GET, and a token must not
            // travel: `read` follows what may be followed.
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never());
        if let Some(file) = properties.get("tls.ca-file") {
            let pem =
                std::fs::read(file).map_err(|error| ca_file("cannot be read").caused_by(error))?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem)
                .map_err(|_| ca_file("holds no PEM certificates"))?;
            builder = builder.tls_certs_merge(certificates);
        }
        let client = builder.build().map_err(|error| {
            SinkError::config("CATALOG_PROPERTY_INVALID", "no HTTP client can be made")
                .with("reason", text_of(error))
        })?;
        Ok(Http { client })
    }

    /// Sends a request once.
    pub(super) async fn send(&self, request: Request) -> Result<Answer> {
        let host = request.url.host_str().unwrap_or_default().to_string();
        let mut builder = self
            .client
            .request(request.method, request.url)
            .headers(request.headers);
        if let Some(body) = request.body {
            builder = builder.body(body);
        }
        let response = builder
            .send()
            .await
            .map_err(|error| unreachable(&host, error))?;
        let (status, headers) = (response.status().as_u16(), response.headers());
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let retry_after = header("retry-after")
            .and_then(|value| value.trim().parse().ok())
            .map(Duration::from_secs);
        let location = header("location").map(str::to_string);
        let body = body(response, &host).await?;
        Ok(Answer {
            status,
            body,
            retry_after,
            location,
        })
    }

    /// Sends a request that changes nothing: again after transient failures, within a budget, and
    /// after redirects on the same host.
    pub(super) async fn read(&self, mut request: Request) -> Result<Answer> {
        let start = Instant::now();
        let (mut tries, mut redirects, mut pause) = (0, 0, FIRST_PAUSE);
        loop {
            let outcome = self.send(request.clone()).await;
            let is_transient = match &outcome {
                Ok(answer) => {
                    if let Some(url) = same_host_redirect(&request.url, answer)
                        && redirects < REDIRECTS_MAX
                    {
                        redirects += 1;
                        request.url = url;
                        continue;
                    }
                    answer.is_transient()
                }
                Err(error) => error.kind() == ErrorKind::Retriable,
            };
            if !is_transient {
                return outcome;
            }
            tries += 1;
            let asked = outcome.as_ref().ok().and_then(|answer| answer.retry_after);
            let wait = asked.unwrap_or(jittered(pause)).min(RETRY_AFTER_MAX);
            if tries == TRIES_MAX || start.elapsed() + wait > RETRY_BUDGET {
                return outcome;
            }
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

fn same_host_redirect(from: &Url, answer: &Answer) -> Option<Url> {
    if !matches!(answer.status, 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let to = from.join(answer.location.as_deref()?).ok()?;
    (to.origin() == from.origin()).then_some(to)
}

/// Between half of `pause` and all of it, so that many tasks do not come back together.
fn jittered(pause: Duration) -> Duration {
    let random = u32::from(uuid::Uuid::now_v7().as_bytes()[15]);
    pause / 2 + pause / 2 * random / 255
}

async fn body(mut response: Response, host: &str) -> Result<Bytes> {
    let mut body = BytesMut::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| unreachable(host, error))?
    {
        if body.len() + chunk.len() > BODY_BYTES_MAX {
            return Err(SinkError::fatal(
                "CATALOG_ANSWER_TOO_LARGE",
                "the catalog's answer is larger than 256 MiB: expire snapshots of the table",
            ));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// The error of a request without a complete answer.
fn unreachable(host: &str, error: reqwest::Error) -> SinkError {
    let reason = text_of(error);
    let error = if reason.contains("invalid peer certificate") {
        SinkError::config(
            "TLS_UNTRUSTED",
            "the catalog's certificate is not trusted: name its authority in \
             `iceberg.catalog.tls.ca-file`",
        )
    } else {
        SinkError::retriable("CATALOG_UNAVAILABLE", "the catalog did not answer")
    };
    error.with("host", host).with("reason", reason)
}

/// All causes of an error, without the URL.
fn text_of(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    redact::foreign(&text)
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
pub(super) fn user_headers(properties: &BTreeMap<String, String>) -> Result<HeaderMap> {
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
