use super::*;

fn no_properties() -> BTreeMap<String, String> {
    BTreeMap::new()
}

#[tokio::test]
async fn files_with_odd_names_round_trip_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    for base in [
        format!("file://{root}"),
        format!("file:{root}"),
        root.to_string(),
    ] {
        let storage = TableStorage::open(&base, &no_properties(), None).unwrap();
        for name in [
            "a b",
            "a%20b",
            "100%",
            "x#y",
            "q?r=1",
            "ü/ø",
            "deep/er/f.parquet",
        ] {
            let location = format!("{base}/wh/{name}");
            storage
                .put(&location, Bytes::from_static(b"hi"))
                .await
                .unwrap();
            assert!(dir.path().join("wh").join(name).is_file(), "{location}");
            assert_eq!(storage.get(&location).await.unwrap(), "hi");
            assert!(storage.exists(&location).await.unwrap());
            let listed: Vec<_> = storage.list(&format!("{base}/wh")).unwrap().collect().await;
            let listed: Vec<ListedFile> = listed.into_iter().map(Result::unwrap).collect();
            assert_eq!(listed.len(), 1, "{listed:?}");
            assert_eq!(
                (listed[0].location.as_str(), listed[0].bytes),
                (location.as_str(), 2)
            );
            storage.delete(&location).await.unwrap();
            storage.delete(&location).await.unwrap();
            assert!(!storage.exists(&location).await.unwrap());
        }
    }
}

#[tokio::test]
async fn a_missing_file_is_named() {
    let storage = TableStorage::open("memory://missing/t", &no_properties(), None).unwrap();
    let error = storage.get("memory://missing/t/x").await.unwrap_err();
    assert_eq!(error.code(), "STORAGE_NOT_FOUND");
    assert_eq!(error.context()[0].1, "memory://missing/t/x");
}

#[tokio::test]
async fn iceberg_reads_and_writes_through_it() {
    let storage = TableStorage::open("memory://io/t", &no_properties(), None).unwrap();
    let io = storage.file_io();
    let output = io.new_output("memory://io/t/metadata/m.avro").unwrap();
    let mut writer = output.writer().await.unwrap();
    writer.write(Bytes::from(vec![7; 5 << 20])).await.unwrap();
    writer.write(Bytes::from(vec![8; 5 << 20])).await.unwrap();
    writer.close().await.unwrap();
    assert!(writer.close().await.is_err());
    let input = io.new_input("memory://io/t/metadata/m.avro").unwrap();
    assert_eq!(input.metadata().await.unwrap().size, 10 << 20);
    let reader = input.reader().await.unwrap();
    let middle = reader.read((5 << 20) - 1..(5 << 20) + 1).await.unwrap();
    assert_eq!(middle.as_ref(), [7, 8]);
    let error = io
        .new_input("memory://io/t/none")
        .unwrap()
        .read()
        .await
        .unwrap_err();
    let ours = find_sink_error(&error).expect("our error is inside");
    assert_eq!(ours.code(), "STORAGE_NOT_FOUND");
}

#[test]
fn one_client_serves_a_bucket() {
    let keys = [("s3.access-key-id", "a"), ("s3.secret-access-key", "b")];
    let properties = keys
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .into();
    let cache = StoreCache::default();
    let open = |location: &str| TableStorage::open_shared(location, &properties, None, &cache);
    let first = open("s3://wh/db/t1")
        .unwrap()
        .store("s3://wh/db/t1/data/f")
        .unwrap()
        .0;
    let second = open("s3://wh/db/t2")
        .unwrap()
        .store("s3a://wh/db/t2/data/f")
        .unwrap()
        .0;
    assert!(Arc::ptr_eq(&first, &second));
    let other = open("s3://other/t")
        .unwrap()
        .store("s3://other/t/f")
        .unwrap()
        .0;
    assert!(!Arc::ptr_eq(&first, &other));
}

