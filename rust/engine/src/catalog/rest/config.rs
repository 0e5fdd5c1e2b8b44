//! What a catalog tells its clients to use, and what of that is obeyed.
//!
//! A catalog may be run by somebody else than the worker: it must not be able to send the
//! worker's tokens and keys to a host of its choice.

use std::collections::BTreeMap;

use frazil_core::Result;
use reqwest::Url;
use serde::Deserialize;

use super::paths;
use crate::storage::{has_static_s3_keys, is_credential_property};

type Properties = BTreeMap<String, String>;

/// Routes of the credentials endpoint, as `/v1/config` lists it.
const CREDENTIALS_ROUTE: &str = "/namespaces/{namespace}/tables/{table}/credentials";

/// The answer of `/v1/config`.
#[derive(Deserialize)]
pub(super) struct ConfigAnswer {
    #[serde(default)]
    defaults: Option<BTreeMap<String, Option<String>>>,
    #[serde(default)]
    overrides: Option<BTreeMap<String, Option<String>>>,
    #[serde(default)]
    endpoints: Option<Vec<String>>,
    #[serde(default, rename = "idempotency-key-lifetime")]
    idempotency_key_lifetime: Option<String>,
}

/// What holds for all requests to one catalog.
pub(super) struct Config {
    pub(super) base: Url,
    pub(super) prefix: Option<String>,
    /// Encoded, between the levels of a namespace.
    pub(super) separator: String,
    /// Whether keys can be renewed without loading the table.
    pub(super) has_credentials_route: bool,
    pub(super) takes_idempotency_keys: bool,
    /// Storage properties of the catalog that all its tables share.
    pub(super) storage: Properties,
}

impl Config {
    pub(super) fn new(base: &Url, user: &Properties, answer: ConfigAnswer) -> Result<Config> {
        let flat = |map: Option<BTreeMap<String, Option<String>>>| -> Properties {
            map.into_iter()
                .flatten()
                .filter_map(|(key, value)| Some((key, value?)))
                .collect()
        };
        let (defaults, overrides) = (flat(answer.defaults), flat(answer.overrides));
        let setting = |key: &str| {
            overrides
                .get(key)
                .or_else(|| user.get(key))
                .or_else(|| defaults.get(key))
                .cloned()
        };
        let moved = overrides
            .get("uri")
            .and_then(|uri| Url::parse(uri).ok())
            .filter(|uri| uri.origin() == base.origin());
        let takes_keys = answer.idempotency_key_lifetime.is_some()
            || setting("idempotency-key-lifetime").is_some();
        let mut storage = defaults.clone();
        storage.extend(overrides.clone());
        Ok(Config {
            base: moved.unwrap_or_else(|| base.clone()),
            prefix: setting("prefix"),
            separator: setting("namespace-separator").unwrap_or_else(|| paths::SEPARATOR.into()),
            has_credentials_route: answer
                .endpoints
                .into_iter()
                .flatten()
                .any(|route| route.starts_with("GET ") && route.ends_with(CREDENTIALS_ROUTE)),
            takes_idempotency_keys: takes_keys,
            storage,
        })
    }
}

/// Returns whether the user gave keys of their own, so that none are asked from the catalog.
pub(super) fn has_static_keys(user: &Properties) -> bool {
    has_static_s3_keys(user)
        || user.keys().any(|key| {
            key.starts_with("adls.sas-token")
                || key.starts_with("adls.auth.")
                || matches!(
                    key.as_str(),
                    "adls.account-key"
                        | "adls.client-secret"
                        | "gcs.oauth2.token"
                        | "gcs.credentials-json"
                        | "gcs.service.key"
                        | "gcs.service.path"
                )
        })
}

/// Merges the storage properties of one table: the catalog's, the table's, and over both the
/// user's. Keys are not among them: vended ones are kept apart, for they change.
pub(super) fn storage_properties(
    config: &Config,
    table: &Properties,
    user: &Properties,
    is_vended: bool,
) -> Properties {
    let mut merged = Properties::new();
    for (key, value) in config.storage.iter().chain(table) {
        if is_credential_property(key) || !is_safe(key, value, &config.base, is_vended) {
            continue;
        }
        merged.insert(key.clone(), value.clone());
    }
    merged.extend(user.clone());
    merged
}

