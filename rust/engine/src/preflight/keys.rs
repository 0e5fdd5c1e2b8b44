//! Which key of the configuration an error belongs to.

use std::collections::BTreeMap;

use frazil_core::SinkError;
use frazil_core::config::{ConfigProblem, submitted};

pub(super) const OFFSET_RESET: &str = "consumer.override.auto.offset.reset";
const TABLES: &str = "iceberg.tables";
const CATALOG: &str = "iceberg.catalog.";
const URI: &str = "iceberg.catalog.uri";
const WAREHOUSE: &str = "iceberg.catalog.warehouse";

/// What says who we are to a catalog, in the order of what is most likely wrong.
const CATALOG_LOGIN: &[&str] = &[
    "iceberg.catalog.credential",
    "iceberg.catalog.token",
    "iceberg.catalog.oauth2-server-uri",
    "iceberg.catalog.scope",
];

/// What says who we are to a store.
const STORE_LOGIN: &[&str] = &[
    "iceberg.catalog.s3.access-key-id",
    "iceberg.catalog.s3.allow-anonymous",
    "iceberg.catalog.gcs.credentials-json",
    "iceberg.catalog.gcs.oauth2.token",
    "iceberg.catalog.gcs.service.path",
    "iceberg.catalog.gcs.no-auth",
    "iceberg.catalog.adls.account-key",
    "iceberg.catalog.adls.auth.shared-key.account.key",
    "iceberg.catalog.adls.sas-token",
    "iceberg.catalog.adls.client-secret",
];

/// Where a store is.
const STORE_ADDRESS: &[&str] = &[
    "iceberg.catalog.s3.endpoint",
    "iceberg.catalog.gcs.service.host",
];

/// What says who we are to a schema registry.
const REGISTRY_LOGIN: &[&str] = &[
    "frazil.schema.registry.basic.auth.user.info",
    "frazil.schema.registry.bearer.auth.token",
];
const REGISTRY_URL: &str = "frazil.schema.registry.url";
const REGISTRY_TRUST: &str = "frazil.schema.registry.ssl.truststore.location";
const REGISTRY_KEYSTORE: &str = "frazil.schema.registry.ssl.keystore.location";

/// The submitted keys.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) settings: &'a BTreeMap<String, String>,
}

