//! The refusal of a guard.

use crate::error::{Error, ErrorKind};
use crate::token::FencingToken;

/// The refusal of a write by a guard that has seen a greater token for the resource.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the token {offered} is stale: {highest} was seen for the resource {resource:?}")]
#[non_exhaustive]
pub struct StaleToken {
    /// The resource of the write.
    pub resource: String,
    /// The token of the write.
    pub offered: FencingToken,
    /// The greatest token seen so far.
    pub highest: FencingToken,
}

impl From<StaleToken> for Error {
    fn from(stale: StaleToken) -> Self {
        Error::with_source(ErrorKind::StaleToken, stale.to_string(), stale)
    }
}

impl Error {
    /// Makes an [`ErrorKind::StaleToken`] error. For guards.
    #[doc(hidden)]
    pub fn stale(resource: &str, offered: FencingToken, highest: FencingToken) -> Self {
        let resource = resource.to_owned();
        StaleToken {
            resource,
            offered,
            highest,
        }
        .into()
    }

    /// Returns the refusal if a guard refused a write because of a stale token.
    ///
    /// ```
    /// # use leasehold_engine as leasehold;
    /// # fn show(error: &leasehold::Error) {
    /// if let Some(stale) = error.stale_token() {
    ///     eprintln!("{} has seen {}, and was offered {}", stale.resource, stale.highest, stale.offered);
    /// }
    /// # }
    /// ```
    pub fn stale_token(&self) -> Option<&StaleToken> {
        std::error::Error::source(self)?.downcast_ref()
    }
}
