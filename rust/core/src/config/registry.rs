//! The schema registry, and where records name a schema of it.

use std::time::Duration;

use super::format::{DataFormat, Formats};
use super::reader::Reader;
use crate::decode::confluent::Part;
use crate::decode::registered::IdPlace;

const URL: &str = "frazil.schema.registry.url";
const USER_INFO: &str = "frazil.schema.registry.basic.auth.user.info";
const TOKEN: &str = "frazil.schema.registry.bearer.auth.token";
const TRUSTSTORE: &str = "frazil.schema.registry.ssl.truststore.location";
const KEYSTORE: &str = "frazil.schema.registry.ssl.keystore.location";
const LATEST_TTL: &str = "frazil.schema.registry.latest.cache.ttl.sec";
const MISSING_TTL: &str = "frazil.schema.registry.missing.id.cache.ttl.sec";
/// What has no effect without an address.
const WITHOUT_URL: [&str; 6] = [
    USER_INFO,
    TOKEN,
    TRUSTSTORE,
    KEYSTORE,
    LATEST_TTL,
    MISSING_TTL,
];

/// How a schema registry is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistryConfig {
    /// Addresses of one registry, without user and password.
    pub urls: Vec<String>,
    /// `user:password`.
    pub user_info: Option<String>,
    /// A bearer token.
    pub token: Option<String>,
    /// A PEM file of authorities.
    pub truststore: Option<String>,
    /// A PEM file with the client's certificate and key.
    pub keystore: Option<String>,
    /// How long the newest schema of a subject counts.
    pub latest_ttl: Duration,
    /// How long an unknown id counts.
    pub missing_ttl: Duration,
    /// Where values name their schema.
    pub value_id: IdPlace,
    /// Where keys name their schema.
    pub key_id: IdPlace,
}

impl RegistryConfig {
    /// Tells whether schema ids may be in headers.
    pub fn reads_headers(&self, formats: Formats) -> bool {
        let in_headers = |format: DataFormat, place: &IdPlace| {
            format.is_registered() && *place == IdPlace::HeaderOrFrame
        };
        in_headers(formats.value, &self.value_id) || in_headers(formats.key, &self.key_id)
    }
}

/// It holds secrets.
impl std::fmt::Debug for RegistryConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistryConfig")
            .field("urls", &self.urls)
            .finish_non_exhaustive()
    }
}

/// Reads the registry's keys. `None` when no format needs one, or when what stands there is wrong,
/// which is reported.
pub(super) fn read(reader: &mut Reader<'_>, formats: Formats) -> Option<RegistryConfig> {
    judge_places(reader, formats);
    let needed = formats.value.is_registered() || formats.key.is_registered();
    let urls = reader.list(URL);
    if urls.is_empty() {
        if needed && !reader.has(URL) {
            reader.error(
                URL,
                "missing: the formats `avro`, `protobuf` and `json-schema` need a schema registry",
            );
        }
        for key in WITHOUT_URL {
            if reader.has(key) {
                reader.warn(key, format!("has no effect without `{URL}`"));
            }
        }
        return None;
    }
    if !needed {
        reader.warn(
            URL,
            "has no effect: neither `frazil.value.format` nor `frazil.key.format` needs a schema \
             registry",
        );
        return None;
    }
    let mut fine = true;
    for url in &urls {
        if let Err(message) = check_url(url) {
            reader.error(URL, message);
            fine = false;
        }
    }
    let user_info = reader.word(USER_INFO).map(str::to_owned);
    let token = reader.word(TOKEN).map(str::to_owned);
    if user_info.as_ref().is_some_and(|info| !info.contains(':')) {
        reader.error(USER_INFO, "must be `user:password`");
        fine = false;
    }
    if user_info.is_some() && token.is_some() {
        reader.error(
            TOKEN,
            format!("cannot stand beside `{USER_INFO}`; drop one"),
        );
        fine = false;
    }
    let seconds = |reader: &Reader<'_>, key| reader.number(key).map(Duration::from_secs);
    fine.then_some(RegistryConfig {
        urls,
        user_info,
        token,
        truststore: reader.word(TRUSTSTORE).map(str::to_owned),
        keystore: reader.word(KEYSTORE).map(str::to_owned),
        latest_ttl: seconds(reader, LATEST_TTL)?,
        missing_ttl: seconds(reader, MISSING_TTL)?,
        value_id: id_place(reader, Part::Value),
        key_id: id_place(reader, Part::Key),
    })
}

