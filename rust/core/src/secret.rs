//! Which keys hold secrets, decided by name, so that one rule serves `validate`, logs and `Debug`.
//!
//! The Java shell types every submitted key that this rule names as PASSWORD; it reads the markers
//! from the generated `config-keys.tsv`, so both sides cannot drift apart. The rule errs on the
//! side of hiding: a harmless key shown as `[hidden]` costs nothing.

/// What makes a key a secret: it occurs in `-<name>-`, where the name is in lower case and each
/// `.` and `_` became `-`. So `-sas-` matches `adls.sas.x` but not `sasl.mechanism`.
pub const SECRET_MARKERS: &[&str] = &[
    "secret",
    "token",
    "password",
    "passwd",
    "passphrase",
    "credential",
    "-sas-",
    "account-key",
    "private-key",
    "keystore-key",
    "service-key",
    "api-key",
    "sse-key",
    "connection-string",
    "authorization",
    "jaas",
    "hash-salt",
    "-user-info-",
];

/// Tells whether the value of the key `name` must never be shown.
///
/// ```
/// use frazil_core::secret::is_secret_key;
/// assert!(is_secret_key("iceberg.catalog.s3.secret-access-key"));
/// assert!(!is_secret_key("iceberg.kafka.sasl.mechanism"));
/// ```
pub fn is_secret_key(name: &str) -> bool {
    let mut words = String::with_capacity(name.len() + 2);
    words.push('-');
    words.extend(name.chars().map(|letter| match letter {
        '.' | '_' => '-',
        other => other.to_ascii_lowercase(),
    }));
    words.push('-');
    SECRET_MARKERS.iter().any(|marker| words.contains(marker))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_say_secret_are_secret() {
        for name in [
            "iceberg.catalog.credential",
            "iceberg.catalog.token",
            "iceberg.catalog.s3.secret-access-key",
            "iceberg.catalog.s3.session-token",
            "iceberg.catalog.jdbc.password",
            "iceberg.catalog.adls.sas-token.account",
            "iceberg.catalog.adls.sas.account",
            "iceberg.catalog.adls.auth.shared-key.account.key",
            "iceberg.catalog.gcs.credentials-json",
            "iceberg.catalog.gcs.service.key",
            "iceberg.catalog.adls.connection-string.account",
            "iceberg.catalog.header.Authorization",
            "iceberg.catalog.header.X-Api-Key",
            "iceberg.kafka.sasl.jaas.config",
            "iceberg.kafka.ssl.keystore.password",
            "iceberg.kafka.ssl.keystore.key",
            "CLIENT_SECRET",
            "frazil.schema.registry.basic.auth.user.info",
        ] {
            assert!(is_secret_key(name), "{name}");
        }
    }

    #[test]
    fn other_names_are_not_secret() {
        for name in [
            "iceberg.catalog.s3.access-key-id",
            "iceberg.catalog.uri",
            "iceberg.kafka.sasl.mechanism",
            "iceberg.kafka.ssl.truststore.location",
            "iceberg.tables",
            "key.converter",
            "",
        ] {
            assert!(!is_secret_key(name), "{name}");
        }
    }
}
