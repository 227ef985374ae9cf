//! A server that reports later expiries than it keeps.

use std::time::Duration;

use leasehold_engine::Error;
use leasehold_engine::protocol::{News, Push, Reply};
use leasehold_engine::time::ServerTime;

use crate::plan::Plan;
use crate::world::World;

impl Plan {
    /// Returns an answer as this run's server reports it.
    pub(crate) fn told(&self, mut reply: Result<Reply, Error>) -> Result<Reply, Error> {
        match &mut reply {
            Ok(Reply::Held(held) | Reply::Admitted(held, _)) => self.boast(&mut held.expires),
            Ok(Reply::HandedOver { grant, .. }) => self.boast(&mut grant.expires),
            Ok(
                Reply::Renewed { expires }
                | Reply::Wanted { expires, .. }
                | Reply::Busy { expires, .. },
            ) => self.boast(expires),
            _ => {}
        }
        reply
    }

    fn boast(&self, expires: &mut ServerTime) {
        if self.boasts {
            *expires = *expires + Duration::from_secs(3_600);
        }
    }
}

impl World {
    /// Returns a push to a host as this run's server sends it.
    pub(crate) fn pushed(&self, host: usize, push: Push) -> Push {
        let mut leases = self.hosts[host].book.attempts.keys();
        let mut of = || leases.find(|lease| push.open(**lease).is_some());
        match push.news {
            News::Granted { mut grant, time } if self.plan.boasts => {
                self.plan.boast(&mut grant.expires);
                of().map_or(push, |lease| {
                    Push::new(*lease, News::Granted { grant, time })
                })
            }
            _ => push,
        }
    }
}
