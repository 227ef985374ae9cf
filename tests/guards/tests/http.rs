//! The HTTP layers under the conformance suite, with axum over real sockets.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Request, Response, StatusCode};
use leasehold::fence::Gate;
use leasehold::fence::http::{FENCING_TOKEN, FenceLayer, TokenLayer, refusal, written_path};
use leasehold::{Error, ErrorKind, FencingToken};
use leasehold_guard_tests::conformance::{Guarded, conforms, token};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower::{Layer, ServiceExt};

/// The longest wait of these tests.
const LIMIT: Duration = Duration::from_secs(20);

/// The state that the handlers share.
#[derive(Default)]
struct Shared {
    registers: Mutex<HashMap<String, Vec<(u64, u64)>>>,
    /// Notified when a slow handler has begun.
    begun: Notify,
    /// Lets a slow handler go on.
    go_on: Notify,
}

impl Shared {
    fn history(&self, resource: &str) -> Vec<(u64, u64)> {
        let registers = self.registers.lock().expect("no handler panics");
        registers.get(resource).cloned().unwrap_or_default()
    }
}

/// Writes a number. A slow request writes only when the test lets it go on. A request with the header
/// `answer` writes nothing and gets that status.
async fn write(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    request: Request<axum::body::Body>,
) -> StatusCode {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 100)
        .await
        .expect("the body is short");
    let text = String::from_utf8(body.to_vec()).expect("the text is a number");
    if let Some(status) = headers.get("answer") {
        return StatusCode::from_bytes(status.as_bytes()).expect("the status is valid");
    }
    if headers.contains_key("slow") {
        shared.begun.notify_one();
        shared.go_on.notified().await;
    } else {
        tokio::task::yield_now().await;
    }
    let Some(resource) = resource(&parts) else {
        return StatusCode::NO_CONTENT;
    };
    let token = headers.get(FENCING_TOKEN).map_or(0, |value| {
        let text = value.to_str().expect("the header was checked");
        text.parse().expect("the header was checked")
    });
    let value = text.parse().expect("the text is a number");
    let mut registers = shared.registers.lock().expect("no handler panics");
    registers.entry(resource).or_default().push((token, value));
    StatusCode::OK
}

/// Returns the resource: the part of the path after `/r/`.
fn resource(parts: &Parts) -> Option<String> {
    let path = written_path(parts)?;
    Some(path.strip_prefix("/r/").unwrap_or_default().to_owned())
}

type Resource = fn(&Parts) -> Option<String>;

struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    gate: Arc<Gate>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start(change: impl FnOnce(FenceLayer<Resource>) -> FenceLayer<Resource>) -> Self {
        Self::start_with(Gate::new(), change).await
    }

    async fn start_with(
        gate: Gate,
        change: impl FnOnce(FenceLayer<Resource>) -> FenceLayer<Resource>,
    ) -> Self {
        let (shared, gate) = (Arc::new(Shared::default()), Arc::new(gate));
        let layer = change(FenceLayer::new(gate.clone(), resource as Resource));
        let router = Router::new().fallback(write).layer(layer);
        let router = router.with_state(shared.clone());
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("the socket is bound");
        let task = tokio::spawn(async move {
            axum::serve(listener, router)
                .await
                .expect("the server serves");
        });
        Self {
            address,
            shared,
            gate,
            task,
        }
    }

    /// Sends a request under a token through the client's layer.
    async fn put(&self, resource: &str, token: FencingToken, value: u64) -> Answer {
        put(self.address, request(resource, value), token).await
    }

    /// Sends a request whose handler writes nothing and answers `status`.
    async fn put_for(&self, resource: &str, token: FencingToken, status: StatusCode) {
        let mut request = request(resource, 0);
        let value = status.as_str().parse().expect("the value is valid");
        request.headers_mut().insert("answer", value);
        let answer = put(self.address, request, token).await;
        assert_eq!(answer.status(), status);
    }

    /// Sends a request whose handler waits for `go_on`.
    async fn put_slowly(&self, resource: &str, token: FencingToken, value: u64) -> Waiting {
        let mut request = request(resource, value);
        let yes = "yes".parse().expect("the value is valid");
        request.headers_mut().insert("slow", yes);
        let answer = tokio::spawn(put(self.address, request, token));
        let begun = timeout(LIMIT, self.shared.begun.notified()).await;
        begun.expect("the handler begins");
        answer
    }

    /// Waits until the gate has seen a token.
    async fn until_seen(&self, resource: &str, token: FencingToken) {
        let seen = async {
            while self.gate.highest(resource) != Some(token) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(LIMIT, seen).await.expect("the request arrives");
    }
}

