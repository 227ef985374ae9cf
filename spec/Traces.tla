------------------------------- MODULE Traces -------------------------------
\* The code follows Single.tla: each trace of real engines and their server is a behavior of the specification. The module
\* TraceData has the traces; tests/search/traces.rs writes it. No time passes in them.
EXTENDS Single, TraceData

VARIABLES
    trace,  \* The trace that is followed.
    at      \* The next event of it.

Event == Traces[trace][at]

\* What the code did, as an action of the specification. A message that can have no effect is no longer in `net` or `news`,
\* so there is nothing to do when it arrives.
Does(e) ==
    CASE e.do = "ask" ->
            /\ Ask(e.lease[1])
            /\ client'[e.lease[1]].number = e.lease[2] /\ client'[e.lease[1]].waits = e.waits
      [] e.do = "renew" -> LeaseOf(e.lease[1]) = e.lease /\ AskRenewal(e.lease[1])
      [] e.do = "release" -> LetGo(e.c)
      [] e.do = "cancel" -> GiveUp(e.c)
      [] e.do = "arrive" ->
            LET its == {m \in net: m.op = e.op /\ m.lease = e.lease /\ (m.op = "release" \/ m.serial = e.serial)} IN
            IF its = {} THEN UNCHANGED vars ELSE \E m \in its: Arrives(m)
      [] e.do = "reply" ->
            LET its == {reply \in news: reply.kind = e.kind /\ reply.lease = e.lease} IN
            IF its = {} THEN UNCHANGED vars ELSE \E reply \in its: Receive(e.lease[1], reply)
      [] e.do = "push" ->
            LET its == {reply \in news: reply.kind = "granted" /\ reply.lease = e.lease} IN
            IF its = {} THEN UNCHANGED vars ELSE \E reply \in its: Granted(e.lease[1], reply)

\* What the code has after the event: the tenure, the line, and each living client's state with its token.
Shows(e) ==
    /\ e.holder = IF holder' = None THEN <<>> ELSE <<holder'.lease, holder'.token>>
    /\ e.line = [i \in 1..Len(line') |-> line'[i].lease]
    /\ \A c \in DOMAIN e.clients: e.clients[c] = <<client'[c].phase, client'[c].token>>

Follow ==
    /\ at <= Len(Traces[trace])
    /\ Does(Event)
    /\ "holder" \in DOMAIN Event => Shows(Event)
    /\ at' = at + 1 /\ UNCHANGED trace

TraceSpec == Init /\ trace \in 1..Len(Traces) /\ at = 1 /\ [][Follow]_<<vars, trace, at>>

\* The specification can do what comes next in the trace.
Accepted == at > Len(Traces[trace]) \/ ENABLED Follow
=============================================================================
