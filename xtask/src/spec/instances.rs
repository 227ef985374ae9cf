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
    pub(super) length: Length,
    /// The contents of an instance, or the story of a control's counterexample.
    pub(super) story: &'static str,
}

/// How long TLC takes for an instance.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Seconds,
    /// Some ten seconds: `--quick` leaves it out.
    Slow,
    /// Minutes: only `--large` runs it.
    Large,
}

impl Instance {
    pub(super) fn is_large(&self) -> bool {
        self.length == Length::Large
    }

    /// True if it follows traces of the code.
    pub(super) fn is_of_traces(&self) -> bool {
        [TRACES, QUORUM_TRACES].contains(&self.module)
    }

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
        length: Length::Seconds,
        story,
    }
}

/// Returns the instance among those that take longer.
const fn large(instance: Instance) -> Instance {
    Instance {
        length: Length::Large,
        ..instance
    }
}

/// Returns the instance among those that `--quick` leaves out.
const fn slow(instance: Instance) -> Instance {
    Instance {
        length: Length::Slow,
        ..instance
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

/// Returns the instance with the quorum's specification as its module.
const fn quorum(instance: Instance) -> Instance {
    Instance {
        module: "Quorum",
        ..instance
    }
}

/// Returns an instance that follows traces of the code. A control has a fault of `tests/search/traces`, and is refused.
const fn traces(name: &'static str, story: &'static str) -> Instance {
    Instance {
        module: TRACES,
        ..searched(name, "", "", story)
    }
}

const fn refused(name: &'static str, story: &'static str) -> Instance {
    Instance {
        breaks: Some("Accepted"),
        ..traces(name, story)
    }
}

/// Returns an instance that follows traces of a quorum.
const fn of_quorum(instance: Instance) -> Instance {
    Instance {
        module: QUORUM_TRACES,
        ..instance
    }
}

/// The modules of the instances that follow traces of the code.
const TRACES: &str = "Traces";
const QUORUM_TRACES: &str = "QuorumTraces";

/// The lemmas behind the promises.
const LEMMAS: &str = "LossIsInTime";
/// The promises that need a server that keeps its data.
const OF_DATA: &str = "LossIsInTime Exclusion";

/// All instances. Those that take longest come first.
pub(super) const INSTANCES: &[Instance] = &[
    traces("traces", "the code as it is"),
    refused(
        "traces-anybody",
        "a release frees the lock of whoever holds it",
    ),
    refused("traces-forgotten", "a waiter that gives up stays in line"),
    refused(
        "traces-last-first",
        "a release hands the lock to the last waiter",
    ),
    refused("traces-same-ids", "a client uses a lease ID again"),
    refused(
        "traces-same-token",
        "a lock that is handed over keeps its token",
    ),
    refused(
        "traces-twice",
        "a repeated acquisition counts as another one",
    ),
    of_quorum(traces("quorum-traces", "the code as it is")),
    of_quorum(refused(
        "quorum-traces-lost",
        "a server loses the lock, and nobody notices",
    )),
    of_quorum(refused(
        "quorum-traces-same-token",
        "a server gives the same token again",
    )),
    of_quorum(refused(
        "quorum-traces-votes",
        "a server votes for each client that asks",
    )),
    traces("timed-traces", "the code as it is"),
    refused(
        "timed-traces-alive",
        "a dead waiter counts as alive for a minute",
    ),
    refused("timed-traces-late", "the server acts past `not_after`"),
    refused(
        "timed-traces-longer",
        "the engine asks for twice the time to live",
    ),
    refused(
        "timed-traces-slow",
        "the engine hears of the time half a second late",
    ),
    refused("timed-traces-untold", "a loss is not told"),
    searched(
        "slow",
        "Paces={0,1} MaxRequests=1 MaxTime=5",
        "",
        "clients whose clocks are slow; no retries",
    ),
    slow(searched(
        "fast",
        "Paces={1,2} MaxRequests=1 MaxTime=5",
        "",
        "clients whose clocks are fast; no retries",
    )),
    slow(searched(
        "leases",
        "MaxTime=5",
        "",
        "acquisitions, retries and renewals; clocks that agree",
    )),
    slow(searched(
        "owners",
        "HasOwners=TRUE MaxTime=5",
        "",
        "an owner that reclaims its lock through another client",
    )),
    searched(
        "line",
        "Waits={TRUE,FALSE} MaxRequests=1",
        "",
        "waiters, `try_` forms and handovers; no retries",
    ),
    slow(searched(
        "losses",
        "ServerKeepsData=FALSE MaxTime=5",
        OF_DATA,
        "a server that loses its data; exclusion is not checked",
    )),
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
    slow(control(
        "unbounded-rates",
        "RatesAreBounded=FALSE Paces={0,1} MaxRequests=1",
        "Exclusion",
        LEMMAS,
        "The holder's clock is slower than the drift margin allows, and the margin does not suffice.",
    )),
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
    slow(control(
        "reclaim-of-any",
        "ReclaimsNamed=FALSE HasOwners=TRUE MaxLeases=2 MaxTime=4",
        "Exclusion",
        LEMMAS,
        "A restarted owner means the tenure that it found, and takes over a later one.",
    )),
    slow(control(
        "force-of-any",
        "ForcesNamed=FALSE HasForce=TRUE Clients={c1,c2,c3} MaxRequests=1",
        "Exclusion",
        LEMMAS,
        "A forced release arrives when the lock has its next holder, and frees that one.",
    )),
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
    slow(control(
        "whole-window",
        "PromisesHalf=FALSE Clients={c1,c2,c3} Waits={TRUE} MaxRequests=1",
        "Exclusion",
        LEMMAS,
        "The server counts no receiver of a push and keeps the grant for half a window; the waiter believes in a whole one.",
    )),
    control(
        "no-guard",
        "GuardChecks=FALSE HasWrites=TRUE MaxRequests=1",
        "Fencing",
        LEMMAS,
        "A holder is paused after it checked its lease, and its write arrives after one of the next holder.",
    ),
    large(searched(
        "three",
        "Clients={c1,c2,c3} Waits={TRUE,FALSE} MaxRequests=1 MaxTime=5",
        "",
        "three clients that wait or do not",
    )),
    large(searched(
        "losses-of-two",
        "ServerKeepsData=FALSE MaxLeases=2 MaxTime=5",
        OF_DATA,
        "a server that loses its data, two leases for each client; exclusion is not checked",
    )),
    quorum(searched("quorum-agrees", "", "", "clocks that agree")),
    quorum(searched(
        "quorum-raises",
        "Offsets={0,1} Guesses={0,1} MaxTime=1",
        "",
        "members whose clocks differ, so that counters are raised; no time passes",
    )),
    quorum(searched(
        "quorum-losses",
        "MaxLosses=1 SetsClock=TRUE MaxTime=2",
        "",
        "one member loses its data, and its clock may be set forward",
    )),
    quorum(searched(
        "quorum-forces",
        "HasForce=TRUE Ttl=3 MaxTime=1 MaxLater=1",
        "",
        "forced releases, and one later request of each client; no time passes",
    )),
    quorum(control(
        "quorum-minority",
        "NeedsMajority=FALSE MaxTime=1",
        "Exclusion",
        LEMMAS,
        "Two clients hold leases at different members: one member suffices.",
    )),
    quorum(control(
        "quorum-no-margin",
        "LeavesMargin=FALSE Paces={0,1} NeverEndsEarly=TRUE",
        "Exclusion",
        LEMMAS,
        "The holder's clock is slow by one tick, so its lease ends after those of its members.",
    )),
    quorum(control(
        "quorum-unbounded-rates",
        "RatesAreBounded=FALSE Paces={0,1} NeverEndsEarly=TRUE",
        "Exclusion",
        LEMMAS,
        "The holder's clock is slower than the drift margin allows.",
    )),
    quorum(control(
        "quorum-no-raise",
        "RaisesCounters=FALSE Offsets={0,1} Guesses={0} MaxTime=1",
        "TokensGrow",
        LEMMAS,
        "A lease has the greatest of two tokens; the next one begins at the member that gave the smaller.",
    )),
    quorum(control(
        "quorum-minority-counters",
        "CountersOfMajority=FALSE Offsets={0,1} Guesses={0} MaxTime=1",
        "TokensGrow",
        LEMMAS,
        "A counter that one member has is enough, and the next lease does not meet that member.",
    )),
    quorum(control(
        "quorum-proposal-again",
        "ProposalsGrow=FALSE MaxTime=1",
        "TokensGrow",
        LEMMAS,
        "Two clients propose the same token, and the members give it twice.",
    )),
    quorum(control(
        "quorum-no-floor",
        "TokensFollowClock=FALSE Guesses={0} MaxLosses=1 NeverEndsEarly=TRUE",
        "TokensGrow",
        LEMMAS,
        "A member loses its data, counts from 1 again, and votes with one that never knew the lease.",
    )),
    quorum(control(
        "quorum-no-quarantine",
        "HasQuarantine=FALSE MaxLosses=1 MaxTime=1",
        "Exclusion",
        LEMMAS,
        "A member forgets the holder and votes for another client at once.",
    )),
    quorum(control(
        "quorum-incarnation-ignored",
        "ChecksIncarnation=FALSE MaxLosses=1 MaxTime=1",
        "Exclusion",
        LEMMAS,
        "A member forgets the holder, and a client that knows only its former incarnation asks it.",
    )),
    quorum(control(
        "quorum-own-clock",
        "MeasuredByMajority=FALSE SetsClock=TRUE MaxLosses=1 MaxTime=1",
        "Exclusion",
        LEMMAS,
        "A restarted member's clock is set forward, and its own measure ends its quarantine.",
    )),
    quorum(control(
        "quorum-longest-ignored",
        "LastsLongest=FALSE Ttl=3 MaxLosses=1 MaxTime=2",
        "Exclusion",
        LEMMAS,
        "A lease lives longer than a quarantine takes, and its member votes again meanwhile.",
    )),
    quorum(control(
        "quorum-many-forget",
        "FewForget=FALSE MaxLosses=2 MaxTime=1",
        "Exclusion",
        LEMMAS,
        "A majority loses its data, and counts as a new quorum.",
    )),
    quorum(large(searched(
        "quorum-slow",
        "Paces={0,1} NeverEndsEarly=TRUE",
        "",
        "clients whose clocks are slow; leases end at their deadlines",
    ))),
    quorum(large(searched(
        "quorum-fast",
        "Paces={1,2} NeverEndsEarly=TRUE",
        "",
        "clients whose clocks are fast; leases end at their deadlines",
    ))),
    quorum(large(searched(
        "quorum-raises-later",
        "Offsets={0,1} Guesses={0,1} MaxTime=2 NeverEndsEarly=TRUE",
        "",
        "members whose clocks differ; leases end at their deadlines",
    ))),
    quorum(large(searched(
        "quorum-renews",
        "Ttl=3 MaxLater=1 NeverEndsEarly=TRUE",
        "",
        "one renewal or later request of each client; leases end at their deadlines",
    ))),
    quorum(large(searched(
        "quorum-losses-later",
        "Guesses={0} MaxLosses=1 SetsClock=TRUE NeverEndsEarly=TRUE",
        "",
        "one member loses its data, and votes again after its quarantine",
    ))),
    quorum(large(searched(
        "quorum-replies",
        "SlowReplies=TRUE NeverEndsEarly=TRUE",
        "",
        "replies that take time; leases end at their deadlines",
    ))),
    quorum(large(searched(
        "quorum-two",
        "MaxLeases=2 MaxTime=2",
        "",
        "two leases for each client",
    ))),
    quorum(large(control(
        "quorum-from-reply",
        "CountsFromRequest=FALSE SlowReplies=TRUE NeverEndsEarly=TRUE",
        "Exclusion",
        LEMMAS,
        "Replies are slow; the holder counts its time from them, and the members give the lock to another client meanwhile.",
    ))),
    quorum(large(control(
        "quorum-far-proposal",
        "IgnoresFar=FALSE Guesses={1,9} MaxLosses=1 NeverEndsEarly=TRUE",
        "TokensGrow",
        LEMMAS,
        "A client proposes a token far ahead, a member forgets it, and that member's clock is still behind.",
    ))),
    quorum(large(control(
        "quorum-clocks-apart",
        "ClocksAreNear=FALSE Offsets={0,9} Guesses={0} MaxLosses=1 NeverEndsEarly=TRUE",
        "TokensGrow",
        LEMMAS,
        "A member whose clock is far ahead gives the token; one that forgot it votes again with a clock far behind.",
    ))),
    quorum(large(control(
        "quorum-minority-renews",
        "EndsWithMajority=FALSE Ttl=4 MaxTime=5 MaxLater=1 NeverEndsEarly=TRUE",
        "Exclusion",
        LEMMAS,
        "One member renews the lease, which the holder takes for the majority's.",
    ))),
    quorum(large(control(
        "quorum-late-at-once",
        "ProvesLate=FALSE HasForce=TRUE Ttl=3 MaxTime=2 MaxLater=2",
        "NothingReacquired",
        LEMMAS,
        "A lease is freed by force at one member, and a later lease comes and goes; a member that joins late then lets the first go on.",
    ))),
];
