------------------------------- MODULE Single -------------------------------
\* Locks of one name at a single server: tokens, the line and its handover, `not_after`, owners that reclaim, forced
\* releases, loss, lost data, and clocks whose rates differ. README.md says what is assumed and what follows.
\*
\* Each action names the code that it stands for: a Lua file of core/engine/src/protocol, or a function of
\* core/engine/src/engine. A message stays in the network until it arrives or can have no effect. So it may arrive never, or
\* late, in any order; with `Repeats` also several times.
EXTENDS Integers, Sequences, FiniteSets, TLC, Time

CONSTANTS
    Clients, Ttl, Window, Patience,
    \* Bounds of an instance, the last three for each client.
    MaxTime, MaxLeases, MaxRequests,
    \* By how many ticks a client's clock may advance in one: {0, 1, 2}, or {1} in an instance whose clocks agree.
    Paces,
    \* What an instance contains: acquisitions that wait in line (TRUE), and `try_` forms (FALSE); owners; forced releases;
    \* writes to a guarded store.
    Waits, HasOwners, HasForce, HasWrites,
    \* Whether a request may arrive several times.
    Repeats,
    \* Assumptions.
    RatesAreBounded,        \* The clocks' rates differ by less than the drift margin.
    ServerKeepsData,        \* The server keeps its data.
    ClockIsNotSet,          \* Nobody sets the server's clock forward.
    ClockIsAhead,           \* The clock of a server that lost its data is not behind the last token.
    \* Protections.
    CountsFromRequest,      \* A deadline counts from before the request was sent.
    CountsFromGrant,        \* The deadline of a pushed grant counts from the grant.
    PromisesHalf,           \* A pushed grant promises half the window, since nobody may have heard it.
    ChecksNotAfter,         \* The server does nothing past `not_after`.
    TokensFollowClock,      \* A token is no smaller than the server's clock.
    RenewsOwn,              \* A renewal extends its own tenure, and takes nothing.
    ReleasesOwn,            \* A release frees its own lease.
    LeaseIdsAreNew,         \* Each acquisition has a new lease ID.
    ReclaimsNamed,          \* An owner takes over the tenure that it names, and no later one.
    ForcesNamed,            \* A forced release frees the tenure that was seen, and no later one.
    ServesFirst,            \* A free lock goes to the first live waiter.
    TryNeverOvertakes,      \* Nobody takes a free lock while others wait.
    GuardChecks             \* The store refuses a token smaller than one it has seen.

VARIABLES
    time,       \* The server's clock.
    local,      \* The clock of each client.
    steady,     \* For how many ticks each client's clock has not deviated.
    last,       \* The last token; 0 if none is remembered.
    holder,     \* The stored tenure, which may have expired.
    line,       \* The waiters, in the order of arrival.
    net,        \* Requests that may still arrive.
    news,       \* Replies and pushes that may still arrive.
    client,     \* What each client knows.
    anchor,     \* What each client knows of the server's clock.
    writes,     \* Tokens of writes on their way to the guarded store.
    accepted,   \* The greatest token that the store has accepted.
    greatest,   \* History: the greatest token ever given.
    exempt,     \* History: tokens of tenures that an owner or a forced release ended by name.
    broken      \* History: promises that a step has broken.

vars == <<time, local, steady, last, holder, line, net, news, client, anchor, writes, accepted, greatest, exempt, broken>>
server == <<last, holder, line, greatest, exempt>>
store == <<writes, accepted>>

None == [lease |-> <<>>, token |-> 0, expires |-> 0]
Never == -1     \* It reclaims nothing.
AskFirst == 0   \* It asks which tenure it could reclaim.

Idle(c) ==
    [phase |-> "idle", number |-> client[c].number, serial |-> client[c].serial, awaits |-> FALSE, waits |-> FALSE,
     sent |-> 0, giveUp |-> 0, reclaims |-> Never, refused |-> 0, token |-> 0, deadline |-> 0]