#[test]
fn debug_output_shows_no_key() {
    let properties = BTreeMap::from([
        ("s3.access-key-id".to_string(), "AKIAX".to_string()),
        ("s3.secret-access-key".to_string(), "hunter2".to_string()),
    ]);
    let storage = TableStorage::open("s3://wh/db/t", &properties, None).unwrap();
    let text = format!("{storage:?} {:?}", storage.file_io());
    assert!(
        !text.contains("hunter2") && !text.contains("AKIAX"),
        "{text}"
    );
}

/// Keys that are refused until they have been renewed.
#[derive(Debug, Default)]
struct Renewing(Mutex<u64>);

#[async_trait::async_trait]
impl CredentialSource for Renewing {
    async fn current(&self) -> Result<Arc<Credentials>> {
        Ok(self.latest())
    }

    fn latest(&self) -> Arc<Credentials> {
        let generation = *self.0.lock().unwrap();
        let properties = [
            ("s3.access-key-id", format!("key{generation}")),
            ("s3.secret-access-key", "secret".to_string()),
        ];
        Arc::new(Credentials {
            generation,
            scopes: vec![CredentialScope {
                prefix: "s3://wh/t".to_string(),
                properties: properties
                    .map(|(key, value)| (key.to_string(), value))
                    .into(),
            }],
        })
    }

    async fn refused(&self, generation: u64) -> Result<()> {
        let mut current = self.0.lock().unwrap();
        if *current == generation {
            *current += 1;
        }
        Ok(())
    }
}

#[tokio::test]
async fn refused_vended_keys_are_renewed_once_also_within_an_upload() {
    use crate::test_server::{Response, Server};
    let server = Server::start(|request| {
        if !request.header("authorization").contains("Credential=key1/") {
            return Response::xml(403, "<Error><Code>InvalidAccessKeyId</Code></Error>");
        }
        if request.line.starts_with("POST /wh/t/big?uploads") {
            let id = "<UploadId>u</UploadId>";
            let body =
                format!("<InitiateMultipartUploadResult>{id}</InitiateMultipartUploadResult>");
            return Response::xml(200, &body);
        }
        if request.line.starts_with("POST /wh/t/big?uploadId=u") {
            let body =
                "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>";
            return Response::xml(200, body);
        }
        let stored = match request.line.starts_with("HEAD ") {
            true => "x",
            false => "",
        };
        Response::xml(200, stored)
            .with_header("ETag", "\"e\"")
            .with_header("Last-Modified", "Sun, 29 Nov 2026 00:00:00 GMT")
    })
    .await;
    let properties = BTreeMap::from([("s3.endpoint".to_string(), server.url())]);
    let source = Arc::new(Renewing::default());
    let storage = TableStorage::open("s3://wh/t", &properties, Some(source.clone())).unwrap();
    storage
        .put("s3://wh/t/f", Bytes::from_static(b"x"))
        .await
        .unwrap();
    let requests = server.requests(); // refused, taken, looked at
    assert_eq!(requests.len(), 3, "{requests:?}");

    let (store, path) = storage.store("s3://wh/t/big").unwrap();
    let mut upload = store.put_multipart(&path).await.unwrap();
    upload
        .put_part(Bytes::from_static(b"1").into())
        .await
        .unwrap();
    *source.0.lock().unwrap() = 0; // keys that are refused again, in the middle
    upload
        .put_part(Bytes::from_static(b"2").into())
        .await
        .unwrap();
    upload.complete().await.unwrap();
    let parts: Vec<String> = server
        .requests()
        .into_iter()
        .filter(|line| line.starts_with("PUT /wh/t/big"))
        .collect();
    assert_eq!(parts.len(), 3, "{parts:?}");
    assert_eq!(parts[1], parts[2], "the refused part keeps its number");
    *source.0.lock().unwrap() = 5; // refused after renewal too
    let error = storage
        .put("s3://wh/t/f", Bytes::from_static(b"x"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "STORAGE_KEYS_REFUSED");

    let error = storage.store("s3://other/t/f").unwrap_err();
    assert_eq!(error.code(), "STORAGE_CREDENTIALS_MISSING");
}
