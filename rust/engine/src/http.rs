//! One HTTP request to a catalog or schema registry: bounded in time and size, never to another host.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use frazil_core::{ErrorKind, Result, SinkError};
use reqwest::header::HeaderMap;
use reqwest::{Certificate, Client, Identity, Method, Response, Url, redirect};
use serde::Deserialize;
use tokio::time::Instant;

use crate::redact;

/// Redirects of one reading request.
const REDIRECTS_MAX: usize = 3;
/// Tries of one reading request.
const TRIES_MAX: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The longest wait that a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

/// The whole of one request with its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// What requests go to: how errors call it, and how long it may take.
#[derive(Debug)]
pub(crate) struct Service {
    /// Such as `the catalog`.
    pub(crate) name: &'static str,
    /// The code of a server that does not answer.
    pub(crate) unavailable: &'static str,
    /// The code of an answer that is no JSON of the expected form.
    pub(crate) answer_invalid: &'static str,
    /// The code of an answer that is too large, and what to do about it.
    pub(crate) answer_too_large: (&'static str, &'static str),
    /// The key of the certificates that are trusted.
    pub(crate) trust_key: &'static str,
    /// The key of the server's address.
    pub(crate) address_key: &'static str,
    /// Bytes of one answer.
    pub(crate) body_bytes_max: usize,
    /// The time for all tries of one reading request.
    pub(crate) retry_budget: Duration,
}

/// How a client is made.
#[derive(Debug)]
pub(crate) struct ClientSettings {
    pub(crate) connect: Duration,
    pub(crate) read: Duration,
    /// Trusted beside those of the machine.
    pub(crate) trusted: Vec<Certificate>,
    /// Who the client is, for a server that asks.
    pub(crate) identity: Option<Identity>,
}

/// A request that can be sent again.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Bytes>,
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
    service: &'static Service,
    retry_after: Option<Duration>,
    location: Option<String>,
}

/// Sends requests.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: Client,
    service: &'static Service,
}

impl Answer {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether trying the same again may help.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.status, 408 | 425 | 429 | 500..=599)
    }

    /// Parses the body; the error says what was expected and nothing of what came.
    pub(crate) fn parse<'a, T: Deserialize<'a>>(&'a self, what: &str) -> Result<T> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let Service {
                name, address_key, ..
            } = self.service;
            SinkError::retriable(
                self.service.answer_invalid,
                format!("{name}'s answer is no {what}: check `{address_key}`"),
            )
            .with("line", error.line())
            .with("column", error.column())
        })
    }
}

impl Http {
    /// Makes a client.
    pub(crate) fn new(
        service: &'static Service,
        settings: ClientSettings,
    ) -> std::result::Result<Http, String> {
        let mut builder = Client::builder()
            .user_agent(concat!("frazil/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(settings.connect)
            .read_timeout(settings.read)
            .timeout(REQUEST_TIMEOUT.max(settings.read))
            .pool_idle_timeout(Duration::from_secs(50))
            // A redirected POST may come back as the answer to a GET, and a token must not
            // travel: `read` follows what may be followed.
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never());
        if !settings.trusted.is_empty() {
            builder = builder.tls_certs_merge(settings.trusted);
        }
        if let Some(identity) = settings.identity {
            builder = builder.identity(identity);
        }
        let client = builder.build().map_err(text_of)?;
        Ok(Http { client, service })
    }

    /// Sends a request once.
    pub(crate) async fn send(&self, request: Request) -> Result<Answer> {
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
            .map_err(|error| self.unreachable(&host, error))?;
        let (status, headers) = (response.status().as_u16(), response.headers());
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let retry_after = header("retry-after")
            .and_then(|value| value.trim().parse().ok())
            .map(Duration::from_secs);
        let location = header("location").map(str::to_string);
        let body = self.body(response, &host).await?;
        Ok(Answer {
            status,
            body,
            service: self.service,
            retry_after,
            location,
        })
    }

    /// Sends a request that changes nothing: again after transient failures, within a budget, and
    /// after redirects on the same host.
    pub(crate) async fn read(&self, mut request: Request) -> Result<Answer> {
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
            if tries == TRIES_MAX || start.elapsed() + wait > self.service.retry_budget {
                return outcome;
            }
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn body(&self, mut response: Response, host: &str) -> Result<Bytes> {
        let mut body = BytesMut::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.unreachable(host, error))?
        {
            if body.len() + chunk.len() > self.service.body_bytes_max {
                let (code, remedy) = self.service.answer_too_large;
                let message = format!(
                    "{}'s answer is larger than {} MiB: {remedy}",
                    self.service.name,
                    self.service.body_bytes_max >> 20
                );
                return Err(SinkError::fatal(code, message));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    /// The error of a request without a complete answer.
    fn unreachable(&self, host: &str, error: reqwest::Error) -> SinkError {
        let reason = text_of(error);
        let Service {
            name, trust_key, ..
        } = self.service;
        let error = if reason.contains("invalid peer certificate") {
            let message =
                format!("{name}'s certificate is not trusted: name its authority in `{trust_key}`");
            SinkError::config("TLS_UNTRUSTED", message)
        } else {
            SinkError::retriable(self.service.unavailable, format!("{name} did not answer"))
        };
        error.with("host", host).with("reason", reason)
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
