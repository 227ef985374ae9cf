//! The instances of the specifications, and their negative controls.

/// An instance of a specification: bounds, and which switches are off.
#[derive(Clone, Copy)]
pub(super) struct Instance {
    pub(super) name: &'static str,
    pub(super) module: &'static str,
    /// The constants that differ from the module's configuration, each as `Name=Value`.
    pub(super) with: &'static str,
    /// The invariants that are not checked, because the instance drops an assumption that they need. Controls check
    /// promises only, and not why these hold.
    pub(super) unless: &'static str,
    /// The invariant that a control must violate; `None` if nothing may be violated.
    pub(super) breaks: Option<&'static str>,
    pub(super) is_large: bool,
    /// The contents of an instance, or the story of a control's counterexample.
    pub(super) story: &'static str,
}

impl Instance {
    /// Returns the assumptions and protections that are switched off, as Markdown.
    pub(super) fn switched_off(&self) -> String {
        let changes = self.with.split_whitespace();
        let off = changes.filter_map(|change| change.strip_suffix("=FALSE"));
        let off: Vec<_> = off.map(|name| format!("`{name}`")).collect();
        off.join(", ")
    }
}

const fn searched(
    name: &'static str,
    with: &'static str,
    unless: &'static str,
    story: &'static str,
) -> Instance {
    Instance {
        name,
        module: "Single",
        with,
        unless,
        breaks: None,
        is_large: false,
        story,
    }
}

const fn large(name: &'static str, with: &'static str, story: &'static str) -> Instance {
    Instance {
        is_large: true,
        ..searched(name, with, "", story)
    }
}

const fn control(
    name: &'static str,
    with: &'static str,
    breaks: &'static str,
    unless: &'static str,
    story: &'static str,
) -> Instance {
    Instance {
        breaks: Some(breaks),
        ..searched(name, with, unless, story)
    }
}

/// The lemmas behind the promises.
const LEMMAS: &str = "LossIsInTime";
/// The promises that need a server that keeps its data.
const OF_DATA: &str = "LossIsInTime Exclusion";

