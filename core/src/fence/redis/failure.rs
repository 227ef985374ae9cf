//! Maps errors of a guarded write.

use fred::error::Error as FredError;
use leasehold_engine::protocol::{credentials_refused, printable};
use leasehold_engine::{Error, ErrorKind, FencingToken};

use super::Fenced;

impl Fenced {
    pub(super) fn failure(&self, error: &FredError) -> Error {
        let (resource, fence) = (&*self.resource, &*self.fence);
        let said = error.details();
        let mut words = said.split_ascii_whitespace();
        let secrets = self.redis.runner.secrets();
        let hidden = secrets.hide(error);
        let failed = |kind, what: String| {
            let message = format!("the guarded write to {resource:?} failed: {what}");
            if hidden {
                return Error::new(kind, message);
            }
            Error::with_source(kind, message, error.clone())
        };
        match words.next().unwrap_or_default() {
            "STALETOKEN" => {
                let highest = words
                    .next()
                    .and_then(|word| word.parse::<FencingToken>().ok());
                if let Some(highest) = highest {
                    return Error::stale(resource, self.token, highest);
                }
            }
            "NOTAFENCE" => {
                let what = format!(
                    "its fence key {fence:?} does not hold a token: something other than a guard wrote to it"
                );
                return failed(ErrorKind::WrongType, what);
            }
            "CROSSSLOT" => {
                let what = format!(
                    "its keys and its fence key {fence:?} are on different cluster slots; give all the same hash tag"
                );
                return failed(ErrorKind::Config, what);
            }
            _ => {}
        }
        let told = secrets.convert(error);
        match told.kind() {
            kind if hidden => failed(kind, told.to_string()),
            _ if said.starts_with("ERR Error compiling script") => {
                failed(ErrorKind::Config, printable(said))
            }
            // For these two the engine's advice is about a lock's keys.
            ErrorKind::WrongType => failed(ErrorKind::WrongType, printable(said)),
            ErrorKind::Auth if credentials_refused(said).is_none() => {
                failed(ErrorKind::Auth, printable(said))
            }
            kind => failed(kind, told.to_string()),
        }
    }
}
