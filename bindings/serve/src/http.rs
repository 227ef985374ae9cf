//! The routes, and the response to each request.

use std::fmt::Display;
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
use leasehold_observe::escaped;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

use crate::access::{Access, Decision, headers, random_id};
use crate::listen::Connection;
use crate::state::{Message, State, View};
use crate::{metrics, page};

const MOST_BYTES: usize = 128 * 1024;
/// The time from the end of a request's head to the end of its body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// The most locks that one page shows.
const MOST_SHOWN: usize = 128;
/// How many rows are sent together, so that a page paints the first before it has the last.
const CHUNK: usize = 1_000;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The state from which responses are made.
pub(crate) struct Site {
    pub(crate) state: Arc<State>,
    /// Set once there is a connection.
    pub(crate) locker: Arc<OnceLock<Locker>>,
    pub(crate) access: Access,
    pub(crate) about: About,
}

/// The settings that the page shows.
#[derive(Clone, Serialize)]
pub(crate) struct About {
    pub(crate) store: String,
    pub(crate) namespace: String,
    pub(crate) version: &'static str,
    pub(crate) demo: bool,
    /// True if locks may be released by force.
    pub(crate) release: bool,
    /// True if the state of the store is examined.
    pub(crate) findings: bool,
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
    /// The tenure to end.
    token: FencingToken,
}

type Refusal = (StatusCode, String);
type Answer = Result<Response, Refusal>;

pub(crate) fn router(site: Arc<Site>) -> Router {
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
        .nest(&site.access.session.path, routes)
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .layer(from_fn_with_state(site.clone(), authorize))
        .with_state(site)
}

/// Checks each request, even to paths that do not exist.
async fn authorize(Extract(site): Extract<Arc<Site>>, request: Request, next: Next) -> Response {
    let decision = site
        .access
        .decide(request.method(), request.uri(), request.headers());
    let mut response = match decision {
        Decision::Allow => next.run(request).await,
        Decision::Login { path, cookie } => {
            let to = [(LOCATION, path), (SET_COOKIE, cookie)];
            (StatusCode::SEE_OTHER, to).into_response()
        }
        Decision::Refuse(status, what) => (status, format!("{what}\n")).into_response(),
    };
    for (name, value) in headers("none") {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().entry(name).or_insert(value);
        }
    }
    response
}