/// All instances. Those that take longest come first.
pub(super) const INSTANCES: &[Instance] = &[
    searched(
        "slow",
        "Paces={0,1} MaxRequests=1 MaxTime=5",
        "",
        "clients whose clocks are slow; no retries",
    ),
    searched(
        "fast",
        "Paces={1,2} MaxRequests=1 MaxTime=5",
        "",
        "clients whose clocks are fast; no retries",
    ),
    searched(
        "leases",
        "MaxTime=5",
        "",
        "acquisitions, retries and renewals; clocks that agree",
    ),
    searched(
        "owners",
        "HasOwners=TRUE MaxTime=5",
        "",
        "an owner that reclaims its lock through another client",
    ),
    searched(
        "line",
        "Waits={TRUE,FALSE} MaxRequests=1",
        "",
        "waiters, `try_` forms and handovers; no retries",
    ),
    searched(
        "losses",
        "ServerKeepsData=FALSE MaxTime=5",
        OF_DATA,
        "a server that loses its data; exclusion is not checked",
    ),
    searched(
        "forces",
        "HasForce=TRUE MaxRequests=1",
        "",
        "forced releases; no retries",
    ),
    searched(
        "fence",
        "HasWrites=TRUE MaxRequests=1",
        "",
        "writes that arrive late at a guarded store; no retries",
    ),
    control(
        "deadline-from-reply",
        "CountsFromRequest=FALSE MaxRequests=1",
        "Exclusion",
        LEMMAS,
        "A reply is slow; the holder counts its time from the reply, and the server gives the lock to another client meanwhile.",
    ),
    control(
        "no-margin",
        "LeavesMargin=FALSE Paces={0,1} MaxRequests=1",
        "Exclusion",
        LEMMAS,
        "The holder's clock is slow by one tick, so its lease ends one tick after the server's.",
    ),
    control(
        "unbounded-rates",
        "RatesAreBounded=FALSE Paces={0,1} MaxRequests=1",
        "Exclusion",
        LEMMAS,
        "The holder's clock is slower than the drift margin allows, and the margin does not suffice.",
    ),
    control(
        "no-margin-fast",
        "LeavesMargin=FALSE Paces={1,2} MaxRequests=1",
        "NoGhosts",
        LEMMAS,
        "The client's clock is fast, so it gives up before the server's clock has reached `not_after`, and the server acts.",
    ),
    control(
        "late-commands",
        "ChecksNotAfter=FALSE",
        "NoGhosts",
        LEMMAS,
        "A request arrives after its caller gave up, and takes the lock.",
    ),
    control(
        "renewal-takes",
        "RenewsOwn=FALSE",
        "NothingReacquired",
        LEMMAS,
        "The lease expires at the server while a renewal is on its way, and the renewal takes the lock again.",
    ),
    control(
        "data-lost",
        "ServerKeepsData=FALSE",
        "Exclusion",
        LEMMAS,
        "The server forgets the holder, and gives the lock to another client.",
    ),
    control(
        "clock-set",
        "ClockIsNotSet=FALSE",
        "Exclusion",
        LEMMAS,
        "Somebody sets the server's clock forward; the lease ends there, and goes on at its holder.",
    ),
    control(
        "dense-tokens",
        "TokensFollowClock=FALSE ServerKeepsData=FALSE",
        "TokensGrow",
        OF_DATA,
        "The server loses its data, and counts from 1 again.",
    ),
    control(
        "clock-behind",
        "ClockIsAhead=FALSE ServerKeepsData=FALSE MaxLeases=2",
        "TokensGrow",
        OF_DATA,
        "The last token is ahead of the server's clock when the server loses its data, and the next one is smaller.",
    ),
    control(
        "release-of-any",
        "ReleasesOwn=FALSE Clients={c1,c2,c3} MaxRequests=1",
        "Exclusion",
        LEMMAS,
        "A release that was slow frees the lock of the next holder.",
    ),
    control(
        "lease-id-again",
        "LeaseIdsAreNew=FALSE MaxRequests=2",
        "Exclusion",
        LEMMAS,
        "A second acquisition has the lease ID of the first, whose release arrives late and frees the second.",
    ),
    control(
        "reclaim-of-any",
        "ReclaimsNamed=FALSE HasOwners=TRUE MaxLeases=2 MaxTime=4",
        "Exclusion",
        LEMMAS,
        "A restarted owner means the tenure that it found, and takes over a later one.",
    ),
    control(
        "force-of-any",
        "ForcesNamed=FALSE HasForce=TRUE Clients={c1,c2,c3} MaxRequests=1",
        "Exclusion",
        LEMMAS,
        "A forced release arrives when the lock has its next holder, and frees that one.",
    ),
    control(
        "last-first",
        "ServesFirst=FALSE Clients={c1,c2,c3} Waits={TRUE} MaxRequests=1",
        "Order",
        LEMMAS,
        "A release hands the lock to the last waiter.",
    ),
    control(
        "try-overtakes",
        "TryNeverOvertakes=FALSE Clients={c1,c2,c3} Waits={TRUE,FALSE} MaxRequests=1",
        "Order",
        LEMMAS,
        "The holder's lease expires, and an acquisition takes the lock although somebody waits.",
    ),
    control(
        "grant-from-push",
        "CountsFromGrant=FALSE Clients={c1,c2,c3} Waits={TRUE} MaxRequests=1",
        "Exclusion",
        LEMMAS,
        "A push is slow; the waiter counts the time of its grant from the push, and the lock goes on to the next waiter.",
    ),
    control(
        "whole-window",
        "PromisesHalf=FALSE Clients={c1,c2,c3} Waits={TRUE} MaxRequests=1",
        "Exclusion",
        LEMMAS,
        "The server counts no receiver of a push and keeps the grant for half a window; the waiter believes in a whole one.",
    ),
    control(
        "no-guard",
        "GuardChecks=FALSE HasWrites=TRUE MaxRequests=1",
        "Fencing",
        LEMMAS,
        "A holder is paused after it checked its lease, and its write arrives after one of the next holder.",
    ),
    large(
        "three",
        "Clients={c1,c2,c3} Waits={TRUE,FALSE} MaxRequests=1 MaxTime=5",
        "three clients that wait or do not",
    ),
    Instance {
        is_large: true,
        ..searched(
            "losses-of-two",
            "ServerKeepsData=FALSE MaxLeases=2 MaxTime=5",
            OF_DATA,
            "a server that loses its data, two leases for each client; exclusion is not checked",
        )
    },
];
