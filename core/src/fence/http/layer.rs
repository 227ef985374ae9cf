//! The server's layer.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::request::Parts;
use ::http::{Request, Response, StatusCode};
use leasehold_engine::FencingToken;
use pin_project::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::problem::Problem;
use super::{FENCING_TOKEN, FenceBody};
use crate::fence::Gate;
use crate::fence::gate::{Entering, Permit};

type SharedGate = Arc<Gate>;

/// Refuses requests with a stale token and lets one request at a time write to a resource.
///
/// A refused request does not reach the service. The [module](super) describes the responses, and how atomic
/// the check is.
///
/// **Authentication must come first**, outside of this layer: a client that may choose resources and tokens
/// can [block all others](super#authentication-comes-first).
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::{convert::Infallible, sync::Arc};
/// use http::{request::Parts, Method, Request, Response, StatusCode};
/// use leasehold::fence::{http::FenceLayer, Gate};
/// use tower::{Layer, ServiceExt};
///
/// // `/accounts/7/entries` writes to `accounts/7`
/// let account = |parts: &Parts| {
///     let mut segments = parts.uri.path().split('/').skip(2);
///     (parts.method == Method::POST)
///         .then(|| format!("accounts/{}", segments.next().unwrap_or_default()))
/// };
/// let layer = FenceLayer::new(Arc::new(Gate::new()), account);
/// let service = layer.layer(tower::service_fn(async |_: Request<String>| {
///     Ok::<_, Infallible>(Response::new(String::from("written")))
/// }));
///
/// let request = Request::post("/accounts/7/entries").body(String::new())?;
/// let response = service.oneshot(request).await?;
/// assert_eq!(response.status(), StatusCode::PRECONDITION_REQUIRED); // it has no token
/// # Ok(()) }
/// ```
pub struct FenceLayer<R> {
    gate: SharedGate,
    resource: Arc<R>,
    optional: bool,
    check_only: bool,
}

impl<R: Fn(&Parts) -> Option<String>> FenceLayer<R> {
    /// Returns a layer with a function that names the resource that a request writes to.
    ///
    /// If the function returns `None` the request passes unguarded. All requests that write to the same thing
    /// must get the *same* name, however they spell it: `/account/7` and `/account/%37` reach the same
    /// handler in most frameworks. It is best to use the value that the handler itself uses; [`written_path`]
    /// is a start.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use leasehold::fence::{http::FenceLayer, Gate};
    ///
    /// let layer = FenceLayer::new(Arc::new(Gate::new()), |_| Some("the one ledger".to_owned()));
    /// ```
    pub fn new(gate: Arc<Gate>, resource: R) -> Self {
        Self {
            gate,
            resource: Arc::new(resource),
            optional: false,
            check_only: false,
        }
    }

    /// Lets requests without a token pass, unguarded and without waiting.
    ///
    /// Use it until all clients send a token: an unguarded write can still undo a guarded one.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use leasehold::fence::{http::FenceLayer, Gate};
    ///
    /// let layer = FenceLayer::by_path(Arc::new(Gate::new())).optional();
    /// ```
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    /// Checks each request on arrival and holds nothing.
    ///
    /// Requests for one resource run in parallel, and an older one that passed can write after a newer one.
    /// See [How atomic it is](super#how-atomic-it-is).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use leasehold::fence::{http::FenceLayer, Gate};
    ///
    /// let layer = FenceLayer::by_path(Arc::new(Gate::new())).check_only();
    /// ```
    #[must_use]
    pub fn check_only(mut self) -> Self {
        self.check_only = true;
        self
    }

    /// Returns the resource that the request writes to and its token; `None` if it passes unguarded.
    fn claim(&self, parts: &Parts) -> Result<Option<(String, FencingToken)>, Problem<'static>> {
        let Some(resource) = (self.resource)(parts) else {
            return Ok(None);
        };
        let mut values = parts.headers.get_all(FENCING_TOKEN).iter();
        let Some(value) = values.next() else {
            return if self.optional {
                Ok(None)
            } else {
                Err(Problem::required())
            };
        };
        if values.next().is_some() {
            return Err(Problem::bad(
                "the request has several Fencing-Token headers: send exactly one",
            ));
        }
        // A value that is not ASCII is not a token either; the empty text fails to parse.
        let text = value.to_str().unwrap_or_default();
        match text.parse() {
            Ok(token) => Ok(Some((resource, token))),
            Err(error) => Err(Problem::bad(format!("Fencing-Token: {error}"))),
        }
    }
}

impl FenceLayer<fn(&Parts) -> Option<String>> {
    /// Returns a layer that uses the path as the resource.
    ///
    /// Requests with a safe method (GET, HEAD, OPTIONS, TRACE) pass unguarded: see [`written_path`]. This
    /// suits services where a write to a path changes nothing else.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use leasehold::fence::{http::FenceLayer, Gate};
    ///
    /// let layer = FenceLayer::by_path(Arc::new(Gate::new()));
    /// ```
    pub fn by_path(gate: Arc<Gate>) -> Self {
        Self::new(gate, written_path)
    }
}

impl<R> Clone for FenceLayer<R> {
    fn clone(&self) -> Self {
        Self {
            gate: self.gate.clone(),
            resource: self.resource.clone(),
            ..*self
        }
    }
}

impl<R> fmt::Debug for FenceLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer")
            .field("gate", &self.gate)
            .field("optional", &self.optional)
            .field("check_only", &self.check_only)
            .finish_non_exhaustive()
    }
}