type Answer = Response<Vec<u8>>;
type Waiting = JoinHandle<Answer>;

async fn joined(answer: Waiting) -> Answer {
    let answer = timeout(LIMIT, answer).await.expect("an answer");
    answer.expect("the client does not panic")
}

fn request(resource: &str, value: u64) -> Request<String> {
    let mut path = "/r/".to_owned();
    for byte in resource.bytes() {
        write!(path, "%{byte:02X}").expect("a string takes any text");
    }
    let request = Request::put(path).body(value.to_string());
    request.expect("the request is valid")
}

async fn put(address: SocketAddr, request: Request<String>, token: FencingToken) -> Answer {
    let client = tower::service_fn(move |request| async move {
        Ok::<_, Infallible>(send(address, &request).await)
    });
    let Ok(answer) = TokenLayer::new(token).layer(client).oneshot(request).await;
    answer
}

/// Sends one HTTP/1.1 request on a connection of its own.
async fn send(address: SocketAddr, request: &Request<String>) -> Answer {
    let mut stream = connect(address, request).await;
    let mut bytes = Vec::new();
    let read = timeout(LIMIT, stream.read_to_end(&mut bytes)).await;
    read.expect("the server answers")
        .expect("the server sends the whole reply");
    let text = String::from_utf8(bytes).expect("these answers are text");
    let (head, body) = text.split_once("\r\n\r\n").expect("the reply is HTTP");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let mut response = Response::builder().status(status.expect("there is a status"));
    for line in lines {
        let (name, value) = line.split_once(": ").expect("the line is a header");
        response = response.header(name, value);
    }
    response.body(body.into()).expect("the response is valid")
}

