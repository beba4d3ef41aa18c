//! A hub on the loopback address: a tiny repository, ranges, cut connections, refusals and lies.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::*;
use crate::fixtures::{Log, code, settings, sha256};
use crate::{ModelSource, ModelStore, Pins};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What a request says and what the hub does about it.
struct Request {
    path: String,
    range_start: Option<usize>,
    token: Option<String>,
    /// How many requests for this path came before, probes for one byte apart.
    nth: usize,
}

struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Close the connection after this many bytes of the body.
    cut_after: Option<usize>,
}

impl Reply {
    fn status(status: u16) -> Reply {
        Reply { status, headers: Vec::new(), body: Vec::new(), cut_after: None }
    }
}

/// A server that answers each connection once, by a function.
struct Server {
    endpoint: String,
    log: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(answer: impl Fn(&Request) -> Reply + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (log, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::spawn({
            let (log, stop) = (Arc::clone(&log), Arc::clone(&stop));
            move || {
                for stream in listener.incoming() {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    serve(stream.unwrap(), &log, &answer);
                }
            }
        });
        Server { endpoint, log, stop, thread: Some(thread) }
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.endpoint.trim_start_matches("http://"));
        self.thread.take().unwrap().join().unwrap();
    }
}

fn serve(mut stream: TcpStream, log: &Mutex<Vec<String>>, answer: &impl Fn(&Request) -> Reply) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(first)) = lines.next() else { return };
    let path = first.split(' ').nth(1).unwrap().to_owned();
    let headers: Vec<(String, String)> = lines
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| {
            line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        })
        .collect();
    let header =
        |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
    let range = header("range").unwrap_or_default();
    let entry = format!("{path} {range}");
    let is_probe = range == "bytes=0-0";
    let mut log = log.lock().unwrap();
    let same = |line: &&String| line.split(' ').next() == Some(path.as_str()) && !line.ends_with("=0-0");
    let nth = log.iter().filter(same).count();
    log.push(entry.trim_end().to_owned());
    drop(log);
    let range_start = range.strip_prefix("bytes=").and_then(|range| range.split('-').next()?.parse().ok());
    let request = Request { path, range_start, token: header("authorization"), nth };
    let mut reply = answer(&request);
    if is_probe {
        reply.body.truncate(1);
        reply.cut_after = None;
    }
    let mut head = format!(
        "HTTP/1.1 {} X\r\nConnection: close\r\nContent-Length: {}\r\n",
        reply.status,
        reply.body.len()
    );
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let body = &reply.body[..reply.cut_after.unwrap_or(reply.body.len()).min(reply.body.len())];
    let _ = stream.write_all((head + "\r\n").as_bytes()).and_then(|()| stream.write_all(body));
    let _ = stream.flush();
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.read(&mut [0; 16]);
}

/// The files of the tiny repository; large files have their SHA-256 as entity tag.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("README.md", b"read".to_vec()),
        ("config.json", b"{\"model_type\":\"llama\"}".to_vec()),
        ("model.safetensors", (0..300_000_u32).map(|i| ((i * 31) >> 3) as u8).collect()),
        ("q/tiny.gguf", vec![3; 1000]),
    ]
}

/// A well-behaved hub.
fn honest(request: &Request) -> Reply {
    if let Some(revision) = request.path.strip_prefix("/api/models/own/tiny/revision/") {
        if !matches!(revision, "main" | "v1" | COMMIT) {
            return Reply::status(404);
        }
        let siblings: Vec<_> =
            files().iter().map(|(name, _)| serde_json::json!({ "rfilename": name })).collect();
        let body = serde_json::json!({ "sha": COMMIT, "siblings": siblings }).to_string().into_bytes();
        return Reply { body, ..Reply::status(200) };
    }
    let name = request.path.strip_prefix(&format!("/own/tiny/resolve/{COMMIT}/")).unwrap_or("");
    match files().into_iter().find(|(known, _)| *known == name) {
        Some((_, data)) => ranged(&data, request.range_start.unwrap_or(0)),
        None => Reply::status(404),
    }
}

fn ranged(data: &[u8], start: usize) -> Reply {
    if start >= data.len() {
        return Reply::status(416);
    }
    let etag = if data.len() > 500 { sha256(data) } else { sha256(data)[..40].to_owned() };
    let headers = vec![
        ("ETag", format!("\"{etag}\"")),
        ("X-Repo-Commit", COMMIT.to_owned()),
        ("Content-Range", format!("bytes {start}-{}/{}", data.len() - 1, data.len())),
    ];
    Reply { headers, body: data[start..].to_vec(), ..Reply::status(206) }
}

fn weights() -> Vec<u8> {
    files()[2].1.clone()
}

const WEIGHTS: &str = "/own/tiny/resolve/0123456789abcdef0123456789abcdef01234567/model.safetensors";

