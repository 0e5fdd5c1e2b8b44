//! A store that speaks as much of S3 as the plugin does, and falls silent when it is told to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// Answers on a free port for as long as the process lives.
pub(crate) struct Store {
    port: u16,
    kept: Arc<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Objects by their paths; parts of uploads with a number behind theirs.
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    silent: Mutex<bool>,
    speaks: Condvar,
}

/// One request: the method, the path, the query, the range that is asked for, and the body.
struct Asked {
    method: String,
    path: String,
    query: String,
    range: Option<(usize, usize)>,
    body: Vec<u8>,
}

struct Answer {
    status: u16,
    /// The length that is said of an object whose bytes are not sent.
    length: Option<usize>,
    body: Vec<u8>,
}

impl Store {
    pub(crate) fn start() -> Store {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let kept = Arc::new(Kept::default());
        let of_thread = Arc::clone(&kept);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, kept) = (stream.unwrap(), Arc::clone(&of_thread));
                thread::spawn(move || serve(&stream, &kept));
            }
        });
        Store { port, kept }
    }

    /// The settings of a connector whose warehouse is here.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("iceberg.catalog.warehouse", "s3://bucket/w".to_owned()),
            (
                "iceberg.catalog.s3.endpoint",
                format!("http://127.0.0.1:{}", self.port),
            ),
            ("iceberg.catalog.s3.region", "here".to_owned()),
            ("iceberg.catalog.s3.access-key-id", "key".to_owned()),
            ("iceberg.catalog.s3.secret-access-key", "secret".to_owned()),
        ]
    }

    /// From now on requests are taken, and not answered.
    pub(crate) fn falls_silent(&self) {
        *self.kept.silent.lock().unwrap() = true;
    }

    /// All requests are answered, those that wait too.
    pub(crate) fn speaks_again(&self) {
        *self.kept.silent.lock().unwrap() = false;
        self.kept.speaks.notify_all();
    }
}

fn serve(stream: &TcpStream, kept: &Kept) {
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read(&mut reader) {
        let silent = kept.silent.lock().unwrap();
        drop(kept.speaks.wait_while(silent, |silent| *silent).unwrap());
        let answer = answer(kept, &asked);
        let length = answer.length.unwrap_or(answer.body.len());
        let head = format!(
            "HTTP/1.1 {} X\r\nContent-Length: {length}\r\nETag: \"tag\"\r\n\
             Last-Modified: Tue, 01 Dec 2026 00:00:00 GMT\r\n{}\r\n",
            answer.status,
            content_range(&asked, answer.status, length),
        );
        let mut stream = stream;
        // A client that went away needs no answer.
        let sent = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(&answer.body));
        if sent.is_err() {
            return;
        }
    }
}

fn content_range(asked: &Asked, status: u16, length: usize) -> String {
    match (asked.range, status) {
        (Some((start, _)), 206) => {
            let last = start + length - 1;
            format!("Content-Range: bytes {start}-{last}/{}\r\n", last + 1)
        }
        _ => String::new(),
    }
}

fn read(reader: &mut BufReader<&TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let (mut length, mut range) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "range" => {
                let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
                range = Some((first.parse().ok()?, last.parse().unwrap_or(usize::MAX - 1)));
            }
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Asked {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        range,
        body,
    })
}

fn answer(kept: &Kept, asked: &Asked) -> Answer {
    let mut objects = kept.objects.lock().unwrap();
    let part = asked
        .query
        .split('&')
        .find_map(|one| one.strip_prefix("partNumber="));
    let (status, body) = match (asked.method.as_str(), part) {
        ("PUT", Some(part)) => {
            let number: usize = part.parse().unwrap();
            objects.insert(format!("{}#{number:05}", asked.path), asked.body.clone());
            (200, Vec::new())
        }
        ("PUT", None) => {
            objects.insert(asked.path.clone(), asked.body.clone());
            (200, Vec::new())
        }
        ("POST", _) if asked.query.starts_with("uploads") => {
            let id = "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>";
            (200, id.as_bytes().to_vec())
        }
        ("POST", _) => {
            let parts = format!("{}#", asked.path);
            let is_part = |path: &&String| path.starts_with(&parts);
            let names: Vec<String> = objects.keys().filter(is_part).cloned().collect();
            let parts = names.iter().filter_map(|name| objects.remove(name));
            let whole: Vec<u8> = parts.flatten().collect();
            objects.insert(asked.path.clone(), whole);
            let done =
                "<CompleteMultipartUploadResult><ETag>tag</ETag></CompleteMultipartUploadResult>";
            (200, done.as_bytes().to_vec())
        }
        ("DELETE", _) => {
            objects.remove(&asked.path);
            (204, Vec::new())
        }
        _ => match (objects.get(&asked.path), asked.range) {
            (None, _) => (404, Vec::new()),
            (Some(bytes), Some((first, last))) => {
                (206, bytes[first..bytes.len().min(last + 1)].to_vec())
            }
            (Some(bytes), None) => (200, bytes.clone()),
        },
    };
    match asked.method.as_str() {
        "HEAD" => Answer {
            status,
            length: Some(body.len()),
            body: Vec::new(),
        },
        _ => Answer {
            status,
            length: None,
            body,
        },
    }
}
