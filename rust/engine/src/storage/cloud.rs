//! Builds the clients of the object stores from Iceberg's properties.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use frazil_core::{Result, SinkError};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredentialProvider};
use object_store::azure::{AzureCredentialProvider, MicrosoftAzureBuilder};
use object_store::gcp::{GcpCredentialProvider, GoogleCloudStorageBuilder};
use object_store::{
    BackoffConfig, Certificate, ClientOptions, HeaderValue, ObjectStore, RetryConfig,
    StaticCredentialProvider,
};

use super::credentials::{aws_credential, azure_credential};
use crate::redact;

type Properties = BTreeMap<String, String>;

/// How long one request may take: a part of an upload on a slow line, at the most.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a store may be silent within a request.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle connections are dropped before common load balancers do it.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// Bounded retries of one operation. Keys are chosen once for all tries, so the whole must end
/// well within the five minutes by which keys are renewed early.
fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(10),
            base: 2.0,
        },
        max_retries: 10,
        retry_timeout: Duration::from_secs(60),
    }
}

fn client_options(properties: &Properties, allow_http: bool) -> Result<ClientOptions> {
    let mut options = ClientOptions::new()
        .with_user_agent(HeaderValue::from_static(concat!(
            "frazil/",
            env!("CARGO_PKG_VERSION")
        )))
        .with_timeout(REQUEST_TIMEOUT)
        .with_read_timeout(READ_TIMEOUT)
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .with_allow_http(allow_http);
    if let Some(file) = properties.get("tls.ca-file") {
        let pem =
            std::fs::read(file).map_err(|error| ca_file("cannot be read").caused_by(error))?;
        let certificates =
            Certificate::from_pem_bundle(&pem).map_err(|_| ca_file("holds no PEM certificates"))?;
        for certificate in certificates {
            options = options.with_root_certificate(certificate);
        }
    }
    Ok(options)
}

pub(crate) fn ca_file(fault: &str) -> SinkError {
    SinkError::config(
        "TLS_CA_FILE",
        format!("the file that `tls.ca-file` names {fault}"),
    )
}

fn is_true(properties: &Properties, key: &str) -> bool {
    properties
        .get(key)
        .is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

fn is_http(url: &str) -> bool {
    url.get(..7)
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"))
}

fn invalid(store: &str, error: &object_store::Error) -> SinkError {
    SinkError::config(
        "STORAGE_PROPERTY_INVALID",
        format!("the {store} client cannot be made from these properties"),
    )
    .with("reason", redact::foreign(&error.to_string()))
}

/// Returns whether `properties` hold keys of the user's own for S3.
pub(crate) fn has_static_s3_keys(properties: &Properties) -> bool {
    properties.contains_key("s3.access-key-id")
}

/// Builds the client of one S3 bucket.
///
/// Keys: vended, else `s3.access-key-id`, else Amazon's default chain. Requests are path-style
/// when `s3.path-style-access` says so, and by default wherever `s3.endpoint` is set, for that is
/// what such stores speak.
pub(super) fn s3(
    bucket: &str,
    properties: &Properties,
    vended: Option<AwsCredentialProvider>,
) -> Result<Arc<AmazonS3>> {
    let endpoint = properties.get("s3.endpoint");
    let own = vended.or_else(|| {
        aws_credential(properties)
            .map(|keys| Arc::new(StaticCredentialProvider::new(keys)) as AwsCredentialProvider)
    });
    if own.is_none() && has_static_s3_keys(properties) {
        return Err(SinkError::config(
            "STORAGE_PROPERTY_INVALID",
            "`s3.access-key-id` is set without `s3.secret-access-key`",
        ));
    }
    let anonymous = is_true(properties, "s3.allow-anonymous");
    let mut builder = match (own, anonymous) {
        (Some(provider), _) => AmazonS3Builder::new().with_credentials(provider),
        (None, true) => AmazonS3Builder::new().with_skip_signature(true),
        (None, false) => AmazonS3Builder::from_env(),
    };
    let region = properties
        .get("s3.region")
        .or_else(|| properties.get("client.region"));
    if let Some(region) = region {
        builder = builder.with_region(region);
    }
    let path_style = match properties.get("s3.path-style-access") {
        Some(value) => value.eq_ignore_ascii_case("true"),
        None => endpoint.is_some() || bucket.contains('.'),
    };
    builder = builder.with_virtual_hosted_style_request(!path_style);
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(if path_style {
            endpoint.trim_end_matches('/').to_string()
        } else {
            with_bucket_in_host(endpoint, bucket)?
        });
    }
    let allow_http = endpoint.is_some_and(|url| is_http(url));
    builder = s3_encryption(builder, properties)?
        .with_bucket_name(bucket)
        .with_client_options(client_options(properties, allow_http)?)
        .with_retry(retry());
    let store = builder.build().map_err(|error| invalid("S3", &error))?;
    Ok(Arc::new(store))
}

