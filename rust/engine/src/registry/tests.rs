//! The client against a registry on loopback that answers as the real ones do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use frazil_core::decode::registered::IdPlace;

use super::*;
use crate::test_server::{Request, Response, Server};

fn config(url: &str) -> RegistryConfig {
    RegistryConfig {
        urls: vec![url.to_owned()],
        user_info: None,
        token: None,
        truststore: None,
        keystore: None,
        latest_ttl: Duration::from_secs(60),
        missing_ttl: Duration::from_secs(60),
        value_id: IdPlace::HeaderOrFrame,
        key_id: IdPlace::HeaderOrFrame,
    }
}

fn open(url: &str) -> Registry {
    Registry::open(&config(url)).unwrap()
}

/// A registry of Confluent's with three schemas, of which 7 refers to the others.
fn confluent(request: &Request) -> Response {
    match request.line.as_str() {
        "GET /schemas/ids/1" => Response::json(200, r#"{"schema":"\"string\""}"#),
        "GET /schemas/ids/7" => Response::json(
            200,
            r#"{"schema":"seven","schemaType":"PROTOBUF","references":[
                {"name":"a.proto","subject":"a","version":1},
                {"name":"b.proto","subject":"b","version":2}]}"#,
        ),
        "GET /subjects/a/versions/1" => Response::json(
            200,
            r#"{"subject":"a","version":1,"id":8,"schema":"A",
                "references":[{"name":"b.proto","subject":"b","version":2}]}"#,
        ),
        "GET /subjects/b/versions/2" => {
            Response::json(200, r#"{"subject":"b","version":2,"id":9,"schema":"B"}"#)
        }
        "GET /subjects/t%2Fx-value/versions/latest" => Response::json(
            200,
            r#"{"subject":"t/x-value","version":3,"id":12,"schema":"\"int\""}"#,
        ),
        "GET /schemas/guids/00000000-0000-0000-0000-000000000005" => {
            Response::json(200, r#"{"schema":"\"long\"","schemaType":"AVRO"}"#)
        }
        "GET /schemas/types" => Response::json(200, r#"["AVRO"]"#),
        _ => Response::json(404, r#"{"error_code":40403,"message":"Schema not found"}"#),
    }
}

#[tokio::test]
async fn schemas_come_with_their_references_and_are_asked_for_once() {
    let server = Server::start(confluent).await;
    let registry = open(&server.url());
    let one = registry.schema(&SchemaKey::Id(1)).await.unwrap();
    assert_eq!(
        (one.kind.as_deref(), one.text.as_str()),
        (Some("AVRO"), "\"string\"")
    );
    let seven = registry.schema(&SchemaKey::Id(7)).await.unwrap();
    assert_eq!(seven.kind.as_deref(), Some("PROTOBUF"));
    let text = |text: &str| text.to_owned();
    // `b` is used by `a`, so it comes first, and once.
    let expected = [(text("b.proto"), text("B")), (text("a.proto"), text("A"))];
    assert_eq!(seven.references, expected);
    let asked = server.requests().len();
    assert_eq!(registry.schema(&SchemaKey::Id(7)).await.unwrap(), seven);
    assert_eq!(server.requests().len(), asked);

    let latest = registry
        .schema(&SchemaKey::Subject("t/x-value".into()))
        .await
        .unwrap();
    assert_eq!(latest.id, SchemaKey::Id(12));
    let mut guid = [0; 16];
    guid[15] = 5;
    let by_guid = registry.schema(&SchemaKey::Guid(guid)).await.unwrap();
    assert_eq!(by_guid.text, "\"long\"");
    registry.check().await.unwrap();
}

// Promise: A schema id that the registry does not know is an error of its record, and is not asked for again at once.
#[tokio::test]
async fn an_unknown_id_is_an_error_of_the_record() {
    let server = Server::start(confluent).await;
    let registry = open(&server.url());
    for _ in 0..3 {
        let error = registry.schema(&SchemaKey::Id(99)).await.unwrap_err();
        assert_eq!(error.code(), "REGISTRY_SCHEMA_UNKNOWN");
        assert_eq!(error.kind(), ErrorKind::Data);
    }
    assert_eq!(server.requests(), ["GET /schemas/ids/99"]);
    let global = registry.schema(&SchemaKey::GlobalId(1)).await.unwrap_err();
    assert_eq!(global.kind(), ErrorKind::Data);

    let mut impatient = config(&server.url());
    impatient.missing_ttl = Duration::ZERO;
    let registry = Registry::open(&impatient).unwrap();
    for _ in 0..2 {
        registry.schema(&SchemaKey::Id(98)).await.unwrap_err();
    }
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_wrong_address_is_no_error_of_records() {
    let server = Server::start(|_| {
        Response::json(404, r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#)
    })
    .await;
    let error = open(&server.url())
        .schema(&SchemaKey::Id(1))
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.kind()),
        ("REGISTRY_ANSWER_INVALID", ErrorKind::Retriable)
    );
    let server = Server::start(|_| Response::json(200, "<html>")).await;
    let error = open(&server.url())
        .schema(&SchemaKey::Id(1))
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.kind()),
        ("REGISTRY_ANSWER_INVALID", ErrorKind::Retriable)
    );
}