async fn index() -> Answer {
    let nonce = random_id().map_err(failed)?;
    let kind = (CONTENT_TYPE, "text/html; charset=utf-8".to_owned());
    let mut response = ([kind], page::page(&nonce)).into_response();
    for (name, value) in headers(&nonce) {
        let value = HeaderValue::from_str(&value).map_err(failed)?;
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

async fn metrics(Extract(site): Extract<Arc<Site>>) -> Response {
    let text = metrics::text(&site.state.table(), &site.about.namespace, Instant::now());
    let kind = (CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
    ([kind], text).into_response()
}

async fn locks(Extract(site): Extract<Arc<Site>>) -> Answer {
    let table = site.state.table();
    let rows: Vec<_> = table.rows(Instant::now()).collect();
    let text = serde_json::to_string(&rows).map_err(failed)?;
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

/// Returns the last half hour of the lock that the query names.
async fn history(Extract(site): Extract<Arc<Site>>, uri: Uri) -> Answer {
    let mut query = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let name = query.find_map(|(key, name)| (key == "name").then_some(name));
    let name = Name::new(name.unwrap_or_default()).map_err(bad)?;
    let table = site.state.table();
    let text = serde_json::to_string(&table.history.of(&name, Instant::now())).map_err(failed)?;
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

async fn view(Extract(site): Extract<Arc<Site>>, request: Request) -> Answer {
    let body = body(request).await?;
    let Shown { view, names, open } = serde_json::from_slice(&body).map_err(bad)?;
    if names.len() > MOST_SHOWN {
        return Err(bad("these are too many names"));
    }
    if site.state.set_view(&view, Some(View { names, open })) {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        Err(gone())
    }
}

/// Releases a lock by force. The client has to have a page open, whose id no other site can know.
async fn release(Extract(site): Extract<Arc<Site>>, request: Request) -> Answer {
    let body = body(request).await?;
    let Release { view, name, token } = serde_json::from_slice(&body).map_err(bad)?;
    if !site.about.release {
        let what = "it was started without --allow-release";
        return Err(refuse(StatusCode::FORBIDDEN, what));
    }
    if !site.state.has_view(&view) {
        return Err(gone());
    }
    let Some(locker) = site.locker.get() else {
        let what = "there is no connection to the store yet";
        return Err(refuse(StatusCode::BAD_GATEWAY, what));
    };
    // An inspection may see the end before the reply comes.
    site.state.table().revoke(&name, token);
    let released = locker.force_release_token(name.as_str(), token).await;
    site.state.changed(std::iter::once(name.clone()));
    let away =
        |error: leasehold::Error| refuse(StatusCode::BAD_GATEWAY, escaped(&error.to_string()));
    if released.map_err(away)?.is_none() {
        site.state.table().spare(&name);
        let what = "this tenure is over, and nothing was released: check who holds the lock now";
        return Err(refuse(StatusCode::CONFLICT, what));
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn events(
    Extract(site): Extract<Arc<Site>>,
    Extension(connection): Extension<Connection>,
) -> Answer {
    let view = random_id().map_err(failed)?;
    if !site.state.add_view(&view) {
        let what = "too many pages are open";
        return Err(refuse(StatusCode::SERVICE_UNAVAILABLE, what));
    }
    connection.keep();
    let open = Open { view, site };
    let events = open.events().map(Ok::<_, std::convert::Infallible>);
    let alive = KeepAlive::new().interval(KEEP_ALIVE);
    Ok(Sse::new(events).keep_alive(alive).into_response())
}

/// An open page. Dropping this closes it.
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
        let (all, messages) = self.all();
        let first = stream::iter(all);
        let next = stream::unfold((self, messages), |(open, mut messages)| async {
            let event = match messages.recv().await {
                Ok(Message { event, data }) => vec![Event::default().event(event).data(data)],
                // The page was too slow, and gets everything again.
                Err(RecvError::Lagged(_)) => {
                    let (all, anew) = open.all();
                    messages = anew;
                    all
                }
                Err(RecvError::Closed) => return None,
            };
            Some((stream::iter(event), (open, messages)))
        });
        first.chain(next.flatten())
    }

    /// Returns everything that is known, and the messages from then on.
    fn all(&self) -> (Vec<Event>, tokio::sync::broadcast::Receiver<Message>) {
        let table = self.site.state.table();
        let messages = self.site.state.messages();
        let (view, about) = (&*self.view, &self.site.about);
        let now = Instant::now();
        let mut all = vec![
            event("hello", &Hello { view, about }),
            event("recent", &table.history.recent(now)),
            event("sum", &table.sum(now)),
            Event::default()
                .event("findings")
                .data(self.site.state.findings()),
        ];
        let rows: Vec<_> = table.rows(now).collect();
        all.extend(rows.chunks(CHUNK).map(|rows| event("rows", &rows)));
        all.push(Event::default().event("ready").data("{}"));
        (all, messages)
    }
}

fn event(name: &str, data: &impl Serialize) -> Event {
    let data = serde_json::to_string(data).unwrap_or_default();
    Event::default().event(name).data(data)
}

/// Reads the body of a request, unless the client stops in the middle.
async fn body(request: Request) -> Result<Bytes, Refusal> {
    match timeout(BODY_TIMEOUT, Bytes::from_request(request, &())).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(refused)) => Err(refuse(refused.status(), refused.body_text())),
        Err(_) => {
            let seconds = BODY_TIMEOUT.as_secs();
            let what = format!("the body of the request did not arrive within {seconds} s");
            Err(refuse(StatusCode::REQUEST_TIMEOUT, what))
        }
    }
}

fn refuse(status: StatusCode, what: impl Display) -> Refusal {
    (status, format!("{what}\n"))
}

fn gone() -> Refusal {
    refuse(StatusCode::GONE, "that page is not open")
}

fn bad(error: impl Display) -> Refusal {
    refuse(StatusCode::BAD_REQUEST, error)
}

fn failed(error: impl Display) -> Refusal {
    refuse(StatusCode::INTERNAL_SERVER_ERROR, error)
}