fn with_bucket_in_host(endpoint: &str, bucket: &str) -> Result<String> {
    let (scheme, host) = endpoint.split_once("://").ok_or_else(|| {
        SinkError::config(
            "STORAGE_PROPERTY_INVALID",
            "`s3.endpoint` must be a URL such as `https://host:port`",
        )
    })?;
    Ok(format!(
        "{scheme}://{bucket}.{}",
        host.trim_end_matches('/')
    ))
}

fn s3_encryption(builder: AmazonS3Builder, properties: &Properties) -> Result<AmazonS3Builder> {
    let Some(kind) = properties.get("s3.sse.type") else {
        return Ok(builder);
    };
    let key = || {
        properties.get("s3.sse.key").ok_or_else(|| {
            SinkError::config(
                "STORAGE_PROPERTY_INVALID",
                "`s3.sse.type` needs `s3.sse.key`",
            )
        })
    };
    Ok(match kind.to_ascii_lowercase().as_str() {
        "none" => builder,
        "s3" => match "aws_server_side_encryption".parse::<AmazonS3ConfigKey>() {
            Ok(option) => builder.with_config(option, "AES256"),
            Err(error) => return Err(invalid("S3", &error)),
        },
        "kms" => builder.with_sse_kms_encryption(key()?),
        "dsse-kms" => builder.with_dsse_kms_encryption(key()?),
        "custom" => builder.with_ssec_encryption(key()?),
        _ => {
            return Err(SinkError::config(
                "STORAGE_PROPERTY_INVALID",
                "`s3.sse.type` must be none, s3, kms, dsse-kms or custom",
            ));
        }
    })
}

/// Builds the client of one Google Cloud Storage bucket.
pub(super) fn gcs(
    bucket: &str,
    properties: &Properties,
    vended: Option<GcpCredentialProvider>,
) -> Result<Arc<dyn ObjectStore>> {
    let host = properties.get("gcs.service.host");
    let key = properties
        .get("gcs.credentials-json")
        .or_else(|| properties.get("gcs.service.key"));
    let builder = GoogleCloudStorageBuilder::new();
    let mut builder = if let Some(provider) = vended {
        builder.with_credentials(provider)
    } else if let Some(token) = properties.get("gcs.oauth2.token") {
        builder.with_bearer_token(token)
    } else if let Some(key) = key {
        builder.with_service_account_key(key)
    } else if let Some(path) = properties.get("gcs.service.path") {
        builder.with_service_account_path(path)
    } else if is_true(properties, "gcs.no-auth") {
        builder.with_skip_signature(true)
    } else {
        GoogleCloudStorageBuilder::from_env()
    };
    if let Some(host) = host {
        builder = builder.with_base_url(host);
    }
    let allow_http = host.is_some_and(|url| is_http(url));
    let store = builder
        .with_bucket_name(bucket)
        .with_client_options(client_options(properties, allow_http)?)
        .with_retry(retry())
        .build()
        .map_err(|error| invalid("Google Cloud Storage", &error))?;
    Ok(Arc::new(store))
}