// Promise: A registry that fails for a while is asked again; one that stays away is a retriable error.
#[tokio::test]
async fn an_outage_is_retriable() {
    let failures = Arc::new(AtomicUsize::new(2));
    let left = Arc::clone(&failures);
    let server = Server::start(move |request| {
        let before = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        match before {
            Ok(_) => Response::json(503, r#"{"error_code":50003,"message":"no leader"}"#),
            Err(_) => confluent(request),
        }
    })
    .await;
    let registry = open(&server.url());
    assert!(registry.schema(&SchemaKey::Id(1)).await.is_ok());
    assert_eq!(server.requests().len(), 3);

    let url = server.url();
    drop(server);
    let registry = open(&url);
    let error = registry.schema(&SchemaKey::Id(1)).await.unwrap_err();
    assert_eq!(
        (error.code(), error.kind()),
        ("REGISTRY_UNAVAILABLE", ErrorKind::Retriable)
    );
}

#[tokio::test]
async fn a_second_address_serves_when_the_first_does_not() {
    let server = Server::start(confluent).await;
    let down = Server::start(confluent).await;
    let mut both = config(&down.url());
    both.urls.push(server.url());
    drop(down);
    let registry = Registry::open(&both).unwrap();
    assert!(registry.schema(&SchemaKey::Id(1)).await.is_ok());
}

// Promise: The registry's password and token are sent to it and shown nowhere.
#[tokio::test]
async fn logins_are_sent_and_not_shown() {
    let is_right = Arc::new(AtomicBool::new(true));
    let right = Arc::clone(&is_right);
    let server = Server::start(move |request| match right.load(Ordering::SeqCst) {
        true => confluent(request),
        false => Response::json(
            401,
            r#"{"error_code":401,"message":"Unauthorized: token=s3cret"}"#,
        ),
    })
    .await;
    let mut basic = config(&server.url());
    basic.user_info = Some("me:s3cret".into());
    let mut bearer = config(&server.url());
    bearer.token = Some("s3cret".into());
    for (config, expected) in [(basic, "Basic bWU6czNjcmV0"), (bearer, "Bearer s3cret")] {
        is_right.store(true, Ordering::SeqCst);
        let registry = Registry::open(&config).unwrap();
        registry.schema(&SchemaKey::Id(1)).await.unwrap();
        let requests = server.full_requests();
        assert_eq!(requests.last().unwrap().header("authorization"), expected);
        assert!(!format!("{registry:?} {config:?}").contains("s3cret"));
        is_right.store(false, Ordering::SeqCst);
        let error = registry.schema(&SchemaKey::Id(2)).await.unwrap_err();
        assert_eq!(
            (error.code(), error.kind()),
            ("REGISTRY_UNAUTHORIZED", ErrorKind::Config)
        );
        assert!(!error.report().contains("s3cret"), "{}", error.report());
    }
}

#[tokio::test]
async fn references_are_bounded() {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |_| {
        // Each answer names another one.
        let next = count.fetch_add(1, Ordering::SeqCst);
        let answer = format!(
            r#"{{"schema":"x","references":[{{"name":"n","subject":"s{next}","version":1}}]}}"#
        );
        Response::json(200, &answer)
    })
    .await;
    let registry = open(&server.url());
    let error = registry.schema(&SchemaKey::Id(1)).await.unwrap_err();
    assert_eq!(
        (error.code(), error.kind()),
        ("SCHEMA_TOO_LARGE", ErrorKind::Data)
    );
}