/// Returns the path of a request that may write, without the query; `None` if its method is safe.
///
/// Percent encoding is decoded, so that two spellings of one path are one resource. Bytes that are not UTF-8
/// are replaced. Slashes and case stay. If the layer is inside a router that strips a prefix, the path lacks
/// it.
///
/// ```
/// use http::Request;
/// use leasehold::fence::http::written_path;
///
/// let (parts, ()) = Request::put("/account/%37?now").body(())?.into_parts();
/// assert_eq!(written_path(&parts).as_deref(), Some("/account/7"));
/// let (parts, ()) = Request::get("/account/7").body(())?.into_parts();
/// assert_eq!(written_path(&parts), None);
/// # Ok::<(), http::Error>(())
/// ```
pub fn written_path(parts: &Parts) -> Option<String> {
    if parts.method.is_safe() {
        return None;
    }
    let mut rest = parts.uri.path().as_bytes();
    let mut path = Vec::with_capacity(rest.len());
    while let Some((&first, after)) = rest.split_first() {
        match (first, after) {
            (b'%', [high, low, after @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                path.push(hex(*high)? << 4 | hex(*low)?);
                rest = after;
            }
            _ => {
                path.push(first);
                rest = after;
            }
        }
    }
    Some(String::from_utf8_lossy(&path).into_owned())
}

/// Returns true if a response means that the request was not carried out, so that its token does not count.
/// The guards in JavaScript have the same list.
fn wrote_nothing(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::GONE
    )
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

impl<S, R> Layer<S> for FenceLayer<R> {
    type Service = Fenced<S, R>;

    fn layer(&self, inner: S) -> Fenced<S, R> {
        let layer = self.clone();
        Fenced { inner, layer }
    }
}

/// The service that [`FenceLayer`] makes.
#[derive(Debug)]
pub struct Fenced<S, R> {
    inner: S,
    layer: FenceLayer<R>,
}

impl<S: Clone, R> Clone for Fenced<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<S, R, B, A> Service<Request<B>> for Fenced<S, R>
where
    S: Service<Request<B>, Response = Response<A>> + Clone,
    R: Fn(&Parts) -> Option<String>,
{
    type Response = Response<FenceBody<A>>;
    type Error = S::Error;
    type Future = FenceFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> FenceFuture<S, B> {
        let (parts, body) = request.into_parts();
        let claim = self.layer.claim(&parts);
        let request = Request::from_parts(parts, body);
        let gate = &self.layer.gate;
        let step = match claim {
            Err(problem) => Step::Refused(Some(problem)),
            Ok(Some((resource, token))) if self.layer.check_only => {
                match gate.check(&resource, token) {
                    Ok(()) => Step::unguarded(self.inner.call(request)),
                    Err(error) => Step::Refused(Some(error.into())),
                }
            }
            Ok(Some((resource, token))) => {
                // Give the request the service that was polled ready, and keep the clone.
                let next = self.inner.clone();
                let inner = mem::replace(&mut self.inner, next);
                Step::Waiting {
                    entering: Entering::new(gate.clone(), resource, token),
                    call: Some((inner, request)),
                }
            }
            Ok(None) => Step::unguarded(self.inner.call(request)),
        };
        FenceFuture { step }
    }
}

/// The response future of a [`Fenced`] service.
#[pin_project]
#[must_use = "futures do nothing unless they are awaited"]
pub struct FenceFuture<S: Service<Request<B>>, B> {
    #[pin]
    step: Step<S, B>,
}

#[pin_project(project = Projection)]
enum Step<S: Service<Request<B>>, B> {
    Refused(Option<Problem<'static>>),
    Waiting {
        entering: Entering<SharedGate, String>,
        call: Option<(S, Request<B>)>,
    },
    Running {
        #[pin]
        future: S::Future,
        /// Declared after the future, so that it is dropped after it.
        permit: Option<Permit<SharedGate>>,
    },
}

impl<S: Service<Request<B>>, B> Step<S, B> {
    fn unguarded(future: S::Future) -> Self {
        Self::Running {
            future,
            permit: None,
        }
    }
}

impl<S, B, A> Future for FenceFuture<S, B>
where
    S: Service<Request<B>, Response = Response<A>>,
{
    type Output = Result<Response<FenceBody<A>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut step = self.project().step;
        loop {
            let next = match step.as_mut().project() {
                Projection::Refused(problem) => {
                    let problem = problem.take().expect("no future is polled after its end");
                    return Poll::Ready(Ok(problem.into()));
                }
                Projection::Waiting { entering, call } => {
                    match ready!(Pin::new(entering).poll(context)) {
                        Ok(permit) => {
                            let (mut inner, request) = call.take().expect("it enters once");
                            Step::Running {
                                future: inner.call(request),
                                permit: Some(permit),
                            }
                        }
                        Err(error) => Step::Refused(Some(error.into())),
                    }
                }
                Projection::Running { future, permit } => {
                    let answer = ready!(future.poll(context));
                    match (&answer, permit.take()) {
                        (Ok(answer), Some(permit)) if wrote_nothing(answer.status()) => {
                            permit.withdraw();
                        }
                        // An error may come after a write, so the token counts.
                        (_, permit) => drop(permit),
                    }
                    return Poll::Ready(answer.map(|answer| answer.map(FenceBody::inner)));
                }
            };
            step.set(next);
        }
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for FenceFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceFuture").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a path that is taken for none, whose write would then pass unguarded.
    #[test]
    fn a_path_with_a_broken_escape_is_read_as_it_is() {
        for (path, read) in [
            ("/a/%4z", "/a/%4z"),
            ("/a/%z4", "/a/%z4"),
            ("/a/%4", "/a/%4"),
            ("/a/%41%2f", "/a/A/"),
        ] {
            let request = http::Request::put(path).body(()).expect("a valid path");
            let (parts, ()) = request.into_parts();
            assert_eq!(written_path(&parts).as_deref(), Some(read));
        }
    }
}
