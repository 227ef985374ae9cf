//! Accepts connections: a limited number at once, each with a limit of time for a request to arrive.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

const MOST_CONNECTIONS: usize = 256;
const HEADERS_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after an error, such as that there are no descriptors left.
const AFTER_AN_ERROR: Duration = Duration::from_millis(100);

/// A connection, as its requests see it.
#[derive(Clone, Default)]
pub(crate) struct Connection {
    kept: Arc<AtomicBool>,
}

impl Connection {
    /// Exempts the connection, on which a page is open, from being closed for newer ones. The number of pages is
    /// limited elsewhere.
    pub(crate) fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }
}

/// Serves forever. Dropping this closes all connections.
///
/// A new connection is always accepted: if there are too many, the oldest one without a page is closed. So idle clients
/// keep nobody out.
pub(crate) async fn serve(listener: TcpListener, router: Router) {
    let mut tasks = JoinSet::new();
    let mut open: VecDeque<(AbortHandle, Connection)> = VecDeque::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else {
                    sleep(AFTER_AN_ERROR).await;
                    continue;
                };
                open.retain(|(task, _)| !task.is_finished());
                if open.len() >= MOST_CONNECTIONS {
                    let oldest = open.iter().position(|(_, connection)| !connection.is_kept());
                    if let Some((task, _)) = oldest.and_then(|oldest| open.remove(oldest)) {
                        task.abort();
                    }
                }
                let connection = Connection::default();
                let task = tasks.spawn(answer(stream, router.clone(), connection.clone()));
                open.push_back((task, connection));
            }
            Some(_) = tasks.join_next() => {}
        }
    }
}

async fn answer(stream: TcpStream, router: Router, connection: Connection) {
    let _ = stream.set_nodelay(true);
    let inner = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(connection.clone());
        inner.call(request)
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    // Errors are the client's.
    let _ = serving.await;
}
