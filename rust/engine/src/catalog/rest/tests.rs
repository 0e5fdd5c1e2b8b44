use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::test_server::{Request, Response, Server};
use iceberg::spec::{FormatVersion, TableMetadata, TableMetadataBuilder};

const TABLE: &str = "/v1/namespaces/db/tables/t";

fn ident() -> TableIdent {
    TableIdent::from_strs(["db", "t"]).unwrap()
}

fn metadata(location: &str) -> TableMetadata {
    let creation = iceberg::TableCreation {
        name: "t".into(),
        location: Some(location.into()),
        schema: iceberg::spec::Schema::builder().build().unwrap(),
        partition_spec: None,
        sort_order: None,
        properties: [("state".to_string(), "1".to_string())].into(),
        format_version: FormatVersion::V2,
    };
    let builder = TableMetadataBuilder::from_table_creation(creation).unwrap();
    builder.build().unwrap().metadata
}

fn table_json(location: &str, extra: &str) -> String {
    let metadata = serde_json::to_string(&metadata(location)).unwrap();
    format!(r#"{{"metadata-location":"{location}/metadata/0.json","metadata":{metadata}{extra}}}"#)
}

fn is_config(request: &Request) -> bool {
    request.line.starts_with("GET /v1/config")
}

fn catalog(server: &Server, properties: &[(&str, &str)]) -> RestCatalog {
    let mut all = BTreeMap::from([("uri".to_string(), server.url())]);
    all.extend(
        properties
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string())),
    );
    RestCatalog::new(&all).unwrap()
}

fn commit() -> TableCommit {
    TableCommit {
        requirements: Vec::new(),
        updates: vec![TableUpdate::SetProperties {
            updates: [("k".to_string(), "v".to_string())].into(),
        }],
        idempotency_key: Uuid::now_v7(),
    }
}

/// Submits one commit to a catalog whose only fault is its answer to that.
async fn outcome_of(
    answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
    properties: &[(&str, &str)],
) -> (CommitOutcome, Server) {
    let server = Server::start(move |request| {
        if is_config(request) {
            Response::json(200, "{}")
        } else if request.line.starts_with("GET ") {
            Response::json(200, &table_json("memory://rest/t", ""))
        } else {
            answer(request)
        }
    })
    .await;
    let catalog = catalog(&server, properties);
    let base = catalog.load_table(&ident()).await.unwrap();
    (catalog.commit(&base, commit()).await, server)
}

fn posts(server: &Server) -> usize {
    server
        .requests()
        .iter()
        .filter(|line| line.starts_with("POST /v1/namespaces/db"))
        .count()
}

#[tokio::test]
async fn every_status_of_a_commit_means_what_the_protocol_says() {
    let error = r#"{"error":{"message":"why","type":"SomeException","code":1}}"#;
    for (status, expected) in [
        (400, "Refused"),
        (404, "Refused"),
        (422, "Refused"),
        (307, "Refused"),
        (401, "Unauthorized"),
        (403, "Unauthorized"),
        (409, "Conflict"),
        (429, "Unknown"),
        (500, "Unknown"),
        (502, "Unknown"),
        (503, "Unknown"),
        (504, "Unknown"),
        (204, "Unknown"),
    ] {
        let body = if status == 204 { "" } else { error };
        let (outcome, server) = outcome_of(move |_| Response::json(status, body), &[]).await;
        let text = format!("{outcome:?}");
        assert!(text.starts_with(expected), "{status}: {text}");
        assert_eq!(posts(&server), 1, "{status}: a commit is sent once");
    }
}

#[tokio::test]
async fn a_commit_is_committed_with_the_metadata_of_its_answer() {
    let (outcome, server) = outcome_of(
        |_| Response::json(200, &table_json("memory://rest/t", "")),
        &[],
    )
    .await;
    let CommitOutcome::Committed(table) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(table.metadata.properties()["state"], "1");
    let requests = server.full_requests();
    let post = requests
        .iter()
        .find(|request| request.line.starts_with("POST"))
        .unwrap();
    assert_eq!(post.line, format!("POST {TABLE}"));
    let body: serde_json::Value = serde_json::from_str(&post.body).unwrap();
    assert_eq!(
        body["identifier"],
        json!({"namespace": ["db"], "name": "t"})
    );
    assert_eq!(body["updates"][0]["action"], "set-properties");
    assert_eq!(
        post.header("idempotency-key"),
        "",
        "not promised by the server"
    );
}

