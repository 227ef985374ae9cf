//! The client's layer.

use std::task::{Context, Poll};

use ::http::Request;
use leasehold_engine::FencingToken;
use tower_layer::Layer;
use tower_service::Service;

use super::FENCING_TOKEN;

/// Sets the header `Fencing-Token` on every request of a client, replacing any that is there.
///
/// Make one for each lease: `TokenLayer::new(lease.token())`. It does not check whether the lease still
/// holds; the server does.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use leasehold::{fence::http::{FENCING_TOKEN, TokenLayer}, FencingToken};
/// use tower::{Layer, ServiceExt};
///
/// # let client = tower::service_fn(async |request: Request<()>| {
/// #     assert_eq!(request.headers()[FENCING_TOKEN], "34");
/// #     Ok::<_, Infallible>(Response::new(()))
/// # });
/// let client = TokenLayer::new(FencingToken::new(34)?).layer(client);
/// client.oneshot(Request::put("/account/7").body(())?).await?;
/// # Ok(()) }
/// ```
#[derive(Copy, Clone, Debug)]
pub struct TokenLayer {
    token: FencingToken,
}

impl TokenLayer {
    /// Returns a layer that sends this token.
    ///
    /// ```
    /// use leasehold::{fence::http::TokenLayer, FencingToken};
    ///
    /// let layer = TokenLayer::new(FencingToken::new(34)?);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn new(token: FencingToken) -> Self {
        Self { token }
    }
}

impl<S> Layer<S> for TokenLayer {
    type Service = SetToken<S>;

    fn layer(&self, inner: S) -> SetToken<S> {
        let token = self.token;
        SetToken { inner, token }
    }
}

/// The service of a [`TokenLayer`].
#[derive(Clone, Debug)]
pub struct SetToken<S> {
    inner: S,
    token: FencingToken,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for SetToken<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        request
            .headers_mut()
            .insert(FENCING_TOKEN, self.token.into());
        self.inner.call(request)
    }
}
