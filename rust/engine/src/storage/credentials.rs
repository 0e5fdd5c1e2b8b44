//! Keys that a catalog vends for a table's files, and how an open store sees fresh ones.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use frazil_core::{Result, SinkError};
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use object_store::azure::{AzureAccessKey, AzureCredential};
use object_store::gcp::GcpCredential;

/// Gives the keys of one table's files and renews them.
#[async_trait]
pub trait CredentialSource: fmt::Debug + Send + Sync {
    /// Returns keys that live for a while yet, renewing them first where that is due.
    async fn current(&self) -> Result<Arc<Credentials>>;

    /// Returns the newest keys without renewing them.
    fn latest(&self) -> Arc<Credentials>;

    /// Renews keys that a store refused, unless newer ones than `generation` are here already.
    async fn refused(&self, generation: u64) -> Result<()>;
}

/// One set of vended keys.
#[derive(Default)]
pub struct Credentials {
    /// Counts the renewals.
    pub generation: u64,
    /// The keys by location prefix.
    pub scopes: Vec<CredentialScope>,
}

/// Keys, as properties such as `s3.access-key-id`, for all locations with one prefix.
#[derive(Clone)]
pub struct CredentialScope {
    /// The prefix; empty for all locations.
    pub prefix: String,
    /// The keys.
    pub properties: BTreeMap<String, String>,
}

impl Credentials {
    /// Returns the scope with the longest prefix of `location`.
    pub fn scope_of(&self, location: &str) -> Option<&CredentialScope> {
        let location = one_s3_scheme(location);
        self.scopes
            .iter()
            .filter(|scope| covers(&one_s3_scheme(&scope.prefix), &location))
            .max_by_key(|scope| scope.prefix.len())
    }

    fn scope_with_prefix(&self, prefix: &str) -> Result<&CredentialScope> {
        self.scopes
            .iter()
            .find(|scope| scope.prefix == prefix)
            .ok_or_else(|| {
                missing("the catalog no longer vends a credential for this prefix")
                    .with("prefix", prefix)
            })
    }
}

/// A prefix without a slash at its end also covers longer names (`s3`, `s3://bucket`), as the
/// REST specification has it; one with a slash also covers the directory itself.
fn covers(prefix: &str, location: &str) -> bool {
    location.starts_with(prefix) || prefix.strip_suffix('/') == Some(location)
}

fn one_s3_scheme(location: &str) -> String {
    match location.split_once("://") {
        Some(("s3a" | "s3n", rest)) => format!("s3://{rest}"),
        _ => location.to_string(),
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes: Vec<&str> = self
            .scopes
            .iter()
            .map(|scope| scope.prefix.as_str())
            .collect();
        f.debug_struct("Credentials")
            .field("generation", &self.generation)
            .field("prefixes", &prefixes)
            .finish()
    }
}

impl fmt::Debug for CredentialScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CredentialScope({})", self.prefix)
    }
}

pub(super) fn missing(message: &str) -> SinkError {
    SinkError::retriable("STORAGE_CREDENTIALS_MISSING", message)
}

/// Returns whether a property belongs to a vended credential and not to the store's address.
pub(crate) fn is_credential_property(key: &str) -> bool {
    matches!(
        key,
        "s3.access-key-id" | "s3.secret-access-key" | "s3.session-token" | "gcs.oauth2.token"
    ) || is_expiry_property(key)
        || key.starts_with("adls.sas-token")
}

/// Returns whether a property says when a vended credential ends, in milliseconds since 1970.
pub(crate) fn is_expiry_property(key: &str) -> bool {
    matches!(
        key,
        "s3.session-token-expires-at-ms" | "gcs.oauth2.token-expires-at" | "expiration-time"
    ) || key.starts_with("adls.sas-token-expires-at-ms")
}

/// The S3 keys among `properties`.
pub(super) fn aws_credential(properties: &BTreeMap<String, String>) -> Option<AwsCredential> {
    Some(AwsCredential {
        key_id: properties.get("s3.access-key-id")?.clone(),
        secret_key: properties.get("s3.secret-access-key")?.clone(),
        token: properties.get("s3.session-token").cloned(),
    })
}

/// The SAS token, else the account key, of an Azure account among `properties`.
pub(super) fn azure_credential(
    properties: &BTreeMap<String, String>,
    account: &str,
    host: &str,
) -> Result<Option<AzureCredential>> {
    let sas = [
        format!("adls.sas-token.{host}"),
        format!("adls.sas-token.{account}"),
        "adls.sas-token".to_string(),
    ]
    .iter()
    .find_map(|key| properties.get(key));
    if let Some(sas) = sas {
        let pairs = url::form_urlencoded::parse(sas.trim_start_matches('?').as_bytes());
        return Ok(Some(AzureCredential::SASToken(
            pairs.into_owned().collect(),
        )));
    }
    let key = properties
        .get("adls.auth.shared-key.account.key")
        .or_else(|| properties.get("adls.account-key"));
    key.map(|key| AzureAccessKey::try_new(key).map(AzureCredential::AccessKey))
        .transpose()
        .map_err(|_| {
            SinkError::config(
                "STORAGE_PROPERTY_INVALID",
                "`adls.account-key` is not Base64",
            )
        })
}

