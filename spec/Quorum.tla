------------------------------- MODULE Quorum -------------------------------
\* Locks of one name at a quorum: an acquisition at a majority, proposals and raised counters, renewals, members that join
\* late, forced releases, incarnations and quarantine, the longest lease, and clocks. README.md says what is assumed and what
\* follows.
\*
\* Each action names the code that it stands for: a Lua file of core/engine/src/protocol, or a function of
\* core/engine/src/engine/quorum. Locks at one member are those of Single.tla, which has their retries, `not_after` and line.
\* Here, each client has at most one request under way at each member, as in the engine. It arrives at any time, or never.
EXTENDS Integers, FiniteSets, TLC, Time

CONSTANTS
    Members, Clients, Ttl,
    \* A tick has so many tokens: a member gives fewer in that time.
    Scale,
    \* A member ignores a proposal that is so many tokens from its clock: `MOST_APART_US`.
    Apart,
    \* Bounds of an instance. Those of leases and of later requests (renewals, asking again, proofs) are for each client.
    MaxTime, MaxLeases, MaxLater, MaxLosses,
    \* By how many ticks a client's clock may advance in one: {0, 1, 2}, or {1} in an instance whose clocks agree.
    Paces,
    \* By how many ticks the members' wall clocks may be ahead, and by how many a client's idea of the time.
    Offsets, Guesses,
    \* What an instance contains: clients that never give up or release, and only lose their leases; replies that take
    \* time; forced releases; a restarted member whose clock is set forward.
    NeverEndsEarly, SlowReplies, HasForce, SetsClock,
    \* Assumptions.
    RatesAreBounded,        \* The clocks' rates differ by less than the drift margin.
    FewForget,              \* Fewer than a majority lose their data within the longest lease.
    ClocksAreNear,          \* The members' wall clocks differ by less than the longest lease.
    \* Protections.
    CountsFromRequest,      \* A deadline counts from before the request was sent.
    NeedsMajority,          \* A lease begins when a majority has it.
    EndsWithMajority,       \* A lease ends when a majority no longer has it: the m-th latest deadline.
    RaisesCounters,         \* A lease begins when members have counters that are not below its token,
    CountersOfMajority,     \* and these members are a majority.
    TokensFollowClock,      \* A token is no smaller than the member's clock, or than the proposal near it.
    ProposalsGrow,          \* A member gives a greater token than the proposal if its last token is as great.
    IgnoresFar,             \* A member ignores a proposal that is far from its clock.
    ProvesLate,             \* A late member with a greater token counts only once a majority has confirmed the lease.
    ChecksIncarnation,      \* An acquisition names the incarnation that may vote.
    HasQuarantine,          \* A member that lost its data does not vote,
    LastsLongest,           \* for as long as the longest lease,
    MeasuredByMajority      \* which a majority of the members measures.

VARIABLES
    time,       \* The members' monotonic clock.
    ahead,      \* By how many ticks the wall clock of each member is ahead.
    local,      \* The clock of each client.
    steady,     \* For how many ticks each client's clock has not deviated.
    member,     \* What each member stores; an expired tenure counts as gone.
    forward,    \* Restarted members whose clock was set forward.
    call,       \* The request of each client at each member, or the reply to it.
    vote,       \* `Vote`: what each client knows of its lease at each member.
    client,     \* What else each client knows.
    greatest,   \* History: the greatest token of any lease.
    bound,      \* History: the last deadline of a lease when a later one began; 0 if none did.
    broken      \* History: promises that a step has broken.

vars == <<time, ahead, local, steady, member, forward, call, vote, client, greatest, bound, broken>>

\* `members::majority`.
Majority == Cardinality(Members) \div 2 + 1

Nobody == "nobody"
NoProposal == 0

NoCall == [kind |-> "none"]
NoVote == [phase |-> "none"]
Leaving == [phase |-> "leaving"]
NotYet == [c \in Clients |-> 0]

Idle(number) ==
    [phase |-> "idle", number |-> number, token |-> 0, proposed |-> NoProposal, later |-> 0, rounds |-> 0,
     after |-> 0, exempt |-> FALSE]

\* How long a lease may live: `Quorum::check_ttl`. A quarantine lasts as long.
Longest == IF LastsLongest THEN Ttl ELSE Ttl \div 2

