//! A guard for any storage that has conditional writes.

use leasehold_engine::{Error, ErrorKind, FencingToken};

use super::check_resource;

/// The state of a resource before a guarded write, as the storage reports it to [`write_if_newer`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Before<V, T> {
    /// The resource does not exist. The write must be conditional on that.
    Absent,
    /// The resource exists.
    Present {
        /// The token stored with the resource, or `None` if no guarded write ever touched it.
        token: Option<FencingToken>,
        /// The version that the write must be conditional on: an etag, a generation or a revision.
        version: V,
    },
    /// An earlier attempt of this same write succeeded, but its reply was lost. Holds its result.
    Done(T),
}

/// The maximum number of attempts of [`write_if_newer`] while other writers are faster.
pub const CONDITIONAL_ATTEMPTS: u32 = 64;

/// Writes under a token to any storage that has conditional writes.
///
/// Examples are an object store, through any version of its client, a table with a revision column, etcd and
/// Consul.
///
/// `read` reports the current state. `put` stores the new content *and the token* in one step, on condition
/// that the resource still has the version that was read, or still does not exist (`None`). It returns `None`
/// if the condition did not hold; then everything starts again with `read`. No other writer can come between
/// check and write, because the storage checks the condition in the same step.
///
/// The storage must promise that a version never comes back with an older token. An etag that is a hash of
/// the content breaks this, unless the content includes the token.
///
/// It does not pause between attempts. If many writers contend, pause in `put` before it returns `None`.
///
/// Errors: [`ErrorKind::StaleToken`] if a greater token is stored, and nothing was written;
/// [`ErrorKind::Config`] if the resource's name is not 1 to 512 bytes long; [`ErrorKind::Overloaded`] if
/// other writers were faster [64 times](CONDITIONAL_ATTEMPTS) in a row; otherwise the error of `read` or
/// `put`, unchanged. After an error of `put` it may be unknown whether it wrote. The same write may then be
/// repeated with the same token.
///
/// Cancel safe: if the future is dropped, the write has happened or not, and the rule holds.
///
/// ```
/// use leasehold::fence::{Before, write_if_newer};
/// use leasehold::{Error, FencingToken};
/// use std::sync::Mutex;
///
/// /// Stands for a storage with conditional writes: the content, its token and a revision.
/// let storage = Mutex::new(None::<(&str, FencingToken, u64)>);
///
/// let storage = &storage;
/// let write = async |content: &'static str, token| {
///     write_if_newer(
///         "reports/today",
///         token,
///         || async {
///             Ok::<_, Error>(match *storage.lock().unwrap() {
///                 None => Before::Absent,
///                 Some((_, token, revision)) => Before::Present { token: Some(token), version: revision },
///             })
///         },
///         |version| async move {
///             let mut stored = storage.lock().unwrap();
///             if stored.map(|(_, _, revision)| revision) != version {
///                 return Ok(None);
///             }
///             *stored = Some((content, token, version.map_or(1, |revision| revision + 1)));
///             Ok(Some(()))
///         },
///     )
///     .await
/// };
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let (older, newer) = (FencingToken::new(33)?, FencingToken::new(34)?); // of two leases
/// write("7 sold", newer).await?;
/// let refused = write("6 sold", older).await.unwrap_err();
/// assert_eq!(refused.stale_token().unwrap().highest, newer);
/// # Ok::<(), Error>(()) }).unwrap();
/// ```
pub async fn write_if_newer<V, T, E, R, P>(
    resource: &str,
    token: FencingToken,
    read: impl FnMut() -> R,
    put: impl FnMut(Option<V>) -> P,
) -> Result<T, E>
where
    E: From<Error>,
    R: Future<Output = Result<Before<V, T>, E>>,
    P: Future<Output = Result<Option<T>, E>>,
{
    write_within(CONDITIONAL_ATTEMPTS, resource, token, read, put).await
}