/// Hands the newest keys of one scope to an open store.
#[derive(Debug)]
pub(super) struct VendedKeys {
    pub(super) source: Arc<dyn CredentialSource>,
    pub(super) prefix: String,
    /// Account and host on Azure.
    pub(super) account: Option<(String, String)>,
}

impl VendedKeys {
    async fn get<T>(
        &self,
        store: &'static str,
        pick: impl Fn(&BTreeMap<String, String>) -> Result<Option<T>> + Send,
    ) -> object_store::Result<Arc<T>> {
        let found = match self.source.current().await {
            Ok(credentials) => credentials
                .scope_with_prefix(&self.prefix)
                .and_then(|scope| pick(&scope.properties)),
            Err(error) => Err(error),
        };
        let key = found.and_then(|key| {
            key.ok_or_else(|| missing("the vended credential holds no keys for this store"))
        });
        key.map(Arc::new)
            .map_err(|error| object_store::Error::Generic {
                store,
                source: Box::new(error),
            })
    }
}

/// The three stores ask for keys of three types; one provider a type, all over [`VendedKeys`].
macro_rules! provider {
    ($name:ident, $credential:ty, $store:literal, $pick:expr) => {
        #[derive(Debug)]
        pub(super) struct $name(pub(super) VendedKeys);

        #[async_trait]
        impl CredentialProvider for $name {
            type Credential = $credential;

            async fn get_credential(&self) -> object_store::Result<Arc<$credential>> {
                let pick = $pick;
                self.0
                    .get($store, |properties| pick(&self.0, properties))
                    .await
            }
        }
    };
}

provider!(
    VendedAws,
    AwsCredential,
    "S3",
    |_: &VendedKeys, properties: &_| Ok(aws_credential(properties))
);
provider!(VendedGcp, GcpCredential, "GCS", |_: &VendedKeys,
                                            properties: &BTreeMap<
    String,
    String,
>| {
    Ok(properties
        .get("gcs.oauth2.token")
        .map(|bearer| GcpCredential {
            bearer: bearer.clone(),
        }))
});
provider!(
    VendedAzure,
    AzureCredential,
    "MicrosoftAzure",
    |keys: &VendedKeys, properties: &_| {
        match &keys.account {
            Some((account, host)) => azure_credential(properties, account, host),
            None => Ok(None),
        }
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(prefix: &str) -> CredentialScope {
        CredentialScope {
            prefix: prefix.to_string(),
            properties: BTreeMap::from([(
                "s3.secret-access-key".to_string(),
                "hunter2".to_string(),
            )]),
        }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let credentials = Credentials {
            generation: 1,
            scopes: vec![scope("s3"), scope("s3://wh/db/t/"), scope("s3://wh/")],
        };
        for (location, prefix) in [
            ("s3://wh/db/t/data/f.parquet", "s3://wh/db/t/"),
            ("s3a://wh/db/t", "s3://wh/db/t/"),
            ("s3://wh/db/t2/f", "s3://wh/"),
            ("s3n://other/f", "s3"),
        ] {
            assert_eq!(
                credentials.scope_of(location).unwrap().prefix,
                prefix,
                "{location}"
            );
        }
        assert!(credentials.scope_of("gs://wh/db/t").is_none());
    }

    #[test]
    fn debug_output_shows_no_key() {
        let credentials = Credentials {
            generation: 1,
            scopes: vec![scope("s3")],
        };
        assert_eq!(
            format!("{credentials:?} {:?}", credentials.scopes[0]),
            r#"Credentials { generation: 1, prefixes: ["s3"] } CredentialScope(s3)"#
        );
    }

    #[test]
    fn an_azure_token_is_found_by_host_account_or_alone() {
        let host = "acc.dfs.core.windows.net";
        for key in [
            "adls.sas-token",
            "adls.sas-token.acc",
            "adls.sas-token.acc.dfs.core.windows.net",
        ] {
            let properties = BTreeMap::from([(key.to_string(), "?sv=1&sig=a%2Bb".to_string())]);
            match azure_credential(&properties, "acc", host).unwrap() {
                Some(AzureCredential::SASToken(pairs)) => {
                    assert_eq!(pairs[1], ("sig".to_string(), "a+b".to_string()));
                }
                other => panic!("{key}: {other:?}"),
            }
        }
    }
}
