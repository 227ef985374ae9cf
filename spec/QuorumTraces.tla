---------------------------- MODULE QuorumTraces ----------------------------
\* The code follows Quorum.tla: each trace of real engines and their three servers is a behavior of the specification. The module
\* TraceData has the traces; tests/search/traces/quorum.rs writes it. No tick passes in them.
EXTENDS Quorum, Sequences, TraceData

VARIABLES
    trace,  \* The trace that is followed.
    at      \* The next event of it.

Event == Traces[trace][at]

\* What the code did, as an action of the specification.
Does(e) ==
    CASE e.do = "begin" -> BeginWith(e.c, e.proposed)
      [] e.do = "ask" -> IF call[e.c][e.m].kind = "acquire" THEN UNCHANGED vars ELSE AskAgain(e.c, e.m)
      [] e.do = "raise" ->
            Cardinality(Has(vote[e.c])) >= Enough /\ e.token = TokenOf(vote[e.c]) /\ Raise(e.c)
      [] e.do = "prove" -> AskForProof(e.c)
      [] e.do = "end" -> End(e.c)
      [] e.do = "start" -> BeginLate(e.c)
      [] e.do = "flush" -> LoseData(e.m)
      [] e.do = "arrive" -> Arrives(e.c, e.m)
      [] e.do = "reply" -> Receives(e.c, e.m)
      [] e.do = "release" -> Release(e.c, e.m)

\* What the code has after the event: the holder and the last token at each member, and each client's state with its token.
Shows(e) ==
    /\ \A m \in Members: e.members[m] = <<member'[m].holder, member'[m].last>>
    /\ \A c \in DOMAIN e.clients: e.clients[c] = <<client'[c].phase, client'[c].token>>

\* A lease begins when the code says so.
BeginsAsTold(c) == Event.begins = c

Follow ==
    /\ at <= Len(Traces[trace])
    /\ Does(Event)
    /\ "members" \in DOMAIN Event => Shows(Event)
    /\ at' = at + 1 /\ UNCHANGED trace

TraceSpec == Init /\ trace \in 1..Len(Traces) /\ at = 1 /\ [][Follow]_<<vars, trace, at>>

\* The specification can do what comes next in the trace.
Accepted == at > Len(Traces[trace]) \/ ENABLED Follow
=============================================================================
