//! What is answered to which request.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Extension, FromRequest, Request, State as Extract};
use axum::http::header::{CONTENT_TYPE, LOCATION, SET_COOKIE};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::Stream;
use futures::stream::{self, StreamExt};
use leasehold::{FencingToken, Locker, Name};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use super::gate::{Gate, Verdict, headers};
use super::listen::Connection;
use super::state::{Message, State, View};
use super::{metrics, page, random};
use crate::exit::Failure;

const MOST_BYTES: usize = 128 * 1024;
/// From the end of a request's head to the end of its body.
const TO_SEND_BODY: Duration = Duration::from_secs(5);
/// Of one page.
const MOST_SHOWN: usize = 128;
/// Rows that are sent together, so that the first can be painted before the last has come.
const CHUNK: usize = 1_000;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What the answers are made of.
pub(super) struct Site {
    pub(super) state: Arc<State>,
    /// Once there is a connection.
    pub(super) locker: Arc<OnceLock<Locker>>,
    pub(super) gate: Gate,
    pub(super) about: About,
}

/// What the page says of this command.
#[derive(Clone, Serialize)]
pub(super) struct About {
    pub(super) store: String,
    pub(super) namespace: String,
    pub(super) version: &'static str,
    pub(super) demo: bool,
    /// Whether locks may be released by force.
    pub(super) release: bool,
}

#[derive(Serialize)]
struct Hello<'a> {
    view: &'a str,
    #[serde(flatten)]
    about: &'a About,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    view: String,
    names: Vec<Name>,
    open: Option<Name>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Release {
    view: String,
    name: Name,
    /// Of whom it is to be taken.
    token: FencingToken,
}

type Answer = Result<Response, (StatusCode, String)>;

pub(super) fn router(site: Arc<Site>) -> Router {
    let routes = Router::new()
        .route("/", get(index))
        .route("/events", get(events))
        .route("/metrics", get(metrics))
        .route("/api/locks", get(locks))
        .route("/api/history", get(history))
        .route("/api/view", post(view))
        .route("/api/release", post(release));
    routes
        .clone()
        .nest(site.gate.path(), routes)
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .layer(from_fn_with_state(site.clone(), guard))
        .with_state(site)
}

/// In front of everything, what is not there included.
async fn guard(Extract(site): Extract<Arc<Site>>, request: Request, next: Next) -> Response {
    let verdict = site
        .gate
        .judge(request.method(), request.uri(), request.headers());
    let mut response = match verdict {
        Verdict::Pass => next.run(request).await,
        Verdict::Admit(path, cookie) => {
            let to = [(LOCATION, path), (SET_COOKIE, cookie)];
            (StatusCode::SEE_OTHER, to).into_response()
        }
        Verdict::Refuse(status, what) => (status, format!("{what}\n")).into_response(),
    };
    for (name, value) in headers("none") {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().entry(name).or_insert(value);
        }
    }
    response
}