#[tokio::test]
async fn a_broken_slow_or_foreign_answer_leaves_the_outcome_unknown() {
    let whole = table_json("memory://rest/t", "");
    let cut = Response::json(200, &whole).cut_at(20);
    let (outcome, server) = outcome_of(move |_| cut.clone(), &[]).await;
    assert!(
        matches!(&outcome, CommitOutcome::Unknown(error) if error.code() == "COMMIT_UNKNOWN"),
        "{outcome:?}"
    );
    assert_eq!(posts(&server), 1);

    let slow = Response::json(200, &whole).delayed(Duration::from_secs(5));
    let (outcome, server) = outcome_of(
        move |_| slow.clone(),
        &[("rest.client.socket-timeout-ms", "200")],
    )
    .await;
    assert!(matches!(&outcome, CommitOutcome::Unknown(_)), "{outcome:?}");
    assert_eq!(posts(&server), 1);

    let (outcome, _) = outcome_of(|_| Response::json(200, "<html>"), &[]).await;
    assert!(matches!(&outcome, CommitOutcome::Unknown(_)), "{outcome:?}");
}

#[tokio::test]
async fn reads_are_repeated_and_a_server_may_ask_for_patience() {
    let tries = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        if is_config(request) {
            return Response::json(200, "{}");
        }
        match tries.fetch_add(1, Ordering::SeqCst) {
            0 => Response::json(503, "{}").with_header("Retry-After", "0"),
            1 => Response::json(200, &table_json("memory://rest/t", "")).cut_at(9),
            2 => Response::json(429, "{}"),
            _ => Response::json(200, &table_json("memory://rest/t", "")),
        }
    })
    .await;
    let table = catalog(&server, &[]).load_table(&ident()).await.unwrap();
    assert_eq!(
        table.metadata_location.as_deref(),
        Some("memory://rest/t/metadata/0.json")
    );
    assert_eq!(server.requests().len(), 5);
    assert_eq!(server.requests()[1], format!("GET {TABLE}?snapshots=all"));
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host_only() {
    let other = Server::start(|_| Response::json(200, &table_json("memory://rest/t", ""))).await;
    let target = other.url();
    let server = Server::start(move |request| {
        if is_config(request) {
            Response::json(200, "{}")
        } else if request.line.contains("/tables/near") {
            Response::json(307, "").with_header("Location", "/moved")
        } else if request.line == "GET /moved" {
            Response::json(200, &table_json("memory://rest/t", ""))
        } else {
            Response::json(307, "").with_header("Location", &target)
        }
    })
    .await;
    let catalog = catalog(&server, &[("token", "canary")]);
    let near = TableIdent::from_strs(["db", "near"]).unwrap();
    catalog.load_table(&near).await.unwrap();
    let error = catalog.load_table(&ident()).await.unwrap_err();
    assert_eq!(error.code(), "CATALOG_REDIRECT");
    assert_eq!(other.requests().len(), 0, "no token goes to another host");
}

