//! A guard of an HTTP service, as `tower` layers: on its own over [`Gate`](super::Gate), for a
//! service whose state is its own.
//!
//! The server's [`FenceLayer`] reads the header `Fencing-Token` and a resource from each request
//! and refuses a stale one; the client's [`TokenLayer`] sets the header. A client of another kind
//! sets it by hand: a [`FencingToken`](crate::FencingToken) becomes a header's value by itself.
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::{convert::Infallible, sync::Arc};
//! use http::{Request, Response, StatusCode};
//! use leasehold::{fence::{http::{FENCING_TOKEN, FenceLayer}, Gate}, FencingToken};
//! use tower::{Layer, ServiceExt};
//!
//! let token = FencingToken::new(34)?; // lease.token()
//! let paused = FencingToken::new(33)?; // of a holder whose lease was lost meanwhile
//!
//! let layer = FenceLayer::by_path(Arc::new(Gate::new()));
//! let service = layer.layer(tower::service_fn(async |_: Request<String>| {
//!     Ok::<_, Infallible>(Response::new(String::from("written")))
//! }));
//! let request = |token| Request::put("/account/7").header(FENCING_TOKEN, token).body(String::new());
//! let response = service.clone().oneshot(request(token)?).await?;
//! assert_eq!(response.status(), StatusCode::OK);
//! let response = service.oneshot(request(paused)?).await?;
//! assert_eq!(response.status(), StatusCode::CONFLICT);
//! # Ok(()) }
//! ```
//!
//! # The header
//!
//! `Fencing-Token: 34`, once, in plain digits: a token can have 16 of them, one more than an
//! Integer of Structured Fields (RFC 9651) may have.
//!
//! # Authentication comes first
//!
//! The gate believes every token that it sees. A client that sends the greatest token, 2^53 - 1, for
//! a resource blocks that resource for every holder. A client that sends that token for many made-up
//! resources fills the gate's table: the [floor](super::Gate#its-bound-and-what-is-forgotten)
//! rises, and the gate blocks every resource. So put authentication outside of the layer, let each
//! client write only to resources that it has a right to, and put the layer on the routes that write,
//! not around the whole service.
//!
//! A request that the inner service answers with 401, 403, 404, 405 or 410 was not carried out. So
//! if the gate did not remember the resource before, it does not remember it for this request, and
//! the floor does not rise to its token. A resource that it remembers keeps the greatest token that
//! it has seen. A handler that gives one of these answers must not have written. With
//! [`check_only`](FenceLayer::check_only) every token counts, because the layer does not wait for
//! the answer.
//!
//! # The answers
//!
//! A refusal is a problem of RFC 9457, `application/problem+json`:
//!
//! | status | type | when |
//! |---|---|---|
//! | 409 | `urn:leasehold:stale-token` | a greater token was seen; members `resource`, `offered`, `highest` |
//! | 428 | `urn:leasehold:token-required` | there is no token |
//! | 400 | `urn:leasehold:bad-request` | the token is malformed, or there are several; the resource is empty or over-long |
//! | 503 | `urn:leasehold:overloaded` | [too many](super::Gate::MAX_WAITING) wait for the resource, or the gate is [full](super::Gate::with_capacity) of resources that are being written to; with `Retry-After: 1` |
//!
//! [`refusal`] reads them back into the [`Error`](crate::Error) that they are.
//!
//! ## Why 409 and not 412
//!
//! 412 Precondition Failed (RFC 9110, 15.5.13) is the answer to `If-Match` and its like, a
//! condition that the client chose: look again, and come back with the present validator. Clients
//! and libraries do so by themselves. A holder with a stale token must *not* come back: its lease
//! is over. And a service behind the layer may use `If-Match` as well; its 412 would look the same.
//! 409 Conflict (15.5.10) says what is: the request contradicts the state of the resource, which a
//! newer holder has. Kubernetes answers 409 likewise if a `resourceVersion` is out of date. There is
//! precedent for 412 too: Azure's blobs answer it to the wrong lease id. 409 may also mean other
//! things, so look at the problem's `type`, not at the status alone.
//!
//! A *missing* token is 428 Precondition Required (RFC 6585), whose purpose is just that: to keep
//! clients from writing without saying what they rely on.
//!
//! # How atomic it is
//!
//! By default the layer holds the resource from the check until the inner service's future is
//! done: a newer request waits for an older one that is being handled, and an older one that waits
//! is refused as soon as a newer one comes. So a handler that has written when it returns is
//! guarded. This is *not* so for what goes on after that: tasks that it spawned and did not wait
//! for, work in `spawn_blocking` whose request was given up (a server drops the future when the
//! client goes away), a write in the body's stream, and a write at a database that is still under
//! way there when its future is dropped. Where the state is in a store, guard it at the store.
//!
//! An old holder that is slow, or stopped while it sends its body, so holds up the new one. Put a
//! time limit *inside* of this layer; it drops the inner future, and the next request goes on.
//!
//! With [`check_only`](FenceLayer::check_only) nothing is held: each request is checked as it
//! comes, and an older one that passed can write *after* a newer one. It is for services that
//! check again at the write, and wish to refuse early.
//!
//! The gate is in this process's memory. Several instances of a service that share their state
//! need a guard at the store.

mod body;
mod layer;
mod problem;
mod token;

pub use body::FenceBody;
pub use layer::{FenceFuture, FenceLayer, Fenced, written_path};
pub use problem::refusal;
pub use token::{SetToken, TokenLayer};

use ::http::header::HeaderName;

/// The name of the header, `Fencing-Token`.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");