/// Whether a storage property may come from the catalog. The address of the store may, if the
/// keys are the catalog's too or if it is on the catalog's host.
fn is_safe(key: &str, value: &str, base: &Url, is_vended: bool) -> bool {
    let is_address = matches!(key, "s3.endpoint" | "gcs.service.host")
        || key.starts_with("adls.connection-string");
    let is_storage = ["s3.", "client.region", "gcs.", "adls."]
        .iter()
        .any(|prefix| key.starts_with(prefix));
    if !is_address {
        return is_storage;
    }
    let is_same_host =
        Url::parse(value).is_ok_and(|url| url.host().is_some() && url.host() == base.host());
    if !is_vended && !is_same_host {
        tracing::warn!(
            key,
            "a store address from the catalog is ignored: set it in the connector"
        );
    }
    is_vended || is_same_host
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> Properties {
        pairs
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    }

    fn config(json: &str, user: &[(&str, &str)]) -> Config {
        let base = Url::parse("https://catalog.x/api").unwrap();
        let answer = serde_json::from_str(json).unwrap();
        Config::new(&base, &properties(user), answer).unwrap()
    }

    #[test]
    fn overrides_win_over_the_user_and_defaults_do_not() {
        let json = r#"{"defaults":{"prefix":"d","namespace-separator":"%2E"},"overrides":{"prefix":"o"},
            "endpoints":["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"]}"#;
        let config = config(json, &[("prefix", "u")]);
        assert_eq!(
            (config.prefix.as_deref(), config.separator.as_str()),
            (Some("o"), "%2E")
        );
        assert!(config.has_credentials_route && !config.takes_idempotency_keys);
        let config = super::tests::config(
            r#"{"defaults":{"prefix":"d"},"overrides":null}"#,
            &[("prefix", "u")],
        );
        assert_eq!(
            (config.prefix.as_deref(), config.separator.as_str()),
            (Some("u"), "%1F")
        );
    }

    #[test]
    fn the_catalog_moves_only_within_its_host() {
        let moved = config(r#"{"overrides":{"uri":"https://catalog.x/v2"}}"#, &[]);
        assert_eq!(moved.base.as_str(), "https://catalog.x/v2");
        for uri in [
            "https://evil.x/api",
            "http://catalog.x/api",
            "https://catalog.x:8443/",
        ] {
            let config = config(&format!(r#"{{"overrides":{{"uri":"{uri}"}}}}"#), &[]);
            assert_eq!(config.base.as_str(), "https://catalog.x/api", "{uri}");
        }
    }

    #[test]
    fn a_store_address_comes_from_the_catalog_only_with_its_keys_or_its_host() {
        let config = config(
            r#"{"overrides":{"s3.endpoint":"https://evil.x","tls.ca-file":"/x","s3.region":"r"}}"#,
            &[],
        );
        let merged = |table: &[(&str, &str)], user: &[(&str, &str)], is_vended| {
            storage_properties(&config, &properties(table), &properties(user), is_vended)
        };
        assert_eq!(merged(&[], &[], false), properties(&[("s3.region", "r")]));
        let own_host = [("s3.endpoint", "https://catalog.x:9000")];
        assert_eq!(
            merged(&own_host, &[], false)["s3.endpoint"],
            "https://catalog.x:9000"
        );
        assert_eq!(merged(&[], &[], true)["s3.endpoint"], "https://evil.x");
        let user = [("s3.endpoint", "https://mine.x")];
        assert_eq!(
            merged(&own_host, &user, true)["s3.endpoint"],
            "https://mine.x"
        );
        let keys = [("s3.access-key-id", "a"), ("s3.secret-access-key", "b")];
        assert!(!merged(&keys, &[], true).contains_key("s3.access-key-id"));
    }
}
