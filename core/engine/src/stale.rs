//! What guards say.

use crate::error::{Error, ErrorKind};
use crate::token::FencingToken;

/// Why a guard refused a write.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the token {offered} is stale: {highest} was seen for the resource {resource:?}")]
#[non_exhaustive]
pub struct StaleToken {
    /// What was to be written to.
    pub resource: String,
    /// The token of the write.
    pub offered: FencingToken,
    /// The greatest token that was seen.
    pub highest: FencingToken,
}

impl From<StaleToken> for Error {
    fn from(stale: StaleToken) -> Self {
        Error::with_source(ErrorKind::StaleToken, stale.to_string(), stale)
    }
}

impl Error {
    /// [`ErrorKind::StaleToken`], for guards.
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

    /// What a guard refused, if it was that.
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