async fn connect(address: SocketAddr, request: &Request<String>) -> TcpStream {
    let mut stream = TcpStream::connect(address)
        .await
        .expect("the server listens");
    let (method, uri, body) = (request.method(), request.uri(), request.body());
    let mut text = format!("{method} {uri} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
    for (name, value) in request.headers() {
        let value = value.to_str().expect("headers of the tests are text");
        write!(text, "{name}: {value}\r\n").expect("a string takes any text");
    }
    let length = body.len();
    write!(text, "Content-Length: {length}\r\n\r\n{body}").expect("a string takes any text");
    let written = stream.write_all(text.as_bytes()).await;
    written.expect("the server reads");
    stream
}

fn refused(answer: &Answer) -> Error {
    let error = refusal(answer.status(), answer.body());
    error.unwrap_or_else(|| panic!("expected a refusal, got {}", answer.status()))
}

impl Guarded for Server {
    async fn write(&self, resource: &str, token: FencingToken, value: u64) -> Result<(), Error> {
        let answer = self.put(resource, token, value).await;
        if answer.status() == StatusCode::OK {
            return Ok(());
        }
        Err(refused(&answer))
    }

    async fn history(&self, resource: &str) -> Vec<(u64, u64)> {
        self.shared.history(resource)
    }

    async fn read(&self, resource: &str) -> Option<u64> {
        Some(self.shared.history(resource).last()?.1)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_layers_conform() {
    let server = Server::start(|layer| layer).await;
    conforms(Arc::new(server), "http", 50).await;
}

/// Catches a layer that lets an older write take effect after a newer one that it let pass.
#[tokio::test]
async fn a_newer_write_waits_for_a_pending_older_one() {
    let server = Server::start(|layer| layer).await;
    let older = server.put_slowly("a", token(33), 1).await;
    let newer = tokio::spawn(put(server.address, request("a", 2), token(34)));
    server.until_seen("a", token(34)).await;
    let stale = server.put("a", token(33), 3).await;
    assert_eq!(
        stale.status(),
        StatusCode::CONFLICT,
        "a stale request is refused without waiting"
    );
    let other = server.put("b", token(1), 4).await;
    assert_eq!(other.status(), StatusCode::OK, "another resource is free");
    assert!(
        !newer.is_finished(),
        "the newer write passed while the older one was pending"
    );
    server.shared.go_on.notify_one();
    assert_eq!(joined(older).await.status(), StatusCode::OK);
    assert_eq!(joined(newer).await.status(), StatusCode::OK);
    assert_eq!(server.shared.history("a"), [(33, 1), (34, 2)]);
}

/// The negative control of the test above, and the documented limit of `check_only`.
#[tokio::test]
async fn with_check_only_an_older_write_may_follow_a_newer_one() {
    let server = Server::start(FenceLayer::check_only).await;
    let older = server.put_slowly("a", token(33), 1).await;
    let newer = server.put("a", token(34), 2).await;
    assert_eq!(newer.status(), StatusCode::OK);
    server.shared.go_on.notify_one();
    assert_eq!(joined(older).await.status(), StatusCode::OK);
    assert_eq!(server.shared.history("a"), [(34, 2), (33, 1)]);
    let stale = server.put("a", token(33), 3).await;
    assert_eq!(
        stale.status(),
        StatusCode::CONFLICT,
        "a stale token is refused"
    );
}

/// Catches a permit that outlives its request: the next request would wait for ever.
#[tokio::test]
async fn a_client_that_disconnects_delays_no_request() {
    let server = Server::start(|layer| layer).await;
    let mut request = request("a", 1);
    let yes = "33".parse().expect("the value is valid");
    request.headers_mut().insert("slow", yes);
    request
        .headers_mut()
        .insert(FENCING_TOKEN, token(33).into());
    let stream = connect(server.address, &request).await;
    let begun = timeout(LIMIT, server.shared.begun.notified()).await;
    begun.expect("the handler begins");
    drop(stream);
    let newer = server.put("a", token(34), 2).await;
    assert_eq!(newer.status(), StatusCode::OK);
    assert_eq!(server.shared.history("a"), [(34, 2)]);
}

#[tokio::test]
async fn a_refusal_is_a_problem_document() {
    let server = Server::start(|layer| layer).await;
    let passed = server.put("a", token(34), 1).await;
    assert_eq!(passed.status(), StatusCode::OK);
    let answer = server.put("a", token(33), 2).await;
    assert_eq!(answer.status(), StatusCode::CONFLICT);
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    let body: serde_json::Value = serde_json::from_slice(answer.body()).expect("the body is JSON");
    assert_eq!(
        body,
        serde_json::json!({
            "type": "urn:leasehold:stale-token",
            "title": "Stale fencing token",
            "status": 409,
            "detail": "the token 33 is stale: 34 was seen for the resource \"a\"",
            "resource": "a",
            "offered": 33,
            "highest": 34,
        })
    );
}

#[tokio::test]
async fn bad_headers_are_refused_and_write_nothing() {
    let server = Server::start(|layer| layer).await;
    let none = send(server.address, &request("a", 1)).await;
    assert_eq!(none.status(), StatusCode::PRECONDITION_REQUIRED);
    assert_eq!(refused(&none).kind(), ErrorKind::Config);
    for values in [
        &["0"][..],
        &["-1"],
        &["033"],
        &["3.0"],
        &["x"],
        &[""],
        &["33, 34"],
        &["9007199254740992"],
        &["18446744073709551617"],
        &["33", "33"],
        &["33", "34"],
    ] {
        let mut request = request("a", 1);
        for value in values {
            let value = value.parse().expect("the value is valid");
            request.headers_mut().append(FENCING_TOKEN, value);
        }
        let answer = send(server.address, &request).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{values:?}");
        assert_eq!(refused(&answer).kind(), ErrorKind::Config, "{values:?}");
    }
    assert_eq!(server.shared.history("a"), []);
    assert_eq!(
        server.gate.highest("a"),
        None,
        "no header was a valid token"
    );
}

/// Catches a client that shuts out others with a path that it made up.
#[tokio::test]
async fn a_request_that_was_not_executed_leaves_no_token_behind() {
    let server = Server::start(|layer| layer).await;
    for status in [401, 403, 404, 405, 410] {
        let status = StatusCode::from_u16(status).expect("the status is valid");
        let made = &format!("made-up-{status}");
        server.put_for(made, FencingToken::MAX, status).await;
        assert_eq!(server.gate.highest(made), None, "{status}");
        let answer = server.put(made, token(1), 1).await;
        assert_eq!(answer.status(), StatusCode::OK, "{status}");
        assert_eq!(server.gate.highest(made), Some(token(1)));
        // A resource that the gate remembers keeps the greatest token that it has seen.
        server.put_for(made, token(3), status).await;
        let answer = server.put(made, token(2), 2).await;
        assert_eq!(answer.status(), StatusCode::CONFLICT, "{status}");
    }
    // A handler with one of these answers may have written.
    for status in [400, 409, 500] {
        let status = StatusCode::from_u16(status).expect("the status is valid");
        let resource = &format!("in-doubt-{status}");
        server.put_for(resource, token(34), status).await;
        assert_eq!(server.gate.highest(resource), Some(token(34)));
    }
}

/// Catches a gate that a client fills with made-up paths until it refuses every request.
#[tokio::test]
async fn a_full_gate_forgets_nothing_for_paths_that_are_not_found() {
    let server = Server::start_with(Gate::with_capacity(2), |layer| layer).await;
    server
        .gate
        .check("a", token(5))
        .expect("the resource is new");
    for path in 0..10 {
        let path = format!("made-up/{path}");
        let status = StatusCode::NOT_FOUND;
        server.put_for(&path, FencingToken::MAX, status).await;
    }
    let saved = serde_json::to_value(&*server.gate).expect("a gate serializes");
    let kept = serde_json::json!({"capacity": 2, "floor": null, "seen": [["a", 5]]});
    assert_eq!(saved, kept);
    let answer = server.put("b", token(3), 1).await;
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test]
async fn reads_pass_and_so_do_writes_without_an_optional_token() {
    let strict = Server::start(|layer| layer).await;
    let get = Request::get("/r/a").body(String::from("0"));
    let answer = send(strict.address, &get.expect("the request is valid")).await;
    assert_eq!(answer.status(), StatusCode::NO_CONTENT);

    let lenient = Server::start(FenceLayer::optional).await;
    let answer = send(lenient.address, &request("a", 1)).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(
        lenient.put("a", token(34), 2).await.status(),
        StatusCode::OK
    );
    let stale = lenient.put("a", token(33), 3).await;
    assert_eq!(stale.status(), StatusCode::CONFLICT, "a given token counts");
}

/// Catches a guard that lets another spelling of a path pass.
#[tokio::test]
async fn two_spellings_of_a_path_are_one_resource() {
    let server = Server::start(|layer| layer).await;
    for (path, number, status) in [
        ("/r/account-7", 34, StatusCode::OK),
        ("/r/account-%37", 33, StatusCode::CONFLICT),
        ("/r/%61ccount-7?x", 33, StatusCode::CONFLICT),
        ("/%72/account-7", 33, StatusCode::CONFLICT),
        ("/r/account-%377", 33, StatusCode::OK),
        ("/r/account-%zz", 33, StatusCode::OK),
    ] {
        let request = Request::put(path).body(String::from("1"));
        let request = request.expect("the request is valid");
        let answer = put(server.address, request, token(number)).await;
        assert_eq!(answer.status(), status, "{path}");
    }
}