Init ==
    /\ time = 1
    /\ ahead \in [Members -> Offsets]
    /\ ClocksAreNear => \A m, w \in Members: ahead[m] - ahead[w] < Longest
    /\ local = NotYet
    /\ steady = [c \in Clients |-> Spread - 1]
    /\ member = [m \in Members |-> [last |-> 0, holder |-> Nobody, expires |-> 0, incarnation |-> 0, ripe |-> 0]]
    /\ forward = {}
    /\ call = [c \in Clients |-> [m \in Members |-> NoCall]]
    /\ vote = [c \in Clients |-> [m \in Members |-> NoVote]]
    /\ client = [c \in Clients |-> Idle(0) @@ [seen |-> [m \in Members |-> 0]]]
    /\ greatest = 0 /\ bound = NotYet /\ broken = {}

------------------------------------------------------------------------------
\* The votes on a lease: votes.rs. `votes` are those of one client.

\* `Votes::has`.
Has(votes) == {m \in Members: votes[m].phase = "has"}

\* The n-th smallest and the n-th greatest of the values that these members have, if there are as many.
NthSmallest(members, value(_), n) ==
    CHOOSE v \in {value(m): m \in members}:
        /\ Cardinality({m \in members: value(m) <= v}) >= n
        /\ Cardinality({m \in members: value(m) < v}) < n
NthGreatest(members, value(_), n) ==
    CHOOSE v \in {value(m): m \in members}:
        /\ Cardinality({m \in members: value(m) >= v}) >= n
        /\ Cardinality({m \in members: value(m) > v}) < n

Enough == IF NeedsMajority THEN Majority ELSE Majority - 1

\* `Votes::token`.
TokenOf(votes) == LET value(m) == votes[m].token IN NthSmallest(Has(votes), value, Enough)

\* `Votes::deadline`, when as many have the lease.
DeadlineOf(votes) ==
    LET value(m) == votes[m].deadline IN
    NthGreatest(Has(votes), value, IF EndsWithMajority /\ NeedsMajority THEN Majority ELSE 1)

\* `Votes::at_least`.
AtLeast(votes, token) == {m \in Has(votes): votes[m].floor >= token}

\* `QuorumAcquiring::judge_together`: the lease can begin.
Suffices(votes) ==
    /\ Cardinality(Has(votes)) >= Enough
    /\ RaisesCounters => Cardinality(AtLeast(votes, TokenOf(votes)))
                            >= (IF CountersOfMajority THEN Enough ELSE Enough - 1)

\* A lease that is held keeps its majority: `Tenure::judge`.
Lives(votes, now) ==
    IF EndsWithMajority
    THEN Cardinality(Has(votes)) >= Enough
    ELSE Has(votes) # {}

------------------------------------------------------------------------------
\* Changes of what clients know, given what members store.

\* A member that no longer counts for this client: its release is under way if it still has the lease.
Left(c, m, stored) == IF stored[m].holder = c THEN Leaving ELSE NoVote

\* `Backend::give_up`, `lost` and `release`: the lease is given back at all members.
GivenBack(c, stored) == [m \in Members |-> Left(c, m, stored)]

\* `Tenure::begin`.
Begun(its, votes) == [its EXCEPT !.phase = "held", !.token = TokenOf(votes)]

\* Whether a lease that can begin begins now. The code may wait for an answer of the first server of the line, and begins later.
Begins(c) == TRUE

\* Judges the votes of a client: its lease begins, ends, or goes on.
Judged(c, votes, stored, calls) ==
    LET its == client[c]
        begins == its.phase = "asking" /\ Suffices(votes) /\ Begins(c)
        ends == its.phase = "held" /\ ~Lives(votes, local[c])
        token == TokenOf(votes)
        before == IF HasForce THEN its.after ELSE greatest
        others == {d \in Clients \ {c}: client[d].phase = "held"}
    IN /\ vote' = [vote EXCEPT ![c] = IF ends THEN GivenBack(c, stored) ELSE votes]
       /\ call' = [call EXCEPT ![c] = IF ends THEN [m \in Members |-> NoCall] ELSE calls]
       /\ client' = [client EXCEPT ![c] = IF begins THEN Begun(its, votes)
                                          ELSE IF ends THEN Idle(its.number) @@ [seen |-> its.seen] ELSE its]
       /\ greatest' = IF begins THEN Max(greatest, token) ELSE greatest
       /\ broken' = IF begins /\ token <= before THEN broken \cup {"tokens"} ELSE broken
       /\ bound' = IF ~HasForce THEN bound
                   ELSE [d \in Clients |->
                        IF ends /\ d = c THEN 0
                        ELSE IF begins /\ d \in others /\ client[d].token < token /\ bound[d] = 0
                        THEN LET value(m) == vote[d][m].deadline IN NthGreatest(Has(vote[d]), value, 1)
                        ELSE bound[d]]