async fn index() -> Answer {
    let nonce = random().map_err(failed)?;
    let kind = (CONTENT_TYPE, "text/html; charset=utf-8".to_owned());
    let mut response = ([kind], page::page(&nonce)).into_response();
    for (name, value) in headers(&nonce) {
        let value = HeaderValue::from_str(&value).map_err(failed)?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

async fn metrics(Extract(site): Extract<Arc<Site>>) -> Response {
    let text = metrics::text(&site.state.board(), &site.about.namespace, Instant::now());
    let kind = (CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    ([kind], text).into_response()
}

async fn locks(Extract(site): Extract<Arc<Site>>) -> Answer {
    let board = site.state.board();
    let rows: Vec<_> = board.rows(Instant::now()).collect();
    let text = serde_json::to_string(&rows).map_err(failed)?;
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

/// The last half hour of the lock whose name the query has.
async fn history(Extract(site): Extract<Arc<Site>>, uri: Uri) -> Answer {
    let mut query = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let name = query.find_map(|(key, name)| (key == "name").then_some(name));
    let name = Name::new(name.unwrap_or_default()).map_err(bad)?;
    let board = site.state.board();
    let text = serde_json::to_string(&board.history(&name, Instant::now())).map_err(failed)?;
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

async fn view(Extract(site): Extract<Arc<Site>>, request: Request) -> Answer {
    let body = body(request).await?;
    let Shown { view, names, open } = serde_json::from_slice(&body).map_err(bad)?;
    if names.len() > MOST_SHOWN {
        return Err((
            StatusCode::BAD_REQUEST,
            "these are too many names\n".to_owned(),
        ));
    }
    if site.state.set_view(&view, Some(View { names, open })) {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        Err(gone())
    }
}

/// Who asks has to have a page open, whose id no other site can know.
async fn release(Extract(site): Extract<Arc<Site>>, request: Request) -> Answer {
    let body = body(request).await?;
    let Release { view, name, token } = serde_json::from_slice(&body).map_err(bad)?;
    if !site.about.release {
        let what = "it was started without --allow-release\n".to_owned();
        return Err((StatusCode::FORBIDDEN, what));
    }
    if !site.state.has_view(&view) {
        return Err(gone());
    }
    let Some(locker) = site.locker.get() else {
        let what = "there is no connection to the store yet\n".to_owned();
        return Err((StatusCode::BAD_GATEWAY, what));
    };
    // A look may see its end before this hears of it.
    site.state.board().revoke(&name, token);
    let released = locker.force_release_token(name.as_str(), token).await;
    site.state.changed(std::iter::once(name.clone()));
    if released.map_err(store)?.is_none() {
        site.state.board().spare(&name);
        let what = "somebody else has the lock by now, or nobody: look again\n".to_owned();
        return Err((StatusCode::CONFLICT, what));
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn events(
    Extract(site): Extract<Arc<Site>>,
    Extension(connection): Extension<Connection>,
) -> Answer {
    let view = random().map_err(failed)?;
    if !site.state.add_view(&view) {
        let what = "too many pages are open\n".to_owned();
        return Err((StatusCode::SERVICE_UNAVAILABLE, what));
    }
    connection.keep();
    let open = Open { view, site };
    let events = open.events().map(Ok::<_, std::convert::Infallible>);
    let alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(events).keep_alive(alive).into_response())
}

/// A page that is open; when it is not any more, this is dropped.
struct Open {
    view: String,
    site: Arc<Site>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.site.state.set_view(&self.view, None);
    }
}

impl Open {
    fn events(self) -> impl Stream<Item = Event> {
        let state = self.site.state.clone();
        let (all, messages) = self.all();
        let first = stream::iter(all);
        let next = stream::unfold(
            (self, state, messages),
            |(open, state, mut messages)| async {
                let event = match messages.recv().await {
                    Ok(Message { event, data }) => vec![Event::default().event(event).data(data)],
                    // It was too slow, and gets everything anew.
                    Err(RecvError::Lagged(_)) => {
                        let (all, anew) = open.all();
                        messages = anew;
                        all
                    }
                    Err(RecvError::Closed) => return None,
                };
                Some((stream::iter(event), (open, state, messages)))
            },
        );
        first.chain(next.flatten())
    }

    /// Everything that is known, and what comes from then on.
    fn all(&self) -> (Vec<Event>, tokio::sync::broadcast::Receiver<Message>) {
        let board = self.site.state.board();
        let messages = self.site.state.messages();
        let (view, about) = (&*self.view, &self.site.about);
        let now = Instant::now();
        let mut all = vec![
            event("hello", &Hello { view, about }),
            event("past", &board.recent(now)),
            event("sum", &board.sum(now)),
            Event::default()
                .event("findings")
                .data(self.site.state.findings()),
        ];
        let rows: Vec<_> = board.rows(now).collect();
        all.extend(rows.chunks(CHUNK).map(|rows| event("rows", &rows)));
        all.push(Event::default().event("ready").data("{}"));
        (all, messages)
    }
}

fn event(name: &str, data: &impl Serialize) -> Event {
    let data = serde_json::to_string(data).unwrap_or_default();
    Event::default().event(name).data(data)
}

/// Reads what a request brings. A client that stops in the middle is not waited for.
async fn body(request: Request) -> Result<Bytes, (StatusCode, String)> {
    match timeout(TO_SEND_BODY, Bytes::from_request(request, &())).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(refused)) => Err((refused.status(), refused.body_text() + "\n")),
        Err(_) => {
            let seconds = TO_SEND_BODY.as_secs();
            let what = format!("the body of the request did not arrive within {seconds} s\n");
            Err((StatusCode::REQUEST_TIMEOUT, what))
        }
    }
}

fn gone() -> (StatusCode, String) {
    (StatusCode::GONE, "that page is not open\n".to_owned())
}

fn bad(error: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, format!("{error}\n"))
}

fn failed(error: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))
}

fn store(error: leasehold::Error) -> (StatusCode, String) {
    let what = crate::out::plain(&Failure::from(error).to_string());
    (StatusCode::BAD_GATEWAY, what + "\n")
}