Init ==
    /\ time = 1
    /\ local = [c \in Clients |-> 0]
    /\ steady = [c \in Clients |-> Spread - 1]
    /\ last = 0 /\ holder = None /\ line = <<>> /\ greatest = 0 /\ exempt = {} /\ broken = {}
    /\ net = {} /\ news = {}
    /\ client = [c \in Clients |->
        [phase |-> "idle", number |-> 0, serial |-> 0, awaits |-> FALSE, waits |-> FALSE, sent |-> 0, giveUp |-> 0,
         reclaims |-> Never, refused |-> 0, token |-> 0, deadline |-> 0]]
    /\ anchor = [c \in Clients |-> Anchor(1, 0, 0)]
    /\ writes = {} /\ accepted = 0

------------------------------------------------------------------------------
\* What follows from the state.

LeaseOf(c) == <<c, client[c].number>>

\* `lease.is_valid()`: it reads only the local clock.
IsValid(c) == client[c].phase = "held" /\ local[c] < client[c].deadline

\* `state.is_held` in lock.lua.
IsHeld == holder # None /\ time < holder.expires

IsAlive(waiter) == waiter.until >= time
Alive == SelectSeq(line, IsAlive)
Without(lease) == SelectSeq(line, LAMBDA waiter: waiter.lease # lease)

\* The waiter that gets the lock if it is free: `line.first`.
Next1 == IF ServesFirst THEN Alive[1] ELSE Alive[Len(Alive)]

\* The requests of these that may still have an effect, at this time. Where nobody waits, a release has none once its lease
\* is not stored and no acquisition may store it.
Open(requests, now, stored) ==
    LET late(m) == ChecksNotAfter /\ now >= m.notAfter
        timely == {m \in requests: m.op \in {"release", "force"} \/ ~late(m)}
        mayStore(lease) == \/ stored.lease = lease
                           \/ \E m \in timely: m.op = "acquire" /\ m.lease = lease
    IN {m \in timely:
        CASE m.op = "release" -> mayStore(m.lease) \/ Waits # {FALSE} \/ ~LeaseIdsAreNew \/ ~ReleasesOwn
          [] OTHER -> TRUE}

\* The replies and pushes of these that their client still waits for, and the rest of what a client forgets.
Wanted(all, of) ==
    {r \in all: LET its == of[r.lease[1]] IN
        IF r.kind = "granted"
        THEN its.phase = "asking" /\ its.number = r.lease[2]
        ELSE its.awaits /\ its.serial = r.serial}

\* The promises that a grant of this token to this lease breaks, if the lock is free.
BrokenBy(lease, token) ==
    (IF token <= greatest THEN {"tokens"} ELSE {})
    \cup (IF Alive # <<>> /\ Alive[1].lease # lease THEN {"order"} ELSE {})

\* A request that its caller gave up on has an effect.
Ghost(m) == IF local[m.lease[1]] >= m.giveUp THEN {"ghost"} ELSE {}

NewToken == IF TokensFollowClock THEN Max(time, last + 1) ELSE last + 1

------------------------------------------------------------------------------
\* The server: each action is one script call.

\* `lock.take`: gives the lock to this lease until then.
Take(lease, until) ==
    /\ last' = NewToken
    /\ greatest' = Max(greatest, NewToken)
    /\ holder' = [lease |-> lease, token |-> NewToken, expires |-> until]

ReplyTo(m, reply) == reply @@ [lease |-> m.lease, serial |-> m.serial, time |-> time]

Reply(m, reply) == news' = Wanted(news \cup {ReplyTo(m, reply)}, client)

\* Whether the client of a waiter receives the push that hands the lock over.
Hears == BOOLEAN

\* `line.grant`, serving.lua: hands the free lock to a waiter, whose client gets a push. If nobody received the push, the
\* lock is held for half the window. `replies` is what the request itself is answered.
Grant(lease, others, wasHeard, replies) ==
    LET half == time + Window \div 2
        until == IF wasHeard THEN time + Window ELSE half
    IN /\ Take(lease, until)
       /\ line' = others
       /\ news' = Wanted(news \cup replies \cup
            {[kind |-> "granted", lease |-> lease, token |-> NewToken, time |-> time,
              expires |-> IF PromisesHalf THEN half ELSE time + Window]}, client)

\* `line.serve`: frees the lock and hands it to the first live waiter. `waiting` is the line meanwhile.
Serve(waiting) ==
    LET alive == SelectSeq(waiting, IsAlive) IN
    IF alive = <<>>
    THEN holder' = None /\ line' = <<>> /\ UNCHANGED <<last, greatest, news>> /\ broken' = broken
    ELSE LET first == IF ServesFirst THEN alive[1].lease ELSE alive[Len(alive)].lease IN
         /\ \E wasHeard \in Hears:
                Grant(first, SelectSeq(alive, LAMBDA waiter: waiter.lease # first), wasHeard, {})
         /\ broken' = broken
                \cup (IF NewToken <= greatest THEN {"tokens"} ELSE {})
                \cup (IF alive[1].lease # first THEN {"order"} ELSE {})

\* `line.wait`, waiting.lua: takes a place in line, or confirms it.
Joined(waiting, lease) ==
    IF \E i \in 1..Len(waiting): waiting[i].lease = lease
    THEN [i \in 1..Len(waiting) |->
            IF waiting[i].lease = lease THEN [waiting[i] EXCEPT !.until = time + Window] ELSE waiting[i]]
    ELSE Append(SelectSeq(waiting, IsAlive), [lease |-> lease, until |-> time + Window])

Busy(m) == Reply(m, [kind |-> "busy"])

\* acquire.lua and acquire_rest.lua.
Acquire(m) ==
    /\ UNCHANGED <<time, local, steady, client, anchor, store>>
    /\ m.op = "acquire"
    /\ CASE IsHeld /\ holder.lease = m.lease ->
            /\ holder' = [holder EXCEPT !.expires = Max(@, time + Ttl)]
            /\ Reply(m, [kind |-> "held", token |-> holder.token, expires |-> holder'.expires])
            /\ broken' = broken \cup Ghost(m)
            /\ UNCHANGED <<last, line, greatest, exempt>>
         [] IsHeld /\ holder.lease # m.lease ->
            LET isOwn == HasOwners /\ m.reclaims # Never /\ holder.lease[1] # m.lease[1]
                takes == isOwn /\ m.reclaims # AskFirst /\ (m.reclaims = holder.token \/ ~ReclaimsNamed)
            IN IF takes
               THEN /\ Take(m.lease, time + Ttl)
                    /\ exempt' = exempt \cup {m.reclaims}
                    /\ line' = Without(m.lease)
                    /\ Reply(m, [kind |-> "held", token |-> NewToken, expires |-> time + Ttl])
                    /\ broken' = broken \cup Ghost(m) \cup (IF NewToken <= greatest THEN {"tokens"} ELSE {})
               ELSE /\ UNCHANGED <<last, holder, greatest, exempt>>
                    /\ IF isOwn /\ m.reclaims = AskFirst
                       THEN Reply(m, [kind |-> "reclaimable", token |-> holder.token]) /\ UNCHANGED <<line, broken>>
                       ELSE /\ Busy(m)
                            /\ line' = IF m.waits THEN Joined(line, m.lease) ELSE line
                            /\ broken' = broken \cup (IF m.waits THEN Ghost(m) ELSE {})
         [] ~IsHeld ->
            LET takes == Alive = <<>> \/ Next1.lease = m.lease \/ ~TryNeverOvertakes
                first == Next1.lease
                others == SelectSeq(Alive, LAMBDA waiter: waiter.lease # first)
            IN /\ UNCHANGED exempt
               /\ IF takes
                  THEN /\ Take(m.lease, time + Ttl)
                       /\ line' = SelectSeq(Alive, LAMBDA waiter: waiter.lease # m.lease)
                       /\ Reply(m, [kind |-> "held", token |-> NewToken, expires |-> time + Ttl])
                       /\ broken' = broken \cup BrokenBy(m.lease, NewToken) \cup Ghost(m)
                  ELSE \E wasHeard \in Hears:
                       /\ Grant(first, IF m.waits THEN Joined(others, m.lease) ELSE others, wasHeard,
                                {ReplyTo(m, [kind |-> "busy"])})
                       /\ broken' = broken \cup BrokenBy(first, NewToken)

\* renew.lua and renew_rest.lua.
Renew(m) ==
    /\ UNCHANGED <<time, local, steady, client, anchor, store, last, line, greatest, exempt>>
    /\ m.op = "renew"
    /\ LET isOwn == IsHeld /\ holder.lease = m.lease /\ holder.token = m.token
           takes == ~RenewsOwn /\ ~IsHeld
       IN IF isOwn \/ takes
          THEN /\ holder' = [lease |-> m.lease, token |-> m.token,
                             expires |-> IF isOwn THEN Max(holder.expires, time + Ttl) ELSE time + Ttl]
               /\ Reply(m, [kind |-> "renewed", expires |-> holder'.expires])
               /\ broken' = broken \cup Ghost(m) \cup (IF isOwn THEN {} ELSE {"reacquired"})
          ELSE /\ Reply(m, [kind |-> "gone"])
               /\ UNCHANGED <<holder, broken>>

\* release.lua and release_rest.lua. It carries no `not_after`.
Release(m) ==
    /\ UNCHANGED <<time, local, steady, client, anchor, store, exempt>>
    /\ m.op = "release"
    /\ LET isOwn == holder.lease = m.lease
           waiting == IF isOwn THEN line ELSE Without(m.lease)
       IN IF isOwn \/ ~IsHeld \/ ~ReleasesOwn
          THEN Serve(waiting)
          ELSE line' = waiting /\ UNCHANGED <<last, holder, greatest, news, broken>>

\* force_release.lua. Somebody has seen a tenure, and frees it whatever its client says.
ForceRelease(m) ==
    /\ UNCHANGED <<time, local, steady, client, anchor, store>>
    /\ m.op = "force"
    /\ exempt' = exempt \cup {m.token}
    /\ IF ~IsHeld \/ holder.token = m.token \/ ~ForcesNamed
       THEN Serve(line)
       ELSE UNCHANGED <<last, holder, line, greatest, news, broken>>

Arrives(m) ==
    /\ Acquire(m) \/ Renew(m) \/ Release(m) \/ ForceRelease(m)
    /\ net' = Open(IF Repeats THEN net ELSE net \ {m}, time, holder')

------------------------------------------------------------------------------
\* The clients.

Send(m) == net' = Open(net \cup {m}, time, holder)

\* How long an attempt is awaited. The code waits for less in some cases, for example when it renews.
Awaits == Patience

Attempt(c, state, giveUp) ==
    /\ client[c].serial < MaxRequests
    /\ client' = [client EXCEPT ![c] =
        [state EXCEPT !.serial = client[c].serial + 1, !.awaits = TRUE, !.sent = local[c], !.giveUp = giveUp]]
    /\ news' = Wanted(news, client')

\* `Acquiring::ask`: a new acquisition, or the next attempt of one, with the same lease ID. The former attempt was answered,
\* or its time is over.
Ask(c) ==
    /\ UNCHANGED <<time, local, steady, server, anchor, store, broken>>
    /\ LET its == client[c]
           giveUp == local[c] + Awaits
           begins == its.phase = "idle" /\ (its.number < MaxLeases \/ ~LeaseIdsAreNew)
           again == its.phase = "asking" /\ (~its.awaits \/ its.giveUp <= local[c])
           number == IF begins /\ (LeaseIdsAreNew \/ its.number = 0) THEN its.number + 1 ELSE its.number
       IN \E waits \in IF begins THEN Waits ELSE {its.waits}:
          LET reclaims == IF again THEN its.reclaims ELSE IF HasOwners THEN AskFirst ELSE Never
          IN /\ begins \/ again
             /\ Attempt(c, [its EXCEPT !.phase = "asking", !.number = number, !.waits = waits, !.reclaims = reclaims],
                        giveUp)
             /\ Send([op |-> "acquire", lease |-> <<c, number>>, serial |-> its.serial + 1, waits |-> waits,
                      reclaims |-> reclaims, notAfter |-> NotAfter(anchor[c], giveUp), giveUp |-> giveUp])

\* `Tenure::renew_for`.
AskRenewal(c) ==
    /\ UNCHANGED <<time, local, steady, server, anchor, store, broken>>
    /\ IsValid(c)
    /\ ~client[c].awaits \/ client[c].giveUp <= local[c]
    /\ LET giveUp == Min(local[c] + Awaits, client[c].deadline) IN
       /\ Attempt(c, client[c], giveUp)
       /\ Send([op |-> "renew", lease |-> LeaseOf(c), serial |-> client[c].serial + 1, token |-> client[c].token,
                notAfter |-> NotAfter(anchor[c], giveUp), giveUp |-> giveUp])

Ends(c) ==
    /\ client' = [client EXCEPT ![c] = Idle(c)]
    /\ Send([op |-> "release", lease |-> LeaseOf(c)])
    /\ news' = Wanted(news, client')
    /\ UNCHANGED <<time, local, steady, server, anchor, store, broken>>

\* `Releases::end_tenure`.
LetGo(c) == IsValid(c) /\ Ends(c)

\* `Releases::give_up`: the caller gives up or drops the call, at any time.
GiveUp(c) == client[c].phase = "asking" /\ Ends(c)

\* `Tenure::time`: the loss at the deadline, and the release that follows (`Tenure::remains`).
Lose(c) == client[c].phase = "held" /\ ~IsValid(c) /\ Ends(c)

Begins(c, token, deadline) ==
    client' = [client EXCEPT ![c] = [@ EXCEPT !.phase = "held", !.awaits = FALSE, !.sent = 0, !.giveUp = 0, !.waits = FALSE,
        !.reclaims = Never, !.refused = 0, !.token = token, !.deadline = deadline]]

\* The deadline after a renewal: `Tenure::extended`.
Extended(c, deadline) == Max(client[c].deadline, deadline)

\* `Acquiring::held`, `busy` and the reply `Reclaimable` in `Acquiring::landed`; the losses in `Tenure::landed`.
Receive(c, reply) ==
    LET its == client[c]
        sent == IF CountsFromRequest THEN its.sent ELSE local[c]
        deadline == Deadline(sent, reply.time, Min(reply.expires, reply.time + Ttl))
    IN
    /\ UNCHANGED <<time, local, steady, server, store, broken, net>>
    /\ reply.kind # "granted" /\ reply.lease[1] = c
    /\ its.phase = "held" => IsValid(c)
    /\ anchor' = [anchor EXCEPT ![c] = Refreshed(@, reply.time, its.sent, local[c])]
    /\ CASE reply.kind = "held" ->
            IF local[c] < deadline
            THEN Begins(c, reply.token, deadline)
            ELSE client' = [client EXCEPT ![c] = [@ EXCEPT !.awaits = FALSE, !.sent = 0, !.giveUp = 0]]
         [] reply.kind = "busy" ->
            client' = [client EXCEPT ![c] = [@ EXCEPT !.awaits = FALSE, !.sent = 0, !.giveUp = 0, !.refused = IF its.waits THEN reply.time ELSE 0,
                !.reclaims = IF @ = AskFirst THEN Never ELSE @]]
         [] reply.kind = "reclaimable" ->
            client' = [client EXCEPT ![c] = [@ EXCEPT !.awaits = FALSE, !.sent = 0, !.giveUp = 0, !.refused = IF its.waits THEN reply.time ELSE 0,
                !.reclaims = IF @ = AskFirst THEN reply.token ELSE @]]
         [] reply.kind = "renewed" ->
            client' = [client EXCEPT ![c] = [@ EXCEPT !.awaits = FALSE, !.sent = 0, !.giveUp = 0, !.deadline = Extended(c, deadline)]]
         [] reply.kind = "gone" ->
            client' = [client EXCEPT ![c] = Idle(c)]
    /\ news' = Wanted(news, client')