/// Like [`write_if_newer`], with a limit on the attempts.
pub(super) async fn write_within<V, T, E, R, P>(
    attempts: u32,
    resource: &str,
    token: FencingToken,
    mut read: impl FnMut() -> R,
    mut put: impl FnMut(Option<V>) -> P,
) -> Result<T, E>
where
    E: From<Error>,
    R: Future<Output = Result<Before<V, T>, E>>,
    P: Future<Output = Result<Option<T>, E>>,
{
    check_resource(resource)?;
    for _ in 0..attempts {
        let version = match read().await? {
            Before::Done(result) => return Ok(result),
            Before::Absent => None,
            Before::Present {
                token: highest,
                version,
            } => {
                if let Some(highest) = highest.filter(|highest| *highest > token) {
                    return Err(Error::stale(resource, token, highest).into());
                }
                Some(version)
            }
        };
        if let Some(result) = put(version).await? {
            return Ok(result);
        }
    }
    // The reply to the last attempt may have been lost too.
    if let Before::Done(result) = read().await? {
        return Ok(result);
    }
    let message = format!(
        "the write to the resource {resource:?} lost against other writers {attempts} times in a row; try again later"
    );
    Err(Error::new(ErrorKind::Overloaded, message).into())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::executor::block_on;

    use super::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).expect("it is a token")
    }

    /// Writes with the token 33. Each read finds `before(puts so far)`, and every put loses its race.
    fn losing(
        before: impl Fn(u32) -> Before<u32, &'static str>,
    ) -> (Result<&'static str, Error>, u32) {
        let puts = Cell::new(0);
        let read = || async { Ok(before(puts.get())) };
        let put = |_| async {
            puts.set(puts.get() + 1);
            Ok(None)
        };
        (
            block_on(write_if_newer("a", token(33), read, put)),
            puts.get(),
        )
    }

    const fn held(number: Option<FencingToken>) -> Before<u32, &'static str> {
        Before::Present {
            token: number,
            version: 1,
        }
    }

    /// Catches a guard that puts before it compares, or that refuses the holder's own token.
    #[test]
    fn a_greater_token_is_refused_before_anything_is_put() {
        let (refused, puts) = losing(|_| held(Some(token(34))));
        let refused = refused.expect_err("34 is stored");
        assert_eq!(
            refused.stale_token().map(|stale| stale.highest),
            Some(token(34))
        );
        assert_eq!(puts, 0);
        for equal_or_none in [Some(token(33)), None] {
            assert!(losing(|_| held(equal_or_none)).1 > 0);
        }
    }

    /// Catches a guard that compares once and then only repeats the put.
    #[test]
    fn a_lost_race_compares_again() {
        let (refused, puts) = losing(|puts| held(Some(token(32 + u64::from(puts)))));
        assert_eq!(refused.expect_err("34 came").kind(), ErrorKind::StaleToken);
        assert_eq!(puts, 2);
    }

    /// Catches a guard that writes twice because the reply to its own write was lost.
    #[test]
    fn a_write_that_is_in_place_is_not_repeated() {
        let (done, puts) = losing(|puts| {
            if puts == 0 {
                Before::Absent
            } else {
                Before::Done("done")
            }
        });
        assert_eq!((done, puts), (Ok("done"), 1));
        let last = |puts| {
            if puts == CONDITIONAL_ATTEMPTS {
                Before::Done("done")
            } else {
                Before::Absent
            }
        };
        assert_eq!(losing(last), (Ok("done"), CONDITIONAL_ATTEMPTS));
    }

    /// Catches a guard that retries forever.
    #[test]
    fn attempts_are_bounded() {
        let (lost, puts) = losing(|_| Before::Absent);
        assert_eq!(
            lost.expect_err("others are faster").kind(),
            ErrorKind::Overloaded
        );
        assert_eq!(puts, CONDITIONAL_ATTEMPTS);
    }

    #[test]
    fn a_resource_must_have_a_name() {
        let read = || async { Ok(Before::<u32, ()>::Absent) };
        let put = |_| async { Ok::<_, Error>(Some(())) };
        let error = block_on(write_if_newer("", token(33), read, put)).expect_err("it is empty");
        assert_eq!(error.kind(), ErrorKind::Config);
    }
}
