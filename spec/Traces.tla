------------------------------- MODULE Traces -------------------------------
\* The code follows Single.tla: each trace of real engines and their server is a behavior of the specification. The module
\* TraceData has the traces; tests/search/traces/single.rs writes it.
EXTENDS Single, TraceData

VARIABLES
    trace,  \* The trace that is followed.
    at      \* The next event of it.

Event == Traces[trace][at]

\* What the code did, as an action of the specification. A message that can have no effect is no longer in `net` or `news`,
\* so there is nothing to do when it arrives.
Does(e) ==
    CASE e.do = "ask" ->
            /\ e.patience <= Patience
            /\ Ask(e.lease[1])
            /\ client'[e.lease[1]].number = e.lease[2] /\ client'[e.lease[1]].waits = e.waits
      [] e.do = "renew" ->
            /\ e.patience <= Patience
            /\ LeaseOf(e.lease[1]) = e.lease /\ AskRenewal(e.lease[1])
      [] e.do = "release" -> LetGo(e.c)
      [] e.do = "cancel" -> GiveUp(e.c)
      [] e.do = "lose" -> Lose(e.c)
      [] e.do = "tick" -> Tick
      [] e.do = "arrive" ->
            LET its == {m \in net: m.op = e.op /\ m.lease = e.lease /\ (m.op = "release" \/ m.serial = e.serial)} IN
            IF its = {} THEN UNCHANGED vars ELSE \E m \in its: Arrives(m)
      [] e.do = "reply" ->
            LET kind == IF e.kind = "checked" THEN "renewed" ELSE e.kind
                its == {reply \in news: reply.kind = kind /\ reply.lease = e.lease /\ reply.serial = e.serial}
                c == e.lease[1]
            IN
            IF its = {} THEN UNCHANGED vars ELSE \E reply \in its: Receive(c, reply)
      [] e.do = "push" ->
            LET c == e.lease[1]
                its == {reply \in news: reply.kind = "granted" /\ reply.lease = e.lease /\ ENABLED Granted(c, reply)}
            IN
            IF its = {} THEN UNCHANGED vars ELSE \E reply \in its: Granted(c, reply)

\* What the code has after the event: the tenure, the line, and each living client's state with its token. Where time passes,
\* also how long the tenure, each waiter's place and each lease still last.
Shows(e) ==
    /\ e.holder = IF IsHeld' THEN <<holder'.lease, holder'.token>> ELSE <<>>
    /\ e.line = [i \in 1..Len(Alive') |-> Alive'[i].lease]
    /\ \A c \in DOMAIN e.clients:
        /\ e.clients[c] = <<client'[c].phase, client'[c].token>>
        /\ client'[c].phase = "held" => IsValid(c)'
    /\ "expires" \in DOMAIN e =>
        /\ e.expires = IF IsHeld' THEN holder'.expires - time' ELSE 0
        /\ e.alive = [i \in 1..Len(Alive') |-> Alive'[i].until - time']
        /\ \A c \in DOMAIN e.clients:
            client'[c].phase = "held" => e.deadlines[c] = client'[c].deadline - local'[c]

\* A waiter counts as alive for `Window`, which is rounded up here.
IsAliveInTicks(waiter) == waiter.until > time

\* A check is a renewal that changes no deadline.
ExtendedUnlessChecked(c, deadline) ==
    IF Event.kind = "checked" THEN client[c].deadline ELSE Max(client[c].deadline, deadline)

\* An attempt is awaited for as long as its `not_after` in the trace says.
AwaitsAsTold == Event.patience

\* Who hears a push is known to the server.
HearsAsTold == {Event.heard}

Follow ==
    /\ at <= Len(Traces[trace])
    /\ Does(Event)
    /\ "holder" \in DOMAIN Event => Shows(Event)
    /\ at' = at + 1 /\ UNCHANGED trace

TraceSpec == Init /\ trace \in 1..Len(Traces) /\ at = 1 /\ [][Follow]_<<vars, trace, at>>

\* The specification can do what comes next in the trace.
Accepted == at > Len(Traces[trace]) \/ ENABLED Follow
=============================================================================