\* The reply `Late` in `Acquiring::landed` and `Tenure::landed`: the server did nothing, and its time corrects the anchor. The
\* model lets it arrive at once, or never.
HearLate(c) ==
    /\ client[c].awaits
    /\ \A m \in net: m.op # "force" => m.lease # LeaseOf(c)
    /\ \A reply \in news: reply.lease # LeaseOf(c)
    /\ client' = [client EXCEPT ![c] = [@ EXCEPT !.awaits = FALSE, !.sent = 0, !.giveUp = 0]]
    /\ anchor' = [anchor EXCEPT ![c] = Refreshed(@, time, client[c].sent, local[c])]
    /\ UNCHANGED <<time, local, steady, server, store, broken, net, news>>

\* `Acquiring::granted`: a push gives the lock to a waiter.
Granted(c, push) ==
    LET its == client[c]
        since == NotBefore(anchor[c], push.time)
        deadline == Deadline(IF CountsFromGrant THEN since ELSE local[c], push.time, push.expires)
    IN
    /\ UNCHANGED <<time, local, steady, server, store, broken, net, anchor>>
    /\ push.kind = "granted" /\ push.lease = LeaseOf(c)
    /\ since <= local[c] /\ its.refused <= push.time /\ local[c] < deadline
    /\ Begins(c, push.token, deadline)
    /\ news' = Wanted(news, client')