/// Cuts `container@account.host` into container, account and host.
pub(super) fn azure_authority(authority: &str) -> Result<(&str, &str, &str)> {
    let parts = authority.split_once('@').and_then(|(container, host)| {
        let (account, _) = host.split_once('.')?;
        Some((container, account, host))
    });
    parts.ok_or_else(|| {
        SinkError::config(
            "STORAGE_LOCATION_INVALID",
            "an Azure location must look like `abfss://container@account.dfs.core.windows.net/path`",
        )
    })
}

/// Builds the client of one Azure container.
pub(super) fn azure(
    authority: &str,
    properties: &Properties,
    vended: Option<AzureCredentialProvider>,
) -> Result<Arc<dyn ObjectStore>> {
    let (container, account, host) = azure_authority(authority)?;
    let own = match vended {
        Some(provider) => Some(provider),
        None => azure_credential(properties, account, host)?
            .map(|key| Arc::new(StaticCredentialProvider::new(key)) as AzureCredentialProvider),
    };
    let client = (
        properties.get("adls.client-id"),
        properties.get("adls.client-secret"),
        properties.get("adls.tenant-id"),
    );
    let mut builder = match (own, client) {
        (Some(provider), _) => MicrosoftAzureBuilder::new().with_credentials(provider),
        (None, (Some(id), Some(secret), Some(tenant))) => {
            MicrosoftAzureBuilder::new().with_client_secret_authorization(id, secret, tenant)
        }
        (None, _) => MicrosoftAzureBuilder::from_env(),
    };
    let endpoint = properties
        .get(&format!("adls.connection-string.{host}"))
        .or_else(|| properties.get(&format!("adls.connection-string.{account}")));
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint.clone());
    }
    let allow_http = endpoint.is_some_and(|url| is_http(url));
    let store = builder
        .with_account(account)
        .with_container_name(container)
        .with_client_options(client_options(properties, allow_http)?)
        .with_retry(retry())
        .build()
        .map_err(|error| invalid("Azure", &error))?;
    Ok(Arc::new(store))
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

    #[test]
    fn every_store_is_built_from_its_properties() {
        let keys = [("s3.access-key-id", "a"), ("s3.secret-access-key", "b")];
        s3("wh", &properties(&keys), None).unwrap();
        s3(
            "wh",
            &properties(&[
                ("s3.allow-anonymous", "true"),
                ("s3.endpoint", "http://h:1"),
            ]),
            None,
        )
        .unwrap();
        gcs("wh", &properties(&[("gcs.oauth2.token", "t")]), None).unwrap();
        azure(
            "c@acc.dfs.core.windows.net",
            &properties(&[("adls.sas-token.acc", "sv=1&sig=x")]),
            None,
        )
        .unwrap();
    }

    #[test]
    fn a_half_set_of_keys_and_bad_values_are_refused() {
        for pairs in [
            &[("s3.access-key-id", "a")][..],
            &[("s3.allow-anonymous", "true"), ("s3.sse.type", "rot13")],
            &[("s3.allow-anonymous", "true"), ("s3.sse.type", "kms")],
            &[
                ("s3.allow-anonymous", "true"),
                ("s3.endpoint", "host"),
                ("s3.path-style-access", "false"),
            ],
        ] {
            let error = s3("wh", &properties(pairs), None).unwrap_err();
            assert_eq!(error.code(), "STORAGE_PROPERTY_INVALID", "{pairs:?}");
        }
        let missing = properties(&[
            ("s3.allow-anonymous", "true"),
            ("tls.ca-file", "/no/such/file"),
        ]);
        assert_eq!(s3("wh", &missing, None).unwrap_err().code(), "TLS_CA_FILE");
        let error = azure("account", &properties(&[]), None).unwrap_err();
        assert_eq!(error.code(), "STORAGE_LOCATION_INVALID");
    }

    #[test]
    fn virtual_host_style_puts_the_bucket_into_the_endpoint() {
        assert_eq!(
            with_bucket_in_host("https://oss.x:443/", "wh").unwrap(),
            "https://wh.oss.x:443"
        );
    }
}