/// A catalog with a token server that gives `token<n>` and lets only the newest in.
async fn token_server(expires_in: u64) -> Server {
    let issued = AtomicUsize::new(0);
    Server::start(move |request| {
        if request.line == "POST /v1/oauth/tokens" {
            if !request.body.contains("client_secret=s%26cret") {
                return Response::json(401, r#"{"error":"invalid_client","error_description":"s&cret"}"#);
            }
            let number = issued.fetch_add(1, Ordering::SeqCst) + 1;
            return Response::json(200, &format!(r#"{{"access_token":"token{number}","token_type":"bearer","expires_in":{expires_in}}}"#));
        }
        let newest = issued.load(Ordering::SeqCst);
        let revoked = request.line.contains("/tables/revoked") && newest < 2;
        if revoked || request.header("authorization") != format!("Bearer token{newest}") {
            return Response::json(401, r#"{"error":{"message":"no","type":"NotAuthorizedException","code":401}}"#);
        }
        if is_config(request) {
            return Response::json(200, "{}");
        }
        Response::json(200, &table_json("memory://rest/t", ""))
    })
    .await
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_for_all_who_hold_it() {
    let server = token_server(3600).await;
    let catalog = catalog(&server, &[("credential", "me:s&cret"), ("scope", "a b")]);
    catalog.load_table(&ident()).await.unwrap();
    let token = server.full_requests()[0].clone();
    assert_eq!(
        token.body,
        "grant_type=client_credentials&client_id=me&client_secret=s%26cret&scope=a+b"
    );
    let revoked = TableIdent::from_strs(["db", "revoked"]).unwrap();
    let all = futures::future::join_all((0..4).map(|_| catalog.load_table(&revoked))).await;
    assert!(all.iter().all(|table| table.is_ok()), "{all:?}");
    let tokens = server
        .requests()
        .iter()
        .filter(|line| line.contains("oauth"))
        .count();
    assert_eq!(tokens, 2);
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends() {
    let server = token_server(2).await;
    let catalog = catalog(&server, &[("credential", "me:s&cret")]);
    catalog.load_table(&ident()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_850)).await;
    catalog.load_table(&ident()).await.unwrap();
    let requests = server.requests();
    assert_eq!(
        requests
            .iter()
            .filter(|line| line.contains("oauth"))
            .count(),
        2,
        "{requests:?}"
    );
    assert_eq!(requests.len(), 5, "nobody was refused: {requests:?}");
}

#[tokio::test]
async fn wrong_credentials_are_named_without_showing_them() {
    let server = token_server(3600).await;
    let error = catalog(&server, &[("credential", "me:wrong")])
        .check()
        .await
        .unwrap_err();
    assert_eq!(error.code(), "CATALOG_UNAUTHORIZED");
    assert!(
        !error.report().contains("wrong") && !error.report().contains("s&cret"),
        "{}",
        error.report()
    );
    let stale = catalog(
        &server,
        &[("token", "stale"), ("s3.secret-access-key", "canary")],
    );
    let text = format!("{stale:?}");
    assert!(
        !text.contains("stale") && !text.contains("canary"),
        "{text}"
    );
    let error = stale.check().await.unwrap_err();
    assert_eq!(error.code(), "CATALOG_UNAUTHORIZED");
    assert!(!error.report().contains("stale"), "{}", error.report());
}

fn vended(number: usize, life_ms: u64) -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let end = now.as_millis() as u64 + life_ms;
    format!(
        r#","storage-credentials":[{{"prefix":"s3://wh/t","config":{{"s3.access-key-id":"key{number}",
        "s3.secret-access-key":"canary","s3.session-token":"canary","s3.session-token-expires-at-ms":"{end}"}}}}]"#
    )
}

/// Runs a catalog that vends keys, with these answers to `/v1/config` and this `config` of the
/// table, and returns it with a loaded table after the keys came close to their end.
async fn after_the_first_keys(config: &'static str, table: &'static str) -> (Server, TableStorage) {
    let number = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        if is_config(request) {
            return Response::json(200, config);
        }
        if request.header("x-iceberg-access-delegation") != "vended-credentials" {
            return Response::json(200, &table_json("s3://wh/t", ""));
        }
        let vended = vended(number.fetch_add(1, Ordering::SeqCst) + 1, 3_000);
        if request.line.ends_with("/credentials") {
            return Response::json(200, &format!("{{{}}}", vended.trim_start_matches(',')));
        }
        let extra = format!(r#"{vended},"config":{table}"#);
        Response::json(200, &table_json("s3://wh/t", &extra))
    })
    .await;
    let catalog = catalog(&server, &[]);
    let table = catalog.load_table(&ident()).await.unwrap();
    assert!(table.storage.is_vended());
    let source = catalog.tables.lock().unwrap()[&ident()]
        .credentials
        .clone()
        .unwrap();
    assert_eq!(
        source.latest().scopes[0].properties["s3.access-key-id"],
        "key1"
    );
    tokio::time::sleep(Duration::from_millis(2_750)).await;
    let many = futures::future::join_all((0..5).map(|_| source.current())).await;
    assert!(many.iter().all(|keys| keys.is_ok()));
    assert_eq!(
        source.latest().scopes[0].properties["s3.access-key-id"],
        "key2"
    );
    (server, table.storage)
}

#[tokio::test]
async fn keys_are_renewed_through_their_endpoint_where_there_is_one() {
    let config =
        r#"{"endpoints":["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"]}"#;
    let (server, _) = after_the_first_keys(config, "{}").await;
    let requests = server.requests();
    assert_eq!(requests.len(), 3, "{requests:?}");
    assert_eq!(requests[2], format!("GET {TABLE}/credentials"));

    let table = r#"{"client.refresh-credentials-endpoint":"v1/own/credentials"}"#;
    let (server, _) = after_the_first_keys("{}", table).await;
    assert_eq!(server.requests()[2], "GET /v1/own/credentials");
}

#[tokio::test]
async fn keys_are_renewed_by_loading_the_table_elsewhere() {
    let (server, storage) = after_the_first_keys("{}", "{}").await;
    let requests = server.requests();
    assert_eq!(requests.len(), 3, "{requests:?}");
    assert_eq!(requests[2], format!("GET {TABLE}"));
    assert!(!format!("{storage:?}").contains("canary"));
}