------------------------------------------------------------------------------
\* The world.

\* Time passes. A client's clock advances as the server's does, or deviates by one tick; the drift margin says how often.
Tick ==
    /\ time < MaxTime
    /\ time' = time + 1
    /\ \E pace \in [Clients -> Paces]:
        /\ \A c \in Clients: pace[c] # 1 /\ RatesAreBounded => steady[c] >= Spread - 1
        /\ local' = [c \in Clients |-> local[c] + pace[c]]
        /\ steady' = [c \in Clients |-> IF pace[c] # 1 THEN 0 ELSE Min(steady[c] + 1, Spread - 1)]
    /\ net' = Open(net, time', holder)
    /\ UNCHANGED <<server, news, client, anchor, store, broken>>

\* A restart without persistence, FLUSHALL, or a failover to an empty replica. It takes a tick.
LoseData ==
    /\ ~ServerKeepsData
    /\ ClockIsAhead => last <= time
    /\ last > 0
    /\ time < MaxTime
    /\ time' = time + 1
    /\ local' = [c \in Clients |-> local[c] + 1]
    /\ steady' = [c \in Clients |-> Min(steady[c] + 1, Spread - 1)]
    /\ last' = 0 /\ holder' = None /\ line' = <<>>
    /\ net' = Open(net, time', None)
    /\ UNCHANGED <<news, client, anchor, store, greatest, exempt, broken>>