------------------------------------------------------------------------------
\* The members: each action is one script call.

Clock(m) == Scale * (time + ahead[m])

\* proposal.lua, and the token in acquire.lua and `lock.take`.
Granted(m, proposed) ==
    LET isNear == proposed - Clock(m) < Apart /\ Clock(m) - proposed < Apart
        isTaken == proposed # NoProposal /\ (isNear \/ ~IgnoresFar)
        base == IF isTaken THEN proposed ELSE IF TokensFollowClock THEN Clock(m) ELSE 1
        last == member[m].last
    IN IF base <= last /\ (ProposalsGrow \/ ~isTaken) THEN last + 1 ELSE base

\* acquire.lua, in a batch that begins with the check of enter.lua.
Acquire(c, m) ==
    LET its == call[c][m]
        state == member[m]
        token == Granted(m, its.proposed)
    IN IF ChecksIncarnation /\ its.incarnation # state.incarnation
       THEN <<state, [kind |-> "forgot"]>>
       ELSE IF state.holder # Nobody
       THEN <<state, [kind |-> "busy"]>>
       ELSE <<[state EXCEPT !.last = token, !.holder = c, !.expires = time + Ttl],
              [kind |-> "held", sent |-> its.sent, time |-> time, expires |-> time + Ttl, token |-> token]>>

\* renew.lua and renew_rest.lua: a renewal, also with a floor, or to prove that the member has the lease.
Renew(c, m) ==
    LET its == call[c][m]
        state == member[m]
        isHeld == state.holder = c
        expires == Max(state.expires, time + Ttl)
    IN IF isHeld
       THEN <<[state EXCEPT !.last = IF its.kind = "raise" THEN Max(@, its.token) ELSE @, !.expires = expires],
              [its EXCEPT !.kind = CASE its.kind = "raise" -> "raised" [] its.kind = "prove" -> "proved" [] OTHER -> "renewed"]
                @@ [time |-> time, expires |-> expires]>>
       ELSE <<state, [kind |-> "gone"]>>

Requests == {"acquire", "renew", "raise", "prove"}

\* The votes of a client after this reply: `Locks::acquired`, `raised`, `proved` and `happened` in locks.rs.
Heard(c, m, reply) ==
    LET its == vote[c][m]
        votes == vote[c]
        sent == IF CountsFromRequest THEN reply.sent ELSE local[c]
        deadline == Deadline(sent, reply.time, Min(reply.expires, reply.time + Ttl))
        \* `Tenure::joins_late`.
        isLate == client[c].phase = "held" /\ reply.token > client[c].token /\ ProvesLate
        has == [phase |-> IF isLate THEN "late" ELSE "has", token |-> reply.token, floor |-> reply.token,
                deadline |-> deadline]
        \* `Votes::prove`.
        proven(l) ==
            LET by == votes[l].proven \cup {m} IN
            IF votes[l].phase # "late" \/ votes[l].since > reply.round THEN votes[l]
            ELSE IF Cardinality(by) >= Majority
            THEN [phase |-> "has", token |-> votes[l].token, floor |-> votes[l].floor, deadline |-> votes[l].deadline]
            ELSE [votes[l] EXCEPT !.proven = by]
    IN CASE reply.kind = "held" ->
            [votes EXCEPT ![m] = IF local[c] >= deadline THEN Leaving
                                 ELSE IF isLate THEN has @@ [since |-> client[c].rounds + 1, proven |-> {}]
                                 ELSE has]
         [] reply.kind \in {"renewed", "raised"} ->
            [votes EXCEPT ![m].deadline = Max(@, deadline),
                          ![m].floor = IF reply.kind = "raised" THEN Max(@, reply.token) ELSE @]
         [] reply.kind = "proved" ->
            [l \in Members |-> IF l = m THEN [votes[m] EXCEPT !.deadline = Max(@, deadline)] ELSE proven(l)]
         [] reply.kind = "gone" -> [votes EXCEPT ![m] = NoVote]
         [] OTHER -> votes

