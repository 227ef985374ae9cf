//! Takes connections: so many at once, each with a limit for how long a request may take to come.

use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

const MOST_CONNECTIONS: usize = 256;
const TO_SEND_HEADERS: Duration = Duration::from_secs(10);
/// If there are no descriptors left, for example.
const AFTER_AN_ERROR: Duration = Duration::from_millis(100);

/// Serves for ever. When this is dropped, all connections end.
pub(super) async fn serve(listener: TcpListener, router: Router) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if open.len() < MOST_CONNECTIONS => {
                let Ok((stream, _)) = accepted else {
                    sleep(AFTER_AN_ERROR).await;
                    continue;
                };
                let _ = stream.set_nodelay(true);
                let service = TowerToHyperService::new(router.clone());
                let serving = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(TO_SEND_HEADERS)
                    .serve_connection(TokioIo::new(stream), service);
                open.spawn(async {
                    // What goes wrong is the other side's.
                    let _ = serving.await;
                });
            }
            Some(_) = open.join_next() => {}
        }
    }
}
