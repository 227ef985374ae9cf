-- Takes the lock if it is free. If this lease has it already it keeps it: a retry changes nothing but
-- the expiry, which it never shortens. An owner may take the lock over from itself at another
-- client, but only the tenure that it names: one that an earlier reply named, and none that began
-- later. Nobody overtakes: a free lock for which others wait goes to the first of them.
--
-- keys   lock, line
-- text   1 to wait in line, else 0; the token of the tenure to take over (all ? to be told which one
--        it could take over, all 0 for none); the claim but for its time to live
-- common the lock is this lease's: its token is the time, and it has the time to live that it asked for
-- reply  held, token, expiry (ms)
--        busy, expiry (ms), place in line (0 if it does not wait). If the lock is free, but more are
--          dead in line than one call passes by: busy, with an expiry of now, and 0
--        reclaimable, the token of the tenure that it may take over; nothing was done
--        full, how many wait
local state = run('HGETALL', key)
local last = #state == 2 and state[1] == 't' and #state[2] == TOKEN_LENGTH and state[2]
local waiting = #state == 0 and not state.err and run('EXISTS', KEYS[k + 1])
-- Both have as many digits, so this is quicker than by numbers.
if last and last < now_digits or waiting == 0 then
  -- It is free, and nobody waits.
  local done = run(
    'HSET', key,
    't', now_digits,
    sub(op, ACQUIRE_LEASE, ACQUIRE_CLIENT - 1) .. now_digits, expires_digits .. sub(op, ACQUIRE_CLIENT)
  )
  if done ~= (last and 1 or 2) then
    seen = done
  elseif not last or sub(last, 1, KEPT_STEP_DIGITS) ~= sub(now_digits, 1, KEPT_STEP_DIGITS) then
    -- The key's expiry is set once in each step of the clock; the last token says in which it was.
    local kept = sub(op, ACQUIRE_RETENTION, ACQUIRE_LEASE - 1) + KEPT_LONGER_MS
    -- GT sets none on a key that has none, which is one that was just made or has dense tokens.
    done = last and run('PEXPIRE', key, kept, 'GT') or run('PEXPIRE', key, kept)
    if type(done) == 'table' then
      seen = done
    end
  end
else
  seen = type(waiting) == 'table' and waiting or state
end
