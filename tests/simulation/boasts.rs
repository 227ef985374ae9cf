//! A server that says of everything that it lasts for longer than it does.

use std::time::Duration;

use leasehold::Error;
use leasehold::protocol::{LeaseId, News, Push, Reply};
use leasehold::time::ServerTime;

use crate::plan::Plan;

impl Plan {
    /// An answer as this run's server tells it.
    pub(crate) fn told(&self, mut reply: Result<Reply, Error>) -> Result<Reply, Error> {
        match &mut reply {
            Ok(Reply::Held(held)) => self.boast(&mut held.expires),
            Ok(Reply::HandedOver { grant, .. }) => self.boast(&mut grant.expires),
            Ok(Reply::Renewed { expires } | Reply::Busy { expires, .. }) => self.boast(expires),
            _ => {}
        }
        reply
    }

    /// A push as this run's server tells it.
    pub(crate) fn pushed(&self, lease: LeaseId, push: Push) -> Push {
        let mut news = push.news;
        if let News::Granted { grant, .. } = &mut news {
            self.boast(&mut grant.expires);
        }
        Push::new(lease, news)
    }

    fn boast(&self, expires: &mut ServerTime) {
        if self.boasts {
            *expires = *expires + Duration::from_secs(3_600);
        }
    }
}