\* The request arrives, and in an instance without slow replies the reply, too.
Arrives(c, m) ==
    /\ call[c][m].kind \in Requests
    /\ UNCHANGED <<time, ahead, local, steady, forward>>
    /\ LET done == IF call[c][m].kind = "acquire" THEN Acquire(c, m) ELSE Renew(c, m)
           reply == done[2]
       IN /\ member' = [member EXCEPT ![m] = done[1]]
          /\ IF SlowReplies
             THEN /\ call' = [call EXCEPT ![c][m] = reply]
                  /\ UNCHANGED <<vote, client, greatest, bound, broken>>
             ELSE Judged(c, Heard(c, m, reply), member', [call[c] EXCEPT ![m] = NoCall])

Receives(c, m) ==
    /\ SlowReplies
    /\ call[c][m].kind \notin Requests \cup {"none"}
    /\ UNCHANGED <<time, ahead, local, steady, forward, member>>
    /\ Judged(c, Heard(c, m, call[c][m]), member, [call[c] EXCEPT ![m] = NoCall])

\* release.lua: it frees only the lease of its own request.
Release(c, m) ==
    /\ vote[c][m].phase = "leaving"
    /\ member' = IF member[m].holder = c
                  THEN [member EXCEPT ![m].holder = Nobody, ![m].expires = 0] ELSE member
    /\ vote' = [vote EXCEPT ![c][m] = NoVote]
    /\ UNCHANGED <<time, ahead, local, steady, forward, call, client, greatest, bound, broken>>

\* force_release.lua, which arrives at one member after the other.
ForceRelease(c, m) ==
    /\ HasForce
    /\ client[c].phase = "held" /\ member[m].holder = c
    /\ member' = [member EXCEPT ![m].holder = Nobody, ![m].expires = 0]
    /\ client' = [client EXCEPT ![c].exempt = TRUE]
    /\ UNCHANGED <<time, ahead, local, steady, forward, call, vote, greatest, bound, broken>>

------------------------------------------------------------------------------
\* The clients.

\* `Handshakes::standing` and `Members::check_before_acquiring`: an acquisition names the incarnation that may vote.
AcquireOf(c, m, proposed) ==
    [kind |-> "acquire", sent |-> local[c], proposed |-> proposed, incarnation |-> client[c].seen[m]]

CanAsk(c, m) == vote[c][m].phase = "none" /\ call[c][m].kind = "none"

\* `Quorum::begin`, `QuorumAcquiring::ask_all` and `Quorum::propose`.
BeginWith(c, proposed) ==
    /\ client[c].phase = "idle" /\ client[c].number < MaxLeases
    /\ client' = [client EXCEPT ![c] = [Idle(@.number + 1) EXCEPT !.phase = "asking", !.proposed = proposed,
                                        !.after = IF HasForce THEN greatest ELSE 0] @@ [seen |-> @.seen]]
    /\ call' = [call EXCEPT ![c] = [m \in Members |-> IF CanAsk(c, m) THEN AcquireOf(c, m, proposed) ELSE NoCall]]
    /\ UNCHANGED <<time, ahead, local, steady, forward, member, vote, greatest, bound, broken>>

\* No clock of the client is trusted, so it proposes any of these.
Begin(c) ==
    \E guess \in Guesses: BeginWith(c, IF guess = NoProposal THEN NoProposal ELSE Scale * (time + guess - 1))

\* Its lease could begin before, and begins now.
BeginLate(c) ==
    /\ client[c].phase = "asking" /\ Suffices(vote[c])
    /\ UNCHANGED <<time, ahead, local, steady, forward, member>>
    /\ Judged(c, vote[c], member, call[c])

Later(c) ==
    /\ client[c].later < MaxLater
    /\ client' = [client EXCEPT ![c].later = @ + 1]
    /\ UNCHANGED <<time, ahead, local, steady, forward, member, vote, greatest, bound, broken>>

