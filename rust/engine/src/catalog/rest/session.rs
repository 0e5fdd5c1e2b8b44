//! Authorised requests to one catalog, and its configuration, fetched once.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use frazil_core::{Result, SinkError};
use iceberg::TableIdent;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde::Serialize;
use tokio::sync::OnceCell;

use super::answers::{self, CredentialsAnswer, TableAnswer};
use super::auth::Auth;
use super::config::{Config, ConfigAnswer, has_static_keys};
use super::http::{self, Answer, Http, Request, user_headers};
use super::{credentials, paths};
use crate::storage::CredentialScope;

const DELEGATION: HeaderName = HeaderName::from_static("x-iceberg-access-delegation");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// See the module.
pub(super) struct Session {
    http: Http,
    auth: Auth,
    base: Url,
    headers: HeaderMap,
    pub(super) user: BTreeMap<String, String>,
    /// Whether the catalog is asked for keys.
    pub(super) wants_keys: bool,
    config: OnceCell<Config>,
}

/// The properties hold secrets.
impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("base", &self.base.as_str())
            .field("auth", &self.auth)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(user: &BTreeMap<String, String>) -> Result<Session> {
        let base = base_url(crate::catalog::required(user, "uri")?)?;
        Ok(Session {
            http: http::client(user)?,
            auth: Auth::new(&base, user)?,
            base,
            headers: user_headers(user)?,
            user: user.clone(),
            wants_keys: !has_static_keys(user),
            config: OnceCell::new(),
        })
    }

    /// Returns the catalog's configuration.
    pub(super) async fn config(&self) -> Result<&Config> {
        self.config.get_or_try_init(|| self.fetch_config()).await
    }

    async fn fetch_config(&self) -> Result<Config> {
        let mut url = paths::append(&self.base, "v1/config")?;
        if let Some(warehouse) = self.user.get("warehouse") {
            url.query_pairs_mut().append_pair("warehouse", warehouse);
        }
        let answer = self.get(url, false).await?;
        if !answer.is_success() {
            return Err(answers::error(&answer).with("request", "configuration"));
        }
        Config::new(
            &self.base,
            &self.user,
            answer.parse::<ConfigAnswer>("catalog configuration")?,
        )
    }

    /// The address of a table.
    pub(super) async fn table_url(&self, ident: &TableIdent) -> Result<Url> {
        let config = self.config().await?;
        let path = paths::table(config.prefix.as_deref(), &config.separator, ident)?;
        paths::append(&config.base, &path)
    }

    /// Reads, with retries; `for_table` asks for keys where they are wanted.
    pub(super) async fn get(&self, url: Url, for_table: bool) -> Result<Answer> {
        let request = self.request(Method::GET, url, for_table, None);
        self.authorised(request, |request| self.http.read(request))
            .await
    }

    /// Sends a body once: what a repeated request would do is not ours to guess.
    pub(super) async fn post(
        &self,
        url: Url,
        body: &impl Serialize,
        for_table: bool,
        idempotency_key: Option<uuid::Uuid>,
    ) -> Result<Answer> {
        let json = serde_json::to_vec(body).map_err(|error| {
            SinkError::internal("a catalog request cannot be serialised").caused_by(error)
        })?;
        let mut request = self.request(Method::POST, url, for_table, Some(json.into()));
        if let Some(key) = idempotency_key
            && let Ok(key) = HeaderValue::from_str(&key.to_string())
        {
            request.headers.insert(IDEMPOTENCY_KEY, key);
        }
        self.authorised(request, |request| self.http.send(request))
            .await
    }

    pub(super) async fn delete(&self, url: Url) -> Result<Answer> {
        let request = self.request(Method::DELETE, url, false, None);
        self.authorised(request, |request| self.http.send(request))
            .await
    }

    fn request(&self, method: Method, url: Url, for_table: bool, body: Option<Bytes>) -> Request {
        let mut headers = self.headers.clone();
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if for_table && self.wants_keys && !headers.contains_key(DELEGATION) {
            headers.insert(DELEGATION, HeaderValue::from_static("vended-credentials"));
        }
        Request {
            method,
            url,
            headers,
            body,
        }
    }

    /// Sends with a token, and once more with a new one if the server did not know the first: a
    /// request that was not let in was not carried out.
    async fn authorised<F>(&self, request: Request, send: impl Fn(Request) -> F) -> Result<Answer>
    where
        F: Future<Output = Result<Answer>>,
    {
        let authorization = self.auth.authorization(&self.http).await?;
        let with = |header: &Option<HeaderValue>| {
            let mut request = request.clone();
            if let Some(header) = header {
                request.headers.insert(AUTHORIZATION, header.clone());
            }
            request
        };
        let answer = send(with(&authorization.header)).await?;
        if !matches!(answer.status, 401 | 419)
            || !self.auth.refused(&self.http, &authorization).await?
        {
            return Ok(answer);
        }
        let authorization = self.auth.authorization(&self.http).await?;
        send(with(&authorization.header)).await
    }

    /// Fetches fresh keys for a table: from their own endpoint where the catalog has one, for all
    /// tables or for this one (`route`), else by loading the table.
    pub(super) async fn fetch_credentials(
        &self,
        ident: &TableIdent,
        route: Option<&str>,
    ) -> Result<Vec<CredentialScope>> {
        let url = self.table_url(ident).await?;
        let config = self.config().await?;
        let own = match route.and_then(|route| paths::on_same_host(&config.base, route)) {
            None if config.has_credentials_route => Some(paths::append(&url, "credentials")?),
            own => own,
        };
        if let Some(url) = own {
            let answer = self.get(url, true).await?;
            if !answer.is_success() {
                return Err(answers::error(&answer).with("table", ident));
            }
            let answer: CredentialsAnswer = answer.parse("list of credentials")?;
            return Ok(credentials::scopes(
                &BTreeMap::new(),
                answer.storage_credentials,
            ));
        }
        let answer = self.get(url, true).await?;
        if !answer.is_success() {
            return Err(answers::error(&answer).with("table", ident));
        }
        let answer: TableAnswer = answer.parse("table")?;
        Ok(credentials::scopes(
            &answer.config.unwrap_or_default(),
            answer.storage_credentials.unwrap_or_default(),
        ))
    }
}

fn base_url(uri: &str) -> Result<Url> {
    let invalid = |reason: &str| {
        SinkError::config(
            "CATALOG_PROPERTY_INVALID",
            format!("`iceberg.catalog.uri` of a REST catalog {reason}"),
        )
    };
    let url = Url::parse(uri).map_err(|_| invalid("must look like `https://host/path`"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(invalid("must look like `https://host/path`"));
    }
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
        return Err(invalid("must not hold a user, a query or a fragment"));
    }
    Ok(url)
}
