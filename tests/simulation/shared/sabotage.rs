//! Promises of shared names that are broken on purpose.

use leasehold_engine::protocol::{
    Acquire, Admit, Claim, ClientId, Command, Extend, LockKey, Op, Reclaim, Release, Renew, Reply,
    Resize, Vacate,
};
use leasehold_engine::time::ServerTime;
use leasehold_engine::{Error, Owner, Share, Sharing};

use crate::line::lease_of_claim;
use crate::sabotage::Sabotage;
use crate::world::World;

impl Sabotage {
    /// Returns the only way to share names with which it shows.
    pub(crate) fn sharing(self) -> Option<Sharing> {
        match self {
            Self::SlotsTwice => Some(Sharing::Slots),
            Self::ClientsCapacity | Self::ShrinksRevoke => Some(Sharing::Units),
            Self::ReadersOvertake | Self::GenerationsForgotten => Some(Sharing::Access),
            _ => None,
        }
    }
}

impl World {
    /// Executes a command on a shared name if this run is sabotaged so that it has another effect.
    pub(crate) fn sabotaged_part(
        &mut self,
        time: ServerTime,
        server: usize,
        op: &Op,
    ) -> Option<Result<Reply, Error>> {
        let sabotage = self.plan.sabotage;
        if sabotage == Sabotage::None || time > op.not_after {
            return None;
        }
        match (sabotage, &op.command) {
            (Sabotage::ReleasesForgotten, Command::Vacate(_)) => Some(Ok(Reply::Released)),
            (Sabotage::StoreCounts, Command::Vacate(vacate)) => {
                Some(self.counts_down(time, server, (vacate, op)))
            }
            (Sabotage::SlotsTwice | Sabotage::GenerationsForgotten, Command::Admit(_)) => {
                let mut reply = self.does(time, server, op.clone());
                if let Ok(Reply::Admitted(_, told)) = &mut reply {
                    if sabotage == Sabotage::SlotsTwice {
                        told.slots.iter_mut().for_each(|slot| *slot /= 2);
                    } else {
                        told.generation = None;
                    }
                }
                Some(reply)
            }
            (Sabotage::ClientsCapacity, Command::Admit(Admit(acquire))) => {
                self.resizes_to_own(time, server, acquire);
                None
            }
            (Sabotage::ShrinksRevoke, Command::Resize(resize)) => {
                let reply = self.does(time, server, op.clone());
                self.revokes(time, server, resize);
                Some(reply)
            }
            (Sabotage::RenewsByProcess, Command::Extend(extend)) => {
                self.renews_others(time, server, extend);
                None
            }
            (Sabotage::ReadersOvertake, Command::Admit(Admit(acquire))) => {
                Some(self.overtakes(time, server, (acquire, op)))
            }
            _ => None,
        }
    }

    /// Releases a permit; if it is gone already, another one counts as released instead.
    fn counts_down(
        &mut self,
        time: ServerTime,
        server: usize,
        (Vacate(release), op): (&Vacate, &Op),
    ) -> Result<Reply, Error> {
        let key = &release.key;
        let reply = self.does(time, server, op.clone());
        let was_held = self
            .checks
            .all_granted(key)
            .iter()
            .any(|granted| granted.lease == release.claim.lease);
        if reply == Ok(Reply::Gone) && was_held {
            let state = self.state_at(server, key);
            let other = state.and_then(|state| state.permits.keys().next().copied());
            if let Some(lease) = other {
                let mut claim = release.claim.clone();
                claim.lease = lease;
                self.leaves(time, server, (key, claim));
            }
        }
        reply
    }

    fn resizes_to_own(&mut self, time: ServerTime, server: usize, acquire: &Acquire) {
        let Some(share) = acquire.claim.owner.share() else {
            return;
        };
        let command = Command::Resize(Resize {
            key: acquire.key.clone(),
            sharing: share.sharing(),
            capacity: share.capacity(),
            counter: acquire.claim.counter,
        });
        let not_after = time;
        let _ = self.does(time, server, Op { command, not_after });
    }

    /// Ends the latest permits until the others fit.
    fn revokes(&mut self, time: ServerTime, server: usize, resize: &Resize) {
        while let Some(state) = self.state_at(server, &resize.key)
            && state.used(time) > state.capacity
            && let Some((lease, _)) = state.living(time).max_by_key(|(_, permit)| permit.token)
        {
            let share = Share::units(1, 1).expect("a part within the bounds");
            let owner = Owner::sharing("store", share);
            let mut claim = self.claim(0, ClientId(1));
            (claim.lease, claim.owner) = (*lease, owner.expect("the label is short"));
            self.leaves(time, server, (&resize.key, claim));
        }
    }

    /// Extends all permits of the process that renews one.
    fn renews_others(&mut self, time: ServerTime, server: usize, extend: &Extend) {
        let renew = &extend.renew;
        let Some(state) = self.state_at(server, &renew.key) else {
            return;
        };
        let Some(own) = state.permits.get(&renew.lease) else {
            return;
        };
        for (lease, permit) in &state.permits {
            if permit.client != own.client {
                continue;
            }
            let renew = Renew {
                lease: *lease,
                token: permit.token,
                ..renew.clone()
            };
            let reads = false;
            let command = Command::Extend(Extend { renew, reads });
            let not_after = time;
            let _ = self.does(time, server, Op { command, not_after });
        }
    }

    /// Executes an acquisition; a reader finds no one in line.
    fn overtakes(
        &mut self,
        time: ServerTime,
        server: usize,
        (acquire, op): (&Acquire, &Op),
    ) -> Result<Reply, Error> {
        let (key, claim) = (&acquire.key, &acquire.claim);
        if acquire.waits {
            let claims = &mut self.servers[server].claims;
            claims.insert(claim.lease, claim.clone());
        }
        if claim.owner.share().is_some_and(Share::is_writer) {
            return self.does(time, server, op.clone());
        }
        let line = self.servers[server].store.line_value(time, key);
        let members = line.map(|(members, _)| members).unwrap_or_default();
        let claims = &self.servers[server].claims;
        let of = |claim: &str| claims.get(&lease_of_claim(claim)?).cloned();
        let claims: Vec<_> = members.iter().filter_map(|(claim, ..)| of(claim)).collect();
        // From the end, so that nobody gets to the front meanwhile.
        for claim in claims.iter().rev() {
            self.leaves(time, server, (key, claim.clone()));
        }
        let reply = self.does(time, server, op.clone());
        for claim in claims {
            if claim.lease != acquire.claim.lease {
                self.joins(time, server, (key, claim));
            }
        }
        reply
    }

    fn leaves(&mut self, time: ServerTime, server: usize, (key, claim): (&LockKey, Claim)) {
        let command = Command::Vacate(Vacate(Release {
            key: key.clone(),
            claim,
            token: None,
            completes: false,
        }));
        let not_after = time;
        let _ = self.does(time, server, Op { command, not_after });
    }

    fn joins(&mut self, time: ServerTime, server: usize, (key, claim): (&LockKey, Claim)) {
        let command = Command::Admit(Admit(Acquire {
            key: key.clone(),
            claim,
            waits: true,
            reclaims: Reclaim::Never,
        }));
        let not_after = time;
        let _ = self.does(time, server, Op { command, not_after });
    }
}
