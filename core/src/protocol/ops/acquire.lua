-- Takes the lock if it is free. If this lease has it already it keeps it: a retry changes nothing but
-- the expiry, which it never shortens. An owner may take the lock over from itself at another
-- client, but only the tenure that it names: one that an earlier reply named, and none that began
-- later. Nobody overtakes: a free lock for which others wait goes to the first of them.
--
-- keys   lock, token, queue, alive
-- args   claim, ttl (ms), wait (1 to wait in line, else 0), the token of the tenure to take over
--        (? to be told which one it could take over, 0 for none)
-- reply  held, token, expiry (ms)
--        busy, expiry (ms; -1 for none), place in line (0 if it does not wait). If the lock is free,
--          but more are dead in line than one call passes by: busy, with an expiry of now, and 0
--        reclaimable, the token of the tenure that it may take over; nothing was done
--        full, how many wait
local function acquire(k, a)
  -- The common case: the lock is free, and nobody waits.
  if redis.call('EXISTS', KEYS[k], KEYS[k + 2]) == 0 then
    local token, expires = take(k, ARGV[a], ARGV[a + 1])
    return { 'held', token, expires }
  end
  return rest().acquire(k, a)
end