impl Keys<'_> {
    /// Returns `error` on the key that has to change.
    pub(super) fn problem(&self, error: &SinkError) -> ConfigProblem {
        ConfigProblem::error(self.key_of(error), error.report())
    }

    /// Returns an error of the schema registry on the key that has to change.
    pub(super) fn registry_problem(&self, error: &SinkError) -> ConfigProblem {
        let key = match error.code() {
            "REGISTRY_UNAUTHORIZED" | "REGISTRY_FORBIDDEN" => self.first(
                REGISTRY_LOGIN,
                "frazil.schema.registry.basic.auth.user.info",
            ),
            "TLS_UNTRUSTED" => REGISTRY_TRUST.to_owned(),
            _ => self
                .named(error)
                .filter(|key| [REGISTRY_TRUST, REGISTRY_KEYSTORE].contains(&key.as_str()))
                .unwrap_or_else(|| REGISTRY_URL.to_owned()),
        };
        ConfigProblem::error(key, error.report())
    }

    /// Returns the key `own` of one table when it is set, else the one for all tables.
    pub(super) fn of_table(&self, table: &str, own: &str) -> String {
        let whole = format!("iceberg.table.{table}.{own}");
        match self.settings.contains_key(&whole) {
            true => whole,
            false => format!("iceberg.tables.default-{own}"),
        }
    }

    /// Returns the key that names the engines of one table.
    pub(super) fn engines_of(&self, table: &str) -> String {
        let own = format!("iceberg.table.{table}.engines");
        match self.settings.contains_key(&own) {
            true => own,
            false => "frazil.engines".to_owned(),
        }
    }

    fn key_of(&self, error: &SinkError) -> String {
        match error.code() {
            "LATEST_SKIPS" => OFFSET_RESET.to_owned(),
            "TLS_CA_FILE" | "TLS_UNTRUSTED" => "iceberg.catalog.tls.ca-file".to_owned(),
            "CATALOG_UNAUTHORIZED" | "CATALOG_FORBIDDEN" => {
                self.first(CATALOG_LOGIN, "iceberg.catalog.credential")
            }
            "STORAGE_FORBIDDEN" | "STORAGE_KEYS_REFUSED" | "STORAGE_CREDENTIALS_MISSING" => {
                self.first(STORE_LOGIN, WAREHOUSE)
            }
            "STORAGE_UNAVAILABLE" => self.first(STORE_ADDRESS, WAREHOUSE),
            code if code.starts_with("TABLE_") || code.starts_with("NAME") => TABLES.to_owned(),
            code => self.named(error).unwrap_or_else(|| match code {
                _ if code.starts_with("STORAGE_") || says_warehouse(error) => {
                    self.first(&[WAREHOUSE], WAREHOUSE)
                }
                _ => URI.to_owned(),
            }),
        }
    }

    /// Returns the first of `keys` that is set, by the name under which it is.
    fn first(&self, keys: &[&str], otherwise: &str) -> String {
        keys.iter()
            .find_map(|key| submitted(self.settings, key))
            .unwrap_or(otherwise)
            .to_owned()
    }

    /// Returns the first submitted key that the message names, with or without its prefix.
    fn named(&self, error: &SinkError) -> Option<String> {
        let quoted = error.message().split('`').skip(1).step_by(2);
        quoted
            .flat_map(|word| [word.to_owned(), format!("{CATALOG}{word}")])
            .find_map(|key| submitted(self.settings, &key).map(str::to_owned))
    }
}

/// Tells whether the catalog's own words are about its warehouse, of which it has many.
fn says_warehouse(error: &SinkError) -> bool {
    error.context().iter().any(|(name, value)| {
        *name == "catalog_says" && value.to_ascii_lowercase().contains("warehouse")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(settings: &[&str], error: SinkError) -> String {
        let settings = settings
            .iter()
            .map(|key| ((*key).to_owned(), "x".to_owned()))
            .collect();
        let keys = Keys {
            settings: &settings,
        };
        keys.problem(&error).key
    }

    #[test]
    fn an_error_is_on_the_key_that_has_to_change() {
        const TOKEN: &str = "iceberg.catalog.token";
        const S3A: &str = "iceberg.hadoop.fs.s3a.access.key";
        let config = SinkError::config;
        let says = |words: &str| config("CATALOG_REFUSED", "no").with("catalog_says", words);
        for (settings, error, key) in [
            (&[TOKEN][..], config("CATALOG_UNAUTHORIZED", ""), TOKEN),
            (
                &[],
                config("CATALOG_UNAUTHORIZED", ""),
                "iceberg.catalog.credential",
            ),
            (&[S3A], config("STORAGE_FORBIDDEN", ""), S3A),
            (&[], config("STORAGE_FORBIDDEN", ""), WAREHOUSE),
            (
                &["iceberg.catalog.s3.endpoint"],
                config("STORAGE_UNAVAILABLE", ""),
                "iceberg.catalog.s3.endpoint",
            ),
            (
                &["iceberg.catalog.s3.sse.type"],
                config(
                    "STORAGE_PROPERTY_INVALID",
                    "`s3.sse.type` needs `s3.sse.key`",
                ),
                "iceberg.catalog.s3.sse.type",
            ),
            (&[], says("Warehouse not found: lake"), WAREHOUSE),
            (&[], says("Not found"), URI),
            (&[], config("TABLE_MISSING", ""), TABLES),
            (&[], config("TIMED_OUT", ""), URI),
            (&[], config("LATEST_SKIPS", ""), OFFSET_RESET),
        ] {
            let code = error.code();
            assert_eq!(key_of(settings, error), key, "{code} {settings:?}");
        }
    }
}