#[tokio::test]
async fn loads_share_one_storage_and_keys_of_the_user_win() {
    let server = Server::start(|request| match is_config(request) {
        true => Response::json(200, "{}"),
        false => Response::json(200, &table_json("s3://wh/t", &vended(1, 900_000))),
    })
    .await;
    let vending = catalog(&server, &[]);
    let first = vending.load_table(&ident()).await.unwrap().storage;
    // The uuid is new in each answer of this server: another table of the same name.
    let second = vending.load_table(&ident()).await.unwrap().storage;
    assert!(first.is_vended() && second.is_vended());
    let own = catalog(
        &server,
        &[("s3.access-key-id", "a"), ("s3.secret-access-key", "b")],
    );
    assert!(!own.load_table(&ident()).await.unwrap().storage.is_vended());
    let last = server.full_requests().pop().unwrap();
    assert_eq!(last.header("x-iceberg-access-delegation"), "");
}

#[tokio::test]
async fn names_headers_and_the_warehouse_arrive_as_they_are() {
    let server = Server::start(|request| match is_config(request) {
        true => Response::json(
            200,
            r#"{"overrides":{"prefix":"p/q"},"idempotency-key-lifetime":"PT1H"}"#,
        ),
        false => Response::json(200, &table_json("memory://rest/t", "")),
    })
    .await;
    let catalog = catalog(
        &server,
        &[("warehouse", "s3://wh&x"), ("header.X-Custom", "1")],
    );
    let odd = TableIdent::from_strs(["a", "b c", "t#1?x"]).unwrap();
    let base = catalog.load_table(&odd).await.unwrap();
    assert!(matches!(
        catalog.commit(&base, commit()).await,
        CommitOutcome::Committed(_)
    ));
    let requests = server.full_requests();
    assert_eq!(
        requests[0].line,
        "GET /v1/config?warehouse=s3%3A%2F%2Fwh%26x"
    );
    assert_eq!(
        requests[1].line,
        "GET /v1/p/q/namespaces/a%1Fb%20c/tables/t%231%3Fx?snapshots=all"
    );
    assert_eq!(
        requests[2].line,
        "POST /v1/p/q/namespaces/a%1Fb%20c/tables/t%231%3Fx"
    );
    assert!(
        requests
            .iter()
            .all(|request| request.header("x-custom") == "1")
    );
    assert_eq!(requests[2].header("idempotency-key").len(), 36);
}

#[tokio::test]
async fn creating_asks_for_the_version_and_maps_what_is_missing() {
    let server = Server::start(|request| {
        if is_config(request) {
            Response::json(200, "{}")
        } else if request.line.contains("/namespaces/there/") {
            Response::json(200, &table_json("memory://rest/t", ""))
        } else if request.line.contains("/namespaces/full/") {
            Response::json(
                409,
                r#"{"error":{"message":"x","type":"AlreadyExistsException","code":409}}"#,
            )
        } else {
            Response::json(
                404,
                r#"{"error":{"message":"x","type":"NoSuchNamespaceException","code":404}}"#,
            )
        }
    })
    .await;
    let catalog = catalog(&server, &[]);
    let table = || CreateTable {
        schema: iceberg::spec::Schema::builder().build().unwrap(),
        partition_spec: None,
        sort_order: None,
        location: None,
        properties: BTreeMap::new(),
        format_version: FormatVersion::V3,
    };
    let create = async |namespace: &str| {
        let ident = TableIdent::from_strs([namespace, "t"]).unwrap();
        catalog.create_table(&ident, table()).await
    };
    create("there").await.unwrap();
    let body: serde_json::Value = serde_json::from_str(&server.full_requests()[1].body).unwrap();
    assert_eq!(body["properties"]["format-version"], "3");
    assert_eq!(create("full").await.unwrap_err().code(), "TABLE_EXISTS");
    assert_eq!(
        create("gone").await.unwrap_err().code(),
        "NAMESPACE_NOT_FOUND"
    );
}

#[tokio::test]
async fn a_foreign_server_and_a_dead_one_are_told_apart() {
    let server = Server::start(|_| Response::json(200, "<html>hello canary</html>")).await;
    let error = catalog(&server, &[]).check().await.unwrap_err();
    assert_eq!(error.code(), "CATALOG_ANSWER_INVALID");
    assert!(!error.report().contains("canary"), "{}", error.report());
    for uri in [
        "nowhere",
        "ftp://h",
        "https://user:pw@h/",
        "https://h/?token=x",
    ] {
        let properties = BTreeMap::from([("uri".to_string(), uri.to_string())]);
        let error = RestCatalog::new(&properties).unwrap_err();
        assert_eq!(error.code(), "CATALOG_PROPERTY_INVALID", "{uri}");
    }
}
