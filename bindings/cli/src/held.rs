//! The lease, turn, permit or locks that a command runs under.

use std::time::Duration;

use leasehold::{Bundle, Error, Lease, Lost, Permit, Turn};

use crate::exit::Failure;

/// The lease or leases that a command runs under.
#[derive(Debug)]
pub(crate) enum Held {
    Lease(Lease),
    /// A turn of a job: its tick is completed if the command ends with 0.
    Turn(Turn),
    /// A part of a shared name.
    Permit(Permit),
    /// Several locks, and their names in the order of the command line.
    Bundle(Bundle, Vec<String>),
}

impl Held {
    /// Returns the lease, or the bundle of several.
    fn lease(&self) -> Result<&Lease, &Bundle> {
        match self {
            Self::Lease(lease) => Ok(lease),
            Self::Turn(turn) => Ok(turn.lease()),
            Self::Permit(permit) => Ok(permit),
            Self::Bundle(bundle, _) => Err(bundle),
        }
    }

    /// Returns the name, or all names, for people.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Bundle(_, names) => names.join(", "),
            _ => self
                .lease()
                .map_or_else(|_| String::new(), |lease| lease.name().to_string()),
        }
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.lease()
            .map_or_else(Bundle::remaining, Lease::remaining)
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.lease().map_or_else(Bundle::is_valid, Lease::is_valid)
    }

    pub(crate) async fn lost(&self) -> Lost {
        match self.lease() {
            Ok(lease) => lease.lost().await,
            Err(bundle) => bundle.lost().await,
        }
    }

    /// Sees to it that the command starts with enough time before the deadline.
    pub(crate) async fn with_time(&self, ttl: Duration) -> Result<(), Failure> {
        match self.lease() {
            Ok(lease) => with_time(lease, ttl).await,
            Err(bundle) if bundle.remaining() < ttl / 2 => Ok(bundle.renew().await?),
            Err(_) => Ok(()),
        }
    }

    /// Returns what a leader's note says of it.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Permit(permit) => {
                format!(
                    "holding {} with token {}",
                    permit.resource(),
                    permit.token()
                )
            }
            _ => self.lease().map_or_else(
                |_| format!("holding {}", self.name()),
                |lease| format!("leading {} with token {}", lease.name(), lease.token()),
            ),
        }
    }

    /// Returns the variables of the environment that tell what is held.
    pub(crate) fn environment(&self) -> Vec<(&'static str, Option<String>)> {
        let (name, token) = match self.lease() {
            Ok(lease) => (
                Some(lease.name().to_string()),
                Some(lease.token().to_string()),
            ),
            // A program that was given one token would check it for another name.
            Err(_) => (None, None),
        };
        let mut all = vec![("LEASEHOLD_NAME", name), ("LEASEHOLD_TOKEN", token)];
        match self {
            Self::Lease(_) => {}
            Self::Turn(turn) => all.extend([
                ("LEASEHOLD_TICK", Some(turn.tick().to_string())),
                ("LEASEHOLD_MISSED", Some(turn.missed().to_string())),
            ]),
            Self::Permit(permit) => all.extend(of_permit(permit)),
            Self::Bundle(bundle, names) => {
                let tokens = names.iter().filter_map(|name| bundle.token(name));
                all.push(("LEASEHOLD_TOKENS", Some(spaced(tokens))));
            }
        }
        all
    }

    pub(crate) async fn release(self, completes: bool) -> Result<(), Error> {
        match self {
            Self::Lease(lease) => lease.release().await,
            Self::Turn(turn) if completes => turn.done().await,
            Self::Turn(turn) => turn.give_back().await,
            Self::Permit(permit) => permit.release().await,
            Self::Bundle(bundle, _) => bundle.release().await.map(drop),
        }
    }
}

/// Joins the items with spaces.
fn spaced(items: impl IntoIterator<Item = impl ToString>) -> String {
    let items: Vec<_> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(" ")
}

/// Renews a lease with little time left, as one has that was handed over, so that the command starts with its full time.
pub(crate) async fn with_time(lease: &Lease, ttl: Duration) -> Result<(), Failure> {
    if lease.remaining() < ttl / 2 {
        lease.renew().await?;
    }
    Ok(())
}

/// Returns the variables of the environment that only a permit has.
fn of_permit(permit: &Permit) -> Vec<(&'static str, Option<String>)> {
    let resource = permit.resource().into_owned();
    let mut all = vec![("LEASEHOLD_RESOURCE", Some(resource))];
    if let Some(slot) = permit.slot() {
        all.push(("LEASEHOLD_SLOT", Some(slot.to_string())));
        all.push(("LEASEHOLD_SLOTS", Some(spaced(permit.slots()))));
    }
    if let Some(token) = permit.generation() {
        all.push(("LEASEHOLD_GENERATION", Some(token.to_string())));
    }
    all
}