fn with_hub(
    answer: impl Fn(&Request) -> Reply + Send + 'static,
    token: Option<&str>,
    test: impl FnOnce(&Server, &ModelStore),
) {
    let server = Server::start(answer);
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        hub_endpoint: server.endpoint.clone(),
        hub_token: token.map(str::to_owned),
        ..settings(folder.path())
    };
    test(&server, &ModelStore::with_settings(settings));
}

fn fetch(store: &ModelStore, text: &str) -> Result<crate::LocalModel, ModelsError> {
    store.fetch(&text.parse::<ModelSource>().unwrap(), &Pins::NONE, &mut ())
}

#[test]
fn a_repository_becomes_a_cached_folder() {
    with_hub(honest, None, |server, store| {
        let source = "hf:own/tiny".parse().unwrap();
        let pins = Pins::new([("model.safetensors", sha256(&weights()))]).unwrap();
        let mut log = Log::default();
        let model = store.fetch(&source, &pins, &mut log).unwrap();
        assert_eq!(model.revision.as_deref(), Some(COMMIT));
        let names: Vec<&str> = model.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["config.json", "model.safetensors"]);
        assert_eq!(std::fs::read(model.path.join("model.safetensors")).unwrap(), weights());
        assert!(log.0.contains(&"total 300000".to_owned()) && log.0.contains(&"advance 300000".to_owned()));
        let asked = server.log().len();
        assert_eq!(store.fetch(&source, &pins, &mut ()).unwrap(), model);
        assert_eq!(server.log().len(), asked, "a cached model asks nobody");
        let left = std::fs::read_dir(model.path.parent().unwrap()).unwrap().count();
        assert_eq!(left, 2, "the model and its record, nothing of the hub's cache");
    });
}

#[test]
fn one_gguf_file_and_a_revision_can_be_named() {
    with_hub(honest, None, |server, store| {
        let model = fetch(store, "hf:own/tiny@v1:q/tiny.gguf").unwrap();
        assert!(model.path.ends_with("model/tiny.gguf"));
        assert_eq!(std::fs::read(&model.path).unwrap(), vec![3; 1000]);
        assert!(!server.log().iter().any(|line| line.contains("safetensors")));
    });
}

#[test]
fn a_cut_connection_goes_on_where_it_stopped() {
    let cut = |request: &Request| match (request.path.as_str(), request.nth) {
        (WEIGHTS, 0) => Reply { cut_after: Some(100_000), ..honest(request) },
        _ => honest(request),
    };
    with_hub(cut, None, |server, store| {
        let model = fetch(store, "hf:own/tiny").unwrap();
        assert_eq!(std::fs::read(model.path.join("model.safetensors")).unwrap(), weights());
        let ranges: Vec<String> = server.log().into_iter().filter(|line| line.starts_with(WEIGHTS)).collect();
        let starts = ranges.iter().filter(|line| !line.ends_with("=0-0")).collect::<Vec<_>>();
        assert_eq!(starts, [&format!("{WEIGHTS} bytes=0-"), &format!("{WEIGHTS} bytes=100000-")]);
    });
}

#[test]
fn a_fetch_that_gave_up_goes_on_the_next_time() {
    let fails = |request: &Request| match (request.path.as_str(), request.nth) {
        (WEIGHTS, 0) => Reply { cut_after: Some(200_000), ..honest(request) },
        (WEIGHTS, nth) if nth < ATTEMPTS as usize && request.range_start != Some(0) => Reply::status(503),
        _ => honest(request),
    };
    with_hub(fails, None, |server, store| {
        assert_eq!(code(fetch(store, "hf:own/tiny")), "models.network");
        let model = fetch(store, "hf:own/tiny").unwrap();
        assert_eq!(std::fs::read(model.path.join("model.safetensors")).unwrap(), weights());
        let whole = format!("{WEIGHTS} bytes=0-");
        assert_eq!(
            server.log().iter().filter(|line| **line == whole).count(),
            1,
            "never from the beginning again"
        );
        let config = server
            .log()
            .iter()
            .filter(|line| line.contains("config.json bytes=0-") && !line.ends_with("-0"))
            .count();
        assert_eq!(config, 1, "whole files are not fetched again");
    });
}

#[test]
fn a_server_without_ranges_costs_a_restart_never_a_wrong_file() {
    let no_ranges = |request: &Request| match (request.path.as_str(), request.nth) {
        (WEIGHTS, 0) => Reply { cut_after: Some(100_000), ..honest(request) },
        (WEIGHTS, 1) => Reply { body: weights(), ..honest(request) },
        _ => honest(request),
    };
    with_hub(no_ranges, None, |_, store| {
        let model = fetch(store, "hf:own/tiny").unwrap();
        assert_eq!(std::fs::read(model.path.join("model.safetensors")).unwrap(), weights());
    });
}

