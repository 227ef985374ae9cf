-------------------------------- MODULE Time --------------------------------
\* The time arithmetic of the engine: core/engine/src/engine/clock.rs.
\*
\* A tick stands for many microseconds. Within a tick all clocks stand still, so a server whose clock has reached a bound
\* counts as past it: it was at the bound in the first microsecond alone.
LOCAL INSTANCE Integers

CONSTANTS
    Spread,         \* A clock deviates by one tick at most once in so many ticks: the drift that clocks have.
    LeavesMargin    \* Protection: deadlines and bounds leave the drift margin.

\* `Margin::drift`: how far two clocks may drift apart during this time.
Drift(elapsed) == IF LeavesMargin THEN (elapsed + Spread - 1) \div Spread ELSE 0

\* The part of this time that every other clock surely measures.
Surely(elapsed) == IF elapsed <= 0 THEN 0 ELSE elapsed - Drift(elapsed)

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b

\* `Margin::deadline`: the local deadline of a lease, which never comes after the server's expiry.
Deadline(sent, time, expires) == sent + Surely(expires - time)

\* `Anchor::new`: what one reply tells about the server's clock. When it said `server`, the local clock was between `sent`
\* and `received`.
Anchor(server, sent, received) ==
    [server |-> server, received |-> received, sent |-> sent, answered |-> server]

\* `Anchor::not_after`: a time that the server's clock reaches no later than the local clock reaches `at`.
NotAfter(anchor, at) == anchor.server + Surely(at - anchor.received)

\* `Anchor::not_before`: a local time no later than the one at which the server's clock said `time`.
NotBefore(anchor, time) ==
    IF time >= anchor.answered
    THEN anchor.sent + Surely(time - anchor.answered)
    ELSE anchor.sent - ((anchor.answered - time) + Drift(anchor.answered - time))

\* `Anchor::refreshed`: the better of the old and the new value for each bound.
Refreshed(anchor, server, sent, now) ==
    LET after == NotAfter(anchor, now)
        before == NotBefore(anchor, server)
        isTighter == after > server /\ after <= server + (now - sent)
        isLater == before > sent /\ before <= now
    IN [server |-> IF isTighter THEN after ELSE server,
        received |-> now,
        sent |-> IF isLater THEN before ELSE sent,
        answered |-> server]
=============================================================================
