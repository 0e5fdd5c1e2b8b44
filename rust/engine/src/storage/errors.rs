//! Turns what a store says into a [`SinkError`], by type and never with a key in it.

use std::error::Error;

use frazil_core::SinkError;
use object_store::Error as StoreError;

use crate::redact;

/// What stores say when a vended key has ended. Amazon answers `ExpiredToken` with status 400,
/// SeaweedFS `InvalidAccessKeyId` with 403, Azure `AuthenticationFailed` with 403.
const REFUSED_KEYS: [&str; 6] = [
    "ExpiredToken",
    "InvalidAccessKeyId",
    "TokenRefreshRequired",
    "InvalidToken",
    "AuthenticationFailed",
    "RequestExpired",
];

/// Where the default chains look last: an error with one of these is about keys, not about files.
const NO_KEYS: [&str; 3] = [
    "169.254.169.254",
    "169.254.170.2",
    "metadata.google.internal",
];

/// Makes a refusal of the store one that may pass. While files are written it is the matter of one
/// table: its task starts over, for as long as a table may be blocked, and other tables go on.
pub(crate) fn may_pass(error: SinkError) -> SinkError {
    if error.code() != "STORAGE_FORBIDDEN" {
        return error;
    }
    let passing = SinkError::retriable(error.code(), error.message());
    error
        .context()
        .iter()
        .fold(passing, |passing, (name, value)| passing.with(name, value))
}

/// Returns whether a store refused the keys themselves and not what they may do.
pub(crate) fn is_refused_key(error: &StoreError) -> bool {
    if matches!(error, StoreError::Unauthenticated { .. }) {
        return true;
    }
    let text = error.to_string();
    REFUSED_KEYS.iter().any(|code| text.contains(code))
}

/// Turns a store's error about `location` into ours.
pub fn store_error(location: &str, error: &StoreError) -> SinkError {
    if let Some(ours) = find_sink_error(error) {
        return copy(ours).with("location", redact::foreign(location));
    }
    let text = redact::foreign(&full_text(error));
    let ours = match error {
        StoreError::NotFound { .. } => {
            SinkError::fatal("STORAGE_NOT_FOUND", "the file does not exist")
        }
        StoreError::AlreadyExists { .. } | StoreError::Precondition { .. } => {
            SinkError::fatal("STORAGE_EXISTS", "the file exists already")
        }
        _ if is_refused_key(error) => SinkError::retriable(
            "STORAGE_KEYS_REFUSED",
            "the store refused the keys: renew them, or check the clock of this host",
        ),
        _ if NO_KEYS.iter().any(|marker| text.contains(marker)) => SinkError::retriable(
            "STORAGE_CREDENTIALS_MISSING",
            "there are no keys for the store: the catalog vended none, none are configured, and \
             the environment of the worker has none",
        ),
        _ if text.contains("invalid peer certificate") => SinkError::config(
            "TLS_UNTRUSTED",
            "the store's certificate is not trusted: name its authority in \
             `iceberg.catalog.tls.ca-file`",
        ),
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
            SinkError::fatal(
                "STORAGE_FORBIDDEN",
                "the store refused access: check the keys and what they may do",
            )
        }
        StoreError::InvalidPath { .. } | StoreError::UnknownConfigurationKey { .. } => {
            SinkError::config("STORAGE_LOCATION_INVALID", "the store takes no such path")
        }
        _ if text.contains("No space left on device") => {
            SinkError::retriable("STORAGE_FULL", "no space is left on the device: free some")
        }
        _ => SinkError::retriable("STORAGE_UNAVAILABLE", "the store did not do what was asked"),
    };
    ours.with("location", redact::foreign(location))
        .with("store_says", text)
}

/// An error with those of its causes that its own text leaves out.
fn full_text(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(&format!(": {more}"));
        }
        cause = error.source();
    }
    text
}

/// Finds the [`SinkError`] that one of our own providers or adapters put under a foreign error.
pub(crate) fn find_sink_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a SinkError> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(ours) = error.downcast_ref::<SinkError>() {
            return Some(ours);
        }
        cause = error.source();
    }
    None
}

/// Copies kind, code, message and context; causes stay behind, for they cannot be copied.
pub(crate) fn copy(error: &SinkError) -> SinkError {
    let copy = SinkError::new(error.kind(), error.code(), error.message());
    error
        .context()
        .iter()
        .fold(copy, |copy, (name, value)| copy.with(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use frazil_core::ErrorKind;

    fn generic(text: &str) -> StoreError {
        StoreError::Generic {
            store: "S3",
            source: text.to_string().into(),
        }
    }

    #[test]
    fn an_expired_key_is_told_from_a_forbidden_action() {
        let expired = generic("status 400: <Error><Code>ExpiredToken</Code></Error>");
        assert!(is_refused_key(&expired));
        assert_eq!(
            store_error("s3://b/k", &expired).code(),
            "STORAGE_KEYS_REFUSED"
        );
        let denied = StoreError::PermissionDenied {
            path: "k".into(),
            source: "AccessDenied".into(),
        };
        assert!(!is_refused_key(&denied));
        let passing = may_pass(store_error("s3://b/k", &denied));
        assert_eq!(passing.kind(), frazil_core::ErrorKind::Retriable);
        assert_eq!(passing.code(), "STORAGE_FORBIDDEN");
        assert_eq!(store_error("s3://b/k", &denied).code(), "STORAGE_FORBIDDEN");
    }

    #[test]
    fn the_end_of_the_default_chain_is_not_a_store_that_is_down() {
        let error = generic("PUT http://169.254.169.254/latest/api/token in 3s: timed out");
        let error = store_error("s3://b/k", &error);
        assert_eq!(error.code(), "STORAGE_CREDENTIALS_MISSING");
    }

    #[test]
    fn our_own_error_comes_out_of_a_foreign_one() {
        let inner = SinkError::config("X", "inner").with("a", 1);
        let error = StoreError::Generic {
            store: "S3",
            source: Box::new(inner),
        };
        let ours = store_error("s3://b/k", &error);
        assert_eq!((ours.kind(), ours.code()), (ErrorKind::Config, "X"));
        assert_eq!(ours.context()[0], ("a", "1".to_string()));
    }

    #[test]
    fn a_signed_url_is_masked() {
        let error = store_error(
            "abfss://c@a.x/k",
            &generic("PUT https://a/k?sig=abc%3D failed"),
        );
        assert!(!error.report().contains("abc"), "{}", error.report());
        assert_eq!(error.code(), "STORAGE_UNAVAILABLE");
    }
}