#[tokio::test]
async fn apicurio_answers_with_the_schema_itself() {
    let server = Server::start(|request| match request.line.as_str() {
        "GET /apis/registry/v2/ids/globalIds/3" => Response::json(200, r#""string""#),
        "GET /apis/registry/v2/ids/globalIds/3/references" => Response::json(
            200,
            r#"[{"groupId":null,"artifactId":"addr","version":"1","name":"addr.avsc"}]"#,
        ),
        "GET /apis/registry/v2/groups/default/artifacts/addr/versions/1" => {
            Response::json(200, "ADDR")
        }
        "GET /apis/registry/v2/groups/default/artifacts/t-value" => Response::json(200, "\"int\""),
        "GET /apis/ccompat/v7/schemas/ids/3" => Response::json(200, r#"{"schema":"\"long\""}"#),
        "GET /apis/registry/v2/system/info" => Response::json(200, r#"{"name":"Apicurio"}"#),
        _ => Response::json(
            404,
            r#"{"message":"No artifact","error_code":404,"name":"ArtifactNotFoundException"}"#,
        ),
    })
    .await;
    let own = open(&format!("{}/apis/registry/v2", server.url()));
    let schema = own.schema(&SchemaKey::GlobalId(3)).await.unwrap();
    assert_eq!(
        (schema.kind.as_deref(), schema.text.as_str()),
        (None, "\"string\"")
    );
    assert_eq!(
        schema.references,
        [("addr.avsc".to_owned(), "ADDR".to_owned())]
    );
    assert_eq!(
        own.schema(&SchemaKey::Id(3)).await.unwrap().text,
        "\"string\""
    );
    let latest = own
        .schema(&SchemaKey::Subject("t-value".into()))
        .await
        .unwrap();
    assert_eq!(latest.id, apicurio::digest("\"int\""));
    let error = own.schema(&SchemaKey::GlobalId(4)).await.unwrap_err();
    assert_eq!(
        (error.code(), error.kind()),
        ("REGISTRY_SCHEMA_UNKNOWN", ErrorKind::Data)
    );
    own.check().await.unwrap();

    // A global id in a header is not the id of the compatible API.
    let compatible = open(&format!("{}/apis/ccompat/v7", server.url()));
    assert_eq!(
        compatible.schema(&SchemaKey::Id(3)).await.unwrap().text,
        "\"long\""
    );
    let by_header = compatible.schema(&SchemaKey::GlobalId(3)).await.unwrap();
    assert_eq!(by_header.text, "\"string\"");
}

#[test]
fn stores_of_java_are_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Some(path.to_string_lossy().into_owned())
    };
    let cases = [
        (file("a.jks", &[0xfe, 0xed, 0xfe, 0xed]), "export it as PEM"),
        (file("b.pem", b"nothing"), "no PEM certificates"),
        (Some("/nowhere/c.pem".to_owned()), "cannot be read"),
    ];
    for (store, part) in cases {
        let mut wrong = config("http://127.0.0.1:1");
        wrong.truststore = store;
        let error = Registry::open(&wrong).unwrap_err();
        assert_eq!(error.code(), "REGISTRY_TLS_FILE");
        assert!(error.message().contains(part), "{}", error.message());
    }
    let mut wrong = config("http://127.0.0.1:1");
    wrong.keystore = file("d.pem", b"nothing");
    assert_eq!(
        Registry::open(&wrong).unwrap_err().code(),
        "REGISTRY_TLS_FILE"
    );
}