\* Somebody sets the server's clock forward.
SetClock ==
    /\ ~ClockIsNotSet
    /\ time + Ttl <= MaxTime
    /\ time' = time + Ttl
    /\ net' = Open(net, time', holder)
    /\ UNCHANGED <<local, steady, server, news, client, anchor, store, broken>>

\* Somebody looks at the lock, and asks for its release.
See ==
    /\ HasForce /\ IsHeld
    /\ net' = net \cup {[op |-> "force", token |-> holder.token]}
    /\ UNCHANGED <<time, local, steady, server, news, client, anchor, store, broken>>

\* The holder writes; the write may arrive late. `fence::check`.
Write(c) ==
    /\ HasWrites /\ IsValid(c)
    /\ writes' = writes \cup {client[c].token}
    /\ UNCHANGED <<time, local, steady, server, net, news, client, anchor, accepted, broken>>

Accept(token) ==
    /\ GuardChecks => token >= accepted
    /\ accepted' = Max(accepted, token)
    /\ broken' = broken \cup (IF token < accepted THEN {"fencing"} ELSE {})
    /\ writes' = writes \ {token}
    /\ UNCHANGED <<time, local, steady, server, net, news, client, anchor>>

Next ==
    \/ Tick \/ LoseData \/ SetClock \/ See
    \/ \E m \in net: Arrives(m)
    \/ \E c \in Clients: Ask(c) \/ AskRenewal(c) \/ LetGo(c) \/ GiveUp(c) \/ Lose(c) \/ HearLate(c) \/ Write(c)
    \/ \E reply \in news: \E c \in Clients: Receive(c, reply) \/ Granted(c, reply)
    \/ \E token \in writes: Accept(token)

Spec == Init /\ [][Next]_vars

------------------------------------------------------------------------------
\* The promises, by their numbers in docs/book/src/how-it-works.md and ARCHITECTURE.md.

\* I1: two leases are never both valid by their own deadlines, unless one was reclaimed or freed by name.
Exclusion ==
    \A c, d \in Clients: c # d /\ IsValid(c) /\ IsValid(d)
        => client[c].token \in exempt \/ client[d].token \in exempt

\* I4, and why I1 holds: while a lease says that it is valid, the server has it.
LossIsInTime ==
    \A c \in Clients: IsValid(c) /\ client[c].token \notin exempt
        => IsHeld /\ holder.lease = LeaseOf(c) /\ holder.token = client[c].token

TokensGrow == "tokens" \notin broken            \* I2
Fencing == "fencing" \notin broken              \* I3
NothingReacquired == "reacquired" \notin broken \* I5
NoGhosts == "ghost" \notin broken               \* I6
Order == "order" \notin broken                  \* I7

\* Clients are alike.
Symmetry == Permutations(Clients)
=============================================================================
