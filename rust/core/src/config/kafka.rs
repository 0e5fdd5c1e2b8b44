//! Settings of the Kafka clients that Frazil opens: what is refused.
//!
//! `iceberg.kafka.` is not subject to the worker's `connector.client.config.override.policy`, so
//! settings through which a connector's author could run code or read files of the worker are
//! refused here (CVE-2023-25194, CVE-2025-27817, CVE-2025-27818 and their kin).

use super::reader::Reader;

const PREFIX: &str = "iceberg.kafka.";

/// Settings that load a class of the user's choice.
const LOADS_CLASSES: &[&str] = &[
    "interceptor.classes",
    "metric.reporters",
    "config.providers",
    "partitioner.class",
    "security.providers",
    "ssl.engine.factory.class",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
];

/// Login modules that look names up in a directory that the setting names.
const LOOKUP_MODULES: &[&str] = &["jndiloginmodule", "ldaploginmodule"];

/// Settings that hold a URL whose content the client reads.
const URLS: &[&str] = &[
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.jwks.endpoint.url",
];

/// Reports the settings below `iceberg.kafka.` that are refused.
pub(super) fn judge(reader: &mut Reader<'_>) {
    for (name, value) in reader.below(PREFIX) {
        let key = format!("{PREFIX}{name}");
        let value = value.trim().to_ascii_lowercase();
        if LOADS_CLASSES.contains(&name.as_str()) || name.starts_with("config.providers.") {
            reader.error(&key, "refused: it would load a class into the worker");
        } else if name == "sasl.jaas.config"
            && LOOKUP_MODULES.iter().any(|module| value.contains(module))
        {
            reader.error(
                &key,
                "refused: this login module looks names up over the network; use another one",
            );
        } else if URLS.contains(&name.as_str())
            && !value.starts_with("https://")
            && !value.starts_with("http://")
        {
            reader.error(&key, "must be an `https://` address");
        }
    }
}
