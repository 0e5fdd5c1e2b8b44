//! A loopback HTTP server for unit tests: answers by a function, remembers what was asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Method and target, such as `GET /v1/config`.
    pub(crate) line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    /// The value of a header, or nothing.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map_or("", |(_, value)| value)
    }
}

/// One answer, whole or broken.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    delay: Duration,
    /// Bytes of the body after which the connection is reset.
    cut_at: Option<usize>,
}

impl Response {
    pub(crate) fn json(status: u16, body: &str) -> Response {
        Response {
            status,
            headers: vec![("Content-Type".into(), "application/json".into())],
            body: body.to_string(),
            delay: Duration::ZERO,
            cut_at: None,
        }
    }

    pub(crate) fn xml(status: u16, body: &str) -> Response {
        Response {
            headers: vec![("Content-Type".into(), "application/xml".into())],
            ..Response::json(status, body)
        }
    }

    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Response {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn delayed(mut self, delay: Duration) -> Response {
        self.delay = delay;
        self
    }

    /// Sends the head and this many bytes of the body, then closes.
    pub(crate) fn cut_at(mut self, bytes: usize) -> Response {
        self.cut_at = Some(bytes);
        self
    }
}

/// See the module; it stops when it is dropped.
pub(crate) struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
    accept: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

impl Server {
    pub(crate) async fn start(
        answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (answer, seen) = (Arc::new(answer), requests.clone());
        let accept = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, seen) = (answer.clone(), seen.clone());
                tokio::spawn(async move {
                    serve(stream, &*answer, &seen).await;
                });
            }
        });
        Server {
            port,
            requests,
            accept,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Method and target of all requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .map(|request| request.line.clone())
            .collect()
    }

    /// All requests so far.
    pub(crate) fn full_requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

/// Serves one request per connection; a broken connection ends it, as with any server.
async fn serve(
    mut stream: TcpStream,
    answer: &(impl Fn(&Request) -> Response + Sync),
    seen: &Mutex<Vec<Request>>,
) {
    let Some(request) = read(&mut stream).await else {
        return;
    };
    seen.lock().unwrap().push(request.clone());
    let response = answer(&request);
    tokio::time::sleep(response.delay).await;
    let length = response.body.len();
    let mut text = format!(
        "HTTP/1.1 {} X\r\nContent-Length: {length}\r\nConnection: close\r\n",
        response.status
    );
    for (name, value) in &response.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.push_str(&response.body[..response.cut_at.unwrap_or(length)]);
    if stream.write_all(text.as_bytes()).await.is_ok() {
        // A client that has gone away already does not matter to the test.
        drop(stream.shutdown().await);
    }
}

async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut lines = head.lines();
    let line = lines.next()?.trim_end_matches(" HTTP/1.1").to_string();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    let mut request = Request {
        line,
        headers,
        body: String::new(),
    };
    let length: usize = request.header("content-length").parse().unwrap_or(0);
    while bytes.len() < head_end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    request.body = String::from_utf8_lossy(&bytes[head_end + 4..]).into_owned();
    Some(request)
}