#[test]
fn another_content_than_the_hub_tells_is_refused_and_deleted() {
    let lies = |request: &Request| {
        let mut reply = honest(request);
        if request.path == WEIGHTS && request.range_start == Some(0) && reply.body.len() > 5 {
            reply.body[5] ^= 1;
        }
        reply
    };
    with_hub(lies, None, |_, store| {
        let error = fetch(store, "hf:own/tiny").unwrap_err();
        assert!(matches!(&error, ModelsError::Checksum { expected, .. } if *expected == sha256(&weights())));
        assert_eq!(code(store.remove(&"hf:own/tiny".parse().unwrap())), "models.not-fetched");
    });
}

#[test]
fn a_wrong_pin_is_refused() {
    with_hub(honest, None, |_, store| {
        let pins = Pins::new([("config.json", sha256(b"other"))]).unwrap();
        assert_eq!(code(store.fetch(&"hf:own/tiny".parse().unwrap(), &pins, &mut ())), "models.checksum");
    });
}

#[test]
fn gated_and_absent_repositories() {
    let gated = |request: &Request| match &request.token {
        Some(token) if token == "Bearer good" => honest(request),
        Some(_) => Reply::status(403),
        None => Reply::status(401),
    };
    let cases = [(None, "without a token"), (Some("bad"), "with a token")];
    for (token, words) in cases {
        with_hub(gated, token, |server, store| {
            let error = fetch(store, "hf:own/tiny").unwrap_err();
            let report = host_core::Reported::report(&error);
            assert_eq!(report.code, "models.hub-access");
            assert!(report.found.unwrap().ends_with(words));
            assert!(report.mend.unwrap().contains("HF_TOKEN"));
            assert_eq!(server.log().len(), 1, "a refusal is not tried again");
        });
    }
    with_hub(gated, Some("good"), |_, store| assert!(fetch(store, "hf:own/tiny").is_ok()));
    with_hub(honest, None, |_, store| {
        assert_eq!(code(fetch(store, "hf:own/none")), "models.hub-absent");
        assert_eq!(code(fetch(store, "hf:own/tiny@v9")), "models.hub-absent");
        assert_eq!(code(fetch(store, "hf:own/tiny:none.gguf")), "models.file-absent");
    });
}

#[test]
fn an_unreachable_hub_is_the_networks_fault() {
    let folder = tempfile::tempdir().unwrap();
    let free_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = Settings { hub_endpoint: format!("http://{free_port}"), ..settings(folder.path()) };
    assert_eq!(code(fetch(&ModelStore::with_settings(settings), "hf:own/tiny")), "models.network");
}

#[test]
fn a_busy_hub_is_asked_again() {
    let busy = |request: &Request| match request.nth == 0 && request.path.starts_with("/api") {
        true => Reply::status(503),
        false => honest(request),
    };
    with_hub(busy, None, |_, store| assert!(fetch(store, "hf:own/tiny").is_ok()));
}

#[test]
fn answers_that_are_not_a_hubs_are_refused() {
    let info = |body: &'static str| {
        move |_: &Request| Reply { body: body.as_bytes().to_vec(), ..Reply::status(200) }
    };
    for body in ["", "<html>sign in</html>", "{}", "{\"sha\":\"../../x\",\"siblings\":[]}"] {
        with_hub(info(body), None, |_, store| {
            assert_eq!(code(fetch(store, "hf:own/tiny")), "models.hub-answer", "{body}");
        });
    }
    let twisted = |name: &'static str, value: Option<&'static str>| {
        move |request: &Request| {
            let mut reply = honest(request);
            reply.headers.retain(|(known, _)| *known != name);
            if request.path.starts_with("/own/") {
                reply.headers.extend(value.map(|value| (name, value.to_owned())));
            }
            reply
        }
    };
    let twists = [
        ("ETag", None),
        ("ETag", Some("\"../../../evil\"")),
        ("ETag", Some("\"\"")),
        ("X-Repo-Commit", None),
        ("X-Repo-Commit", Some("../../evil")),
        ("X-Repo-Commit", Some("ffffffffffffffffffffffffffffffffffffffff")),
        ("Content-Range", None),
        ("Content-Range", Some("bytes 0-0/many")),
    ];
    for (name, value) in twists {
        with_hub(twisted(name, value), None, |_, store| {
            assert_eq!(code(fetch(store, "hf:own/tiny")), "models.hub-answer", "{name} {value:?}");
        });
    }
    let nowhere = |request: &Request| match request.path.as_str() {
        WEIGHTS => Reply { headers: honest(request).headers, ..Reply::status(302) },
        _ => honest(request),
    };
    with_hub(nowhere, None, |_, store| {
        assert_eq!(code(fetch(store, "hf:own/tiny")), "models.hub-answer", "a redirect without a place");
    });
}
