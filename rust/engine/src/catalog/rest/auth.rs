//! How a REST catalog knows us: not at all, by a token, or by OAuth2 client credentials.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use frazil_core::{Result, SinkError};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use serde::Deserialize;

use super::answers;
use super::http::{Http, Request};
use super::renew::{Fresh, Renewing};

/// Tokens are renewed this long before they end, but no more than a tenth of their life.
const MARGIN: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(super) enum Auth {
    None,
    Token(HeaderValue),
    OAuth2(OAuth2),
}

/// OAuth2 client credentials.
pub(super) struct OAuth2 {
    server: Url,
    /// The encoded form, with the secret.
    form: Bytes,
    token: Renewing<HeaderValue>,
}

impl fmt::Debug for OAuth2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OAuth2({})", self.server.host_str().unwrap_or_default())
    }
}

/// An `Authorization` header, and its generation where it can be renewed.
pub(super) struct Authorization {
    pub(super) header: Option<HeaderValue>,
    pub(super) generation: Option<u64>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    expires_in: Option<u64>,
}

impl Auth {
    /// Reads `token`, `credential`, `oauth2-server-uri`, `scope`, `audience`, `resource` and
    /// `rest.auth.type`.
    pub(super) fn new(base: &Url, properties: &BTreeMap<String, String>) -> Result<Auth> {
        let get = |key: &str| {
            properties
                .get(key)
                .map(String::as_str)
                .filter(|value| !value.is_empty())
        };
        if get("rest.auth.type").is_some_and(|kind| kind.eq_ignore_ascii_case("none")) {
            return Ok(Auth::None);
        }
        let token = get("token").map(bearer).transpose()?;
        let Some(credential) = get("credential") else {
            return Ok(token.map_or(Auth::None, Auth::Token));
        };
        let server = match get("oauth2-server-uri") {
            Some(uri) => parse_server(base, uri)?,
            None => super::paths::append(base, "v1/oauth/tokens")?,
        };
        let (id, secret) = match credential.split_once(':') {
            Some((id, secret)) => (Some(id), secret),
            None => (None, credential),
        };
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        if let Some(id) = id {
            form.append_pair("client_id", id);
        }
        form.append_pair("client_secret", secret);
        form.append_pair("scope", get("scope").unwrap_or("catalog"));
        for key in ["audience", "resource"] {
            if let Some(value) = get(key) {
                form.append_pair(key, value);
            }
        }
        let renewing = Renewing::new(MARGIN);
        if let Some(value) = token {
            // A token beside a credential serves first, until it is refused.
            renewing.set(|_| Fresh { value, life: None });
        }
        Ok(Auth::OAuth2(OAuth2 {
            server,
            form: form.finish().into(),
            token: renewing,
        }))
    }

    /// Returns the header for the next request.
    pub(super) async fn authorization(&self, http: &Http) -> Result<Authorization> {
        match self {
            Auth::None => Ok(Authorization {
                header: None,
                generation: None,
            }),
            Auth::Token(header) => Ok(Authorization {
                header: Some(header.clone()),
                generation: None,
            }),
            Auth::OAuth2(oauth2) => {
                let lease = oauth2.token.get(|| oauth2.fetch(http)).await?;
                Ok(Authorization {
                    header: Some(lease.value.clone()),
                    generation: Some(lease.generation),
                })
            }
        }
    }

    /// Renews a refused token; returns whether there is a new one.
    pub(super) async fn refused(&self, http: &Http, used: &Authorization) -> Result<bool> {
        match (self, used.generation) {
            (Auth::OAuth2(oauth2), Some(generation)) => {
                oauth2
                    .token
                    .refused(generation, || oauth2.fetch(http))
                    .await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

impl OAuth2 {
    async fn fetch(&self, http: &Http) -> Result<Fresh<HeaderValue>> {
        let mut headers = HeaderMap::new();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, form);
        let request = Request {
            method: Method::POST,
            url: self.server.clone(),
            headers,
            body: Some(self.form.clone()),
        };
        let answer = http.read(request).await?;
        if !answer.is_success() {
            return Err(answers::token_refused(&answer));
        }
        let token: TokenAnswer = answer.parse("OAuth2 token")?;
        Ok(Fresh {
            value: bearer(&token.access_token)?,
            life: token
                .expires_in
                .filter(|life| *life > 0)
                .map(Duration::from_secs),
        })
    }
}

fn bearer(token: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|_| {
        SinkError::config(
            "CATALOG_PROPERTY_INVALID",
            "the catalog's token has characters that no header takes",
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// The token server's address; Iceberg also takes a path on the catalog's host.
fn parse_server(base: &Url, uri: &str) -> Result<Url> {
    let url = if uri.contains("://") {
        Url::parse(uri).ok()
    } else {
        super::paths::append(base, uri.trim_start_matches('/')).ok()
    };
    url.filter(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some())
        .ok_or_else(|| {
            SinkError::config(
                "CATALOG_PROPERTY_INVALID",
                "`iceberg.catalog.oauth2-server-uri` is no HTTP address",
            )
        })
}
