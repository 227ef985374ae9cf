-- Takes the lock if it is free, and again if this lease has it already: a retry changes nothing
-- but the expiry, which it never shortens. An owner that may reclaim takes over from its former self at another client, but
-- only the tenure that it names: one that it was told of, and not one that began since.
-- Nobody overtakes: a free lock that others wait for goes to the first of them.
--
-- keys   lock, token, queue, alive
-- args   claim, ttl (ms), wait (1 to wait in line, else 0), the token of the tenure to take over
--        (? to be told it, 0 for none)
-- reply  held, token, expiry (ms)
--        busy, expiry (ms; -1 for none), place in line (0 if it does not wait; or if the lock is
--        free, but too many died in line for one call: then it expires now, so it is asked again)
--        reclaimable, the token of the tenure that it may take over; nothing was done
--        full, how many wait
local function acquire(k, a)
  -- Free, and nobody waits: most are.
  if redis.call('EXISTS', KEYS[k], KEYS[k + 2]) == 0 then
    local token, expires = take(k, ARGV[a], ARGV[a + 1])
    return { 'held', token, expires }
  end
  return rest().acquire(k, a)
end