\* `Leased::ask` after a pause or at a place in line, and `Leased::ask_again` for a tenure.
AskAgain(c, m) ==
    /\ client[c].phase # "idle" /\ CanAsk(c, m)
    /\ Later(c)
    /\ call' = [call EXCEPT ![c][m] = AcquireOf(c, m, client[c].proposed)]

\* The renewals of the members' engines, and `Support::renew`.
AskRenewal(c, m) ==
    /\ client[c].phase = "held" /\ vote[c][m].phase = "has" /\ call[c][m].kind = "none"
    /\ Later(c)
    /\ call' = [call EXCEPT ![c][m] = [kind |-> "renew", sent |-> local[c]]]

\* `Asked::Raise` in `QuorumAcquiring::judge_together`, at all members that `Votes::below` returns.
Raise(c) ==
    LET votes == vote[c]
        token == TokenOf(votes)
        below == {m \in Has(votes): votes[m].floor < token /\ call[c][m].kind = "none"}
    IN /\ client[c].phase = "asking" /\ RaisesCounters
       /\ Cardinality(Has(votes)) >= Enough /\ below # {}
       /\ call' = [call EXCEPT ![c] = [m \in Members |->
            IF m \in below THEN [kind |-> "raise", sent |-> local[c], token |-> token] ELSE @[m]]]
       /\ UNCHANGED <<time, ahead, local, steady, forward, member, vote, client, greatest, bound, broken>>

\* `Tenure::ask_for_proof`.
AskForProof(c) ==
    LET asked == {m \in Has(vote[c]): call[c][m].kind = "none"} IN
    /\ client[c].phase = "held" /\ client[c].later < MaxLater
    /\ \E m \in Members: vote[c][m].phase = "late"
    /\ client' = [client EXCEPT ![c].later = @ + 1, ![c].rounds = @ + 1]
    /\ call' = [call EXCEPT ![c] = [m \in Members |->
        IF m \in asked THEN [kind |-> "prove", sent |-> local[c], round |-> client[c].rounds + 1] ELSE @[m]]]
    /\ UNCHANGED <<time, ahead, local, steady, forward, member, vote, greatest, bound, broken>>

\* The caller gives up or lets go, or an attempt falls short: `QuorumAcquiring::fall_short`.
End(c) ==
    /\ ~NeverEndsEarly /\ client[c].phase # "idle"
    /\ vote' = [vote EXCEPT ![c] = GivenBack(c, member)]
    /\ call' = [call EXCEPT ![c] = [m \in Members |-> NoCall]]
    /\ client' = [client EXCEPT ![c] = Idle(@.number) @@ [seen |-> @.seen]]
    /\ bound' = [bound EXCEPT ![c] = 0]
    /\ UNCHANGED <<time, ahead, local, steady, forward, member, greatest, broken>>

\* `Admission::settle`: a member in another incarnation than before may vote once as many members as a majority measured
\* the quarantine, or if a majority is new (`let_new_in`).
Admit(c, m) ==
    LET says(w) == time >= member[m].ripe \/ (w = m /\ m \in forward)
        isRipe == Cardinality({w \in Members: says(w)}) >= (IF MeasuredByMajority THEN Majority ELSE 1)
        areNew == Cardinality({w \in Members: time < member[w].ripe}) >= Majority
    IN /\ client[c].seen[m] # member[m].incarnation
       /\ ~HasQuarantine \/ isRipe \/ areNew
       /\ client' = [client EXCEPT ![c].seen[m] = member[m].incarnation]
       /\ UNCHANGED <<time, ahead, local, steady, forward, member, call, vote, greatest, bound, broken>>

------------------------------------------------------------------------------
\* The world.

\* The members' tenures, the clients' votes, and the leases, at these times.
Passed(now, locals) ==
    LET stored == [m \in Members |->
            IF member[m].holder # Nobody /\ member[m].expires <= now
            THEN [member[m] EXCEPT !.holder = Nobody, !.expires = 0] ELSE member[m]]
        votes == [c \in Clients |-> [m \in Members |->
            CASE vote[c][m].phase \in {"has", "late"} /\ vote[c][m].deadline <= locals[c] -> Left(c, m, stored)
              [] vote[c][m].phase = "leaving" -> Left(c, m, stored)
              [] OTHER -> vote[c][m]]]
        ends == {c \in Clients: client[c].phase = "held" /\ ~Lives(votes[c], locals[c])}
    IN /\ member' = stored
       /\ vote' = [c \in Clients |-> IF c \in ends THEN GivenBack(c, stored) ELSE votes[c]]
       /\ call' = [c \in Clients |-> IF c \in ends THEN [m \in Members |-> NoCall] ELSE call[c]]
       /\ client' = [c \in Clients |-> IF c \in ends THEN Idle(client[c].number) @@ [seen |-> client[c].seen] ELSE client[c]]
       /\ bound' = [c \in Clients |-> IF c \in ends THEN 0 ELSE bound[c]]

