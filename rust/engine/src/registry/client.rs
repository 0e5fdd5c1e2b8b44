//! Requests to one of the registry's addresses, and what its refusals mean.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frazil_core::config::RegistryConfig;
use frazil_core::{ErrorKind, Result, SinkError};
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Certificate, Identity, Method, Url};
use serde::Deserialize;

use crate::http::{Answer, ClientSettings, Http, Request, Service};
use crate::redact;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const READ_TIMEOUT: Duration = Duration::from_secs(10);

static REGISTRY: Service = Service {
    name: "the schema registry",
    unavailable: "REGISTRY_UNAVAILABLE",
    answer_invalid: "REGISTRY_ANSWER_INVALID",
    answer_too_large: (
        "REGISTRY_ANSWER_TOO_LARGE",
        "check `frazil.schema.registry.url`",
    ),
    trust_key: "frazil.schema.registry.ssl.truststore.location",
    address_key: "frazil.schema.registry.url",
    body_bytes_max: 16 << 20,
    // A put waits on it: Connect delivers the batch again after that.
    retry_budget: Duration::from_secs(10),
};

#[derive(Clone)]
pub(super) struct Client {
    http: Http,
    bases: Vec<Url>,
    headers: HeaderMap,
}

/// The headers hold secrets.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self
            .bases
            .iter()
            .map(|base| base.host_str().unwrap_or_default());
        f.debug_list().entries(hosts).finish()
    }
}

/// What registries say beside a status.
#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    error_code: i64,
    #[serde(default)]
    message: String,
    #[serde(default)]
    name: String,
}

impl Client {
    pub(super) fn new(config: &RegistryConfig) -> Result<Client> {
        let bases = config.urls.iter().map(|url| base(url));
        let settings = ClientSettings {
            connect: CONNECT_TIMEOUT,
            read: READ_TIMEOUT,
            trusted: match &config.truststore {
                None => Vec::new(),
                Some(file) => Certificate::from_pem_bundle(&pem(file, "truststore")?)
                    .ok()
                    .filter(|certificates| !certificates.is_empty())
                    .ok_or_else(|| tls_file("truststore", "holds no PEM certificates"))?,
            },
            identity: match &config.keystore {
                None => None,
                Some(file) => Some(Identity::from_pem(&pem(file, "keystore")?).map_err(|_| {
                    tls_file(
                        "keystore",
                        "holds no PEM certificate with an unencrypted private key",
                    )
                })?),
            },
        };
        let http = Http::new(&REGISTRY, settings)
            .map_err(|reason| invalid("no HTTP client can be made").with("reason", reason))?;
        Ok(Client {
            http,
            bases: bases.collect::<Result<_>>()?,
            headers: headers(config)?,
        })
    }

    /// Returns the client of Apicurio's own API beside the compatible one.
    pub(super) fn sibling(&self) -> Result<Client> {
        let own = |base: &Url| {
            let mut url = base.clone();
            let path = base.path();
            let (root, _) = path.split_once("/apis/ccompat/").unwrap_or((path, ""));
            url.set_path(&format!("{root}/apis/registry/v2/"));
            url
        };
        let mut client = self.clone();
        client.bases = self.bases.iter().map(own).collect();
        Ok(client)
    }

    /// Asks for what lies at `path`, at one address after the other until one answers.
    pub(super) async fn get(&self, path: &[&str]) -> Result<Answer> {
        let mut outcome = Err(invalid("`frazil.schema.registry.url` names no address"));
        for base in &self.bases {
            let request = Request {
                method: Method::GET,
                url: at(base, path)?,
                headers: self.headers.clone(),
                body: None,
            };
            outcome = self.http.read(request).await;
            match &outcome {
                Ok(answer) if answer.is_transient() => {}
                Err(error) if error.kind() == ErrorKind::Retriable => {}
                _ => return outcome,
            }
        }
        outcome
    }
}