fn check_url(url: &str) -> Result<(), String> {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let Some(rest) = rest else {
        return Err("must begin with `http://` or `https://`".to_owned());
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() {
        return Err("names no host".to_owned());
    }
    if host.contains('@') {
        return Err(format!(
            "must not hold user and password, which would be shown; set `{USER_INFO}`"
        ));
    }
    if rest.contains(['?', '#']) {
        return Err("must end with the path of the registry's API".to_owned());
    }
    Ok(())
}

/// Warns of places for a side that names no schema.
fn judge_places(reader: &mut Reader<'_>, formats: Formats) {
    for (side, format) in [("value", formats.value), ("key", formats.key)] {
        for own in ["id", "subject"] {
            let key = format!("frazil.{side}.schema.{own}");
            if reader.has(&key) && !format.is_registered() {
                let message =
                    format!("has no effect: `frazil.{side}.format` needs no schema registry");
                reader.warn(&key, message);
            }
        }
    }
}

/// Reads where values or keys name their schema.
fn id_place(reader: &Reader<'_>, part: Part) -> IdPlace {
    let (id, subject) = match part {
        Part::Value => ("frazil.value.schema.id", "frazil.value.schema.subject"),
        Part::Key => ("frazil.key.schema.id", "frazil.key.schema.subject"),
    };
    let word = reader.word(id).unwrap_or_default();
    if word.eq_ignore_ascii_case("latest") {
        IdPlace::Latest {
            subject: reader.word(subject).unwrap_or_default().to_owned(),
        }
    } else if word.eq_ignore_ascii_case("frame") {
        IdPlace::Frame
    } else {
        IdPlace::HeaderOrFrame
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::decode::registered::RegisteredKind;

    fn read_all(pairs: &[(&str, &str)], needed: bool) -> (Option<RegistryConfig>, Vec<String>) {
        let values: BTreeMap<String, String> = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let mut reader = Reader::new(&values);
        let formats = Formats {
            value: match needed {
                true => DataFormat::Registered(RegisteredKind::Avro),
                false => DataFormat::Json,
            },
            key: DataFormat::Connect,
        };
        let config = read(&mut reader, formats);
        let problems = reader.problems.iter();
        let problems = problems.map(|p| format!("{}: {}", p.key, p.message));
        (config, problems.collect())
    }

    #[test]
    fn addresses_and_logins_are_read() {
        let (config, problems) = read_all(
            &[
                (URL, "http://a:8081, https://b/apis/ccompat/v7"),
                (USER_INFO, "me:secret"),
                (LATEST_TTL, "5"),
            ],
            true,
        );
        let config = config.unwrap();
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(config.urls, ["http://a:8081", "https://b/apis/ccompat/v7"]);
        assert_eq!(config.latest_ttl, Duration::from_secs(5));
        assert_eq!(config.missing_ttl, Duration::from_secs(60));
        assert!(!format!("{config:?}").contains("secret"));
    }

    // Promise: A schema registry that cannot be used as it is configured is refused at validate, on its key.
    #[test]
    fn what_cannot_be_used_is_refused() {
        for (pairs, part) in [
            (&[][..], "missing"),
            (&[(URL, "a:8081")], "must begin with"),
            (&[(URL, "http://")], "names no host"),
            (
                &[(URL, "http://me:secret@host")],
                "must not hold user and password",
            ),
            (&[(URL, "http://host/?x=1")], "must end with the path"),
            (&[(URL, "http://a,,http://b")], "an empty entry"),
            (
                &[(URL, "http://a"), (USER_INFO, "me")],
                "must be `user:password`",
            ),
            (
                &[(URL, "http://a"), (USER_INFO, "a:b"), (TOKEN, "t")],
                "cannot stand beside",
            ),
        ] {
            let (config, problems) = read_all(pairs, true);
            assert!(config.is_none(), "{pairs:?}");
            let told = problems.iter().any(|problem| problem.contains(part));
            assert!(told, "{pairs:?}: {problems:?}");
            assert!(!problems.iter().any(|problem| problem.contains("secret")));
        }
        let (_, problems) = read_all(&[(USER_INFO, "a:b")], false);
        assert!(problems[0].contains("has no effect without"));
        let (config, problems) = read_all(&[(URL, "http://a")], false);
        assert!(config.is_none() && problems[0].contains("has no effect"));
        let (_, problems) = read_all(&[("frazil.value.schema.id", "frame")], false);
        assert!(problems[0].contains("has no effect"));
    }

    #[test]
    fn the_place_of_the_id_is_read() {
        let place = |pairs: &[(&str, &str)], part| {
            let values: BTreeMap<String, String> = pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect();
            id_place(&Reader::new(&values), part)
        };
        assert_eq!(place(&[], Part::Value), IdPlace::HeaderOrFrame);
        let frame = [("frazil.key.schema.id", "FRAME")];
        assert_eq!(place(&frame, Part::Key), IdPlace::Frame);
        assert_eq!(place(&frame, Part::Value), IdPlace::HeaderOrFrame);
        let latest = [("frazil.value.schema.id", "latest")];
        let subject = "${topic}-value".to_owned();
        assert_eq!(place(&latest, Part::Value), IdPlace::Latest { subject });
    }
}