\* Time passes. A client's clock advances as the members' do, or deviates by one tick; the drift margin says how often. A
\* lease that reaches its deadline is lost, which needs no message.
Tick ==
    /\ time < MaxTime
    /\ time' = time + 1
    /\ \E pace \in [Clients -> Paces]:
        /\ \A c \in Clients: pace[c] # 1 /\ RatesAreBounded => steady[c] >= Spread - 1
        /\ local' = [c \in Clients |-> local[c] + pace[c]]
        /\ steady' = [c \in Clients |-> IF pace[c] # 1 THEN 0 ELSE Min(steady[c] + 1, Spread - 1)]
        /\ Passed(time', local')
    /\ UNCHANGED <<ahead, forward, greatest, broken>>

\* A restart without data, which begins a new incarnation: enter_rest.lua.
LoseData(m) ==
    /\ Cardinality({w \in Members: member[w].incarnation > 0}) < MaxLosses
    /\ member[m].incarnation = 0
    /\ FewForget => Cardinality({w \in Members: time < member[w].ripe}) < Majority - 1
    /\ member' = [member EXCEPT ![m] =
        [last |-> 0, holder |-> Nobody, expires |-> 0, incarnation |-> 1, ripe |-> time + Longest]]
    /\ vote' = [c \in Clients |-> [vote[c] EXCEPT ![m] = IF @.phase = "leaving" THEN NoVote ELSE @]]
    /\ UNCHANGED <<time, ahead, local, steady, forward, call, client, greatest, bound, broken>>

\* Somebody sets the clock of a member forward that has just restarted.
SetClock(m) ==
    /\ SetsClock /\ m \notin forward /\ time < member[m].ripe
    /\ forward' = forward \cup {m}
    /\ UNCHANGED <<time, ahead, local, steady, member, call, vote, client, greatest, bound, broken>>

Next ==
    \/ Tick
    \/ \E m \in Members: LoseData(m) \/ SetClock(m)
    \/ \E c \in Clients: Begin(c) \/ BeginLate(c) \/ Raise(c) \/ AskForProof(c) \/ End(c)
    \/ \E c \in Clients: \E m \in Members:
        Arrives(c, m) \/ Receives(c, m) \/ Release(c, m) \/ ForceRelease(c, m) \/ AskAgain(c, m) \/ AskRenewal(c, m)
        \/ Admit(c, m)

Spec == Init /\ [][Next]_vars

------------------------------------------------------------------------------
\* The promises, by their numbers in docs/book/src/how-it-works.md and ARCHITECTURE.md.

\* `lease.is_valid()`: it reads only the local clock.
IsValid(c) == client[c].phase = "held" /\ local[c] < DeadlineOf(vote[c])

\* I1: two leases are never both valid by their own deadlines, unless one was freed by force.
Exclusion ==
    \A c, d \in Clients: c # d /\ IsValid(c) /\ IsValid(d) => client[c].exempt \/ client[d].exempt

\* I4, and why I1 holds: while a client counts a member, that member has its lease, unless it lost its data.
LossIsInTime ==
    \A c \in Clients: client[c].phase = "held" /\ ~client[c].exempt =>
        \A m \in Has(vote[c]): member[m].holder = c \/ member[m].incarnation > 0

TokensGrow == "tokens" \notin broken            \* I2

\* I5: a lease that was freed by force does not go on after a later one.
NothingReacquired ==
    \A c \in Clients: client[c].phase = "held" /\ bound[c] # 0 => DeadlineOf(vote[c]) <= bound[c]

\* Clients are alike, and so are members.
Symmetry == Permutations(Clients) \cup Permutations(Members)
=============================================================================
