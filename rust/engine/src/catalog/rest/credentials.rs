//! Keys vended for one table, renewed before they end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use frazil_core::{Result, SinkError};
use iceberg::TableIdent;

use super::answers::StorageCredential;
use super::renew::{Fresh, Renewing};
use super::session::Session;
use crate::storage::{
    CredentialScope, CredentialSource, Credentials, is_credential_property, is_expiry_property,
};

/// Keys are renewed this long before they end, but no more than a tenth of their life.
const MARGIN: Duration = Duration::from_secs(300);

/// Collects the keys of an answer: `storage-credentials`, or else keys in the table's `config`.
pub(super) fn scopes(
    config: &BTreeMap<String, String>,
    credentials: Vec<StorageCredential>,
) -> Vec<CredentialScope> {
    if !credentials.is_empty() {
        return credentials
            .into_iter()
            .map(|credential| CredentialScope {
                prefix: credential.prefix,
                properties: credential.config,
            })
            .collect();
    }
    let properties: BTreeMap<String, String> = config
        .iter()
        .filter(|(key, _)| is_credential_property(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if properties.keys().all(|key| is_expiry_property(key)) {
        return Vec::new();
    }
    vec![CredentialScope {
        prefix: String::new(),
        properties,
    }]
}

/// The rest of the life of the scope that ends first.
fn life(scopes: &[CredentialScope]) -> Option<Duration> {
    let ends_at_ms = scopes
        .iter()
        .flat_map(|scope| &scope.properties)
        .filter(|(key, _)| is_expiry_property(key))
        .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
        .min()?;
    let end = UNIX_EPOCH + Duration::from_millis(ends_at_ms);
    Some(end.duration_since(SystemTime::now()).unwrap_or_default())
}

/// See the module.
#[derive(Debug)]
pub(super) struct TableCredentials {
    session: Arc<Session>,
    ident: TableIdent,
    /// Where the table's keys are renewed, if the catalog says so for this table.
    route: Option<String>,
    keys: Renewing<Vec<CredentialScope>>,
}

impl TableCredentials {
    pub(super) fn new(
        session: Arc<Session>,
        ident: TableIdent,
        route: Option<String>,
        scopes: Vec<CredentialScope>,
    ) -> Arc<TableCredentials> {
        let credentials = TableCredentials {
            session,
            ident,
            route,
            keys: Renewing::new(MARGIN),
        };
        credentials.set(scopes);
        Arc::new(credentials)
    }

    /// Takes keys that came with a load of the table.
    pub(super) fn set(&self, scopes: Vec<CredentialScope>) {
        let life = life(&scopes);
        self.keys.set(|_| Fresh {
            value: scopes,
            life,
        });
    }

    async fn fetch(&self) -> Result<Fresh<Vec<CredentialScope>>> {
        let scopes = self
            .session
            .fetch_credentials(&self.ident, self.route.as_deref())
            .await?;
        if scopes.is_empty() {
            return Err(SinkError::retriable(
                "STORAGE_CREDENTIALS_MISSING",
                "the catalog no longer vends credentials for the table",
            )
            .with("table", &self.ident));
        }
        Ok(Fresh {
            life: life(&scopes),
            value: scopes,
        })
    }
}

fn credentials(generation: u64, scopes: &[CredentialScope]) -> Arc<Credentials> {
    Arc::new(Credentials {
        generation,
        scopes: scopes.to_vec(),
    })
}

#[async_trait]
impl CredentialSource for TableCredentials {
    async fn current(&self) -> Result<Arc<Credentials>> {
        let lease = self.keys.get(|| self.fetch()).await?;
        Ok(credentials(lease.generation, &lease.value))
    }

    fn latest(&self) -> Arc<Credentials> {
        match self.keys.latest() {
            Some(lease) => credentials(lease.generation, &lease.value),
            None => Arc::default(),
        }
    }

    async fn refused(&self, generation: u64) -> Result<()> {
        self.keys.refused(generation, || self.fetch()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    }

    #[test]
    fn storage_credentials_win_over_keys_in_the_config() {
        let config = map(&[("s3.access-key-id", "config"), ("s3.region", "r")]);
        let found = scopes(&config, Vec::new());
        assert_eq!((found.len(), found[0].prefix.as_str()), (1, ""));
        assert!(!found[0].properties.contains_key("s3.region"));
        let entry = StorageCredential {
            prefix: "s3://wh/t".to_string(),
            config: map(&[("s3.access-key-id", "entry")]),
        };
        let found = scopes(&config, vec![entry]);
        assert_eq!((found.len(), found[0].prefix.as_str()), (1, "s3://wh/t"));
        assert!(scopes(&map(&[("s3.region", "r")]), Vec::new()).is_empty());
    }

    #[test]
    fn the_first_end_counts() {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_millis() as u64;
        let scope = |key: &str, ms: u64| CredentialScope {
            prefix: String::new(),
            properties: map(&[(key, &(now + ms).to_string())]),
        };
        let scopes = [
            scope("s3.session-token-expires-at-ms", 900_000),
            scope("adls.sas-token-expires-at-ms.acc", 600_000),
        ];
        let life = life(&scopes).unwrap().as_secs();
        assert!((590..=600).contains(&life), "{life}");
        assert_eq!(super::life(&[]), None);
    }
}