/// Tells whether a registry answered that it has no such schema: not merely that there is no such
/// page, which is what a wrong address answers.
pub(super) fn is_unknown(answer: &Answer) -> bool {
    let refusal = refusal(answer);
    answer.status == 404
        && refusal.is_some_and(|refusal| {
            (40_400..40_500).contains(&refusal.error_code)
                || refusal.name.ends_with("NotFoundException")
        })
}

/// Returns the error of an answer that is no success.
pub(super) fn refused(answer: &Answer) -> SinkError {
    let error = match answer.status {
        401 => SinkError::config(
            "REGISTRY_UNAUTHORIZED",
            "the schema registry does not know who we are: check \
             `frazil.schema.registry.basic.auth.user.info` or \
             `frazil.schema.registry.bearer.auth.token`",
        ),
        403 => SinkError::config(
            "REGISTRY_FORBIDDEN",
            "the schema registry refuses us: grant the login of \
             `frazil.schema.registry.basic.auth.user.info` or \
             `frazil.schema.registry.bearer.auth.token` the right to read",
        ),
        404 => SinkError::retriable(
            "REGISTRY_ANSWER_INVALID",
            "there is no schema registry at the address: check `frazil.schema.registry.url`",
        ),
        _ if answer.is_transient() => SinkError::retriable(
            "REGISTRY_UNAVAILABLE",
            "the schema registry cannot answer at the moment",
        ),
        _ => SinkError::retriable(
            "REGISTRY_ANSWER_INVALID",
            "the schema registry refuses the request: check `frazil.schema.registry.url`",
        ),
    };
    let error = error.with("status", answer.status);
    match refusal(answer).filter(|refusal| !refusal.message.is_empty()) {
        Some(refusal) => error.with("reason", redact::foreign(&refusal.message)),
        None => error,
    }
}

fn refusal(answer: &Answer) -> Option<Refusal> {
    serde_json::from_slice(&answer.body).ok()
}

fn base(url: &str) -> Result<Url> {
    let mut url =
        Url::parse(url).map_err(|_| invalid("`frazil.schema.registry.url` is no address"))?;
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}

fn at(base: &Url, path: &[&str]) -> Result<Url> {
    let mut url = base.clone();
    url.path_segments_mut()
        .map_err(|()| invalid("`frazil.schema.registry.url` is no address"))?
        .pop_if_empty()
        .extend(path);
    Ok(url)
}

fn headers(config: &RegistryConfig) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    let accept = "application/vnd.schemaregistry.v1+json, application/json, */*";
    headers.insert(ACCEPT, HeaderValue::from_static(accept));
    let authorization = match (&config.user_info, &config.token) {
        (Some(info), _) => format!("Basic {}", STANDARD.encode(info)),
        (None, Some(token)) => format!("Bearer {}", token.trim()),
        (None, None) => return Ok(headers),
    };
    let mut value = HeaderValue::from_str(&authorization).map_err(|_| {
        invalid("`frazil.schema.registry.bearer.auth.token` has characters that no header takes")
    })?;
    value.set_sensitive(true);
    headers.insert(AUTHORIZATION, value);
    Ok(headers)
}

fn pem(file: &str, store: &str) -> Result<Vec<u8>> {
    let bytes =
        std::fs::read(file).map_err(|error| tls_file(store, "cannot be read").caused_by(error))?;
    // Java's own formats begin so.
    match bytes.first() {
        Some(0xfe | 0x30) => Err(tls_file(
            store,
            "is a JKS or PKCS12 store; export it as PEM (`keytool -exportcert -rfc`, `openssl pkcs12`)",
        )),
        _ => Ok(bytes),
    }
}

fn tls_file(store: &str, fault: &str) -> SinkError {
    SinkError::config(
        "REGISTRY_TLS_FILE",
        format!("the file that `frazil.schema.registry.ssl.{store}.location` names {fault}"),
    )
}

fn invalid(message: &str) -> SinkError {
    SinkError::config("REGISTRY_PROPERTY_INVALID", message)
}
