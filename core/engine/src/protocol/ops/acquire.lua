-- Takes the lock if it is free. If this lease already has the lock, only the expiry changes, which never gets
-- shorter: so a retry is harmless. An owner may reclaim its lock from another client. It must name the
-- tenure, which an earlier reply told, so it cannot take over one that began later. Nobody overtakes: a free
-- lock with waiters goes to the first of them.
--
-- An operation that proposes a token has its own letter. A proposal near this server's clock replaces the clock: the
-- lock gets the proposed token, or the last token + 1 if the last is not smaller. So servers with the same last token
-- agree on the new one.
--
-- keys   lock, line
-- text   1 to wait in line, otherwise 0; the token of the tenure to reclaim (all ? to ask which tenure that could be,
--        all 0 for none), or the proposed token; the claim without its time to live
-- common this lease has the lock, its token is the time or the proposal, and it lasts for its time to live. Two other
--        outcomes are also inlined here, with replies of their own: a token other than the proposal, and a lock that
--        somebody else holds
-- reply  held, token, expiry (ms)
--        busy, expiry (ms), place in line (0 if it does not wait). If the lock is free, but the line begins with more
--          dead waiters than one call skips: busy, with an expiry of now, and 0
--        reclaimable, the token of the tenure that it may reclaim; nothing was done
--        full, the number of waiters
--        completed: the runner's tick was completed before
local state = run('HGETALL', key)
local last = #state == 2 and state[1] == 't' and #state[2] == TOKEN_LENGTH and state[2]
local waiting = #state == 0 and not state.err and run('EXISTS', KEYS[k + 1])
local token, proposed_step = now_digits, nil
if letter == 'p' then
  --> the proposal
  proposed_step = sub(token, 1, KEPT_STEP_DIGITS)
end
-- Both have the same number of digits, so comparing strings gives the same result, faster.
if last and last < token or waiting == 0 then
  -- The lock is free, and nobody waits.
  --> the expiry
  local done = run(
    'HSET', key,
    't', token,
    sub(op, ACQUIRE_LEASE, ACQUIRE_CLIENT - 1) .. token, expires_digits .. sub(op, ACQUIRE_CLIENT)
  )
  step = step or sub(now_digits, 1, KEPT_STEP_DIGITS)
  if done ~= (last and 1 or 2) then
    seen = done
  elseif not last or sub(last, 1, KEPT_STEP_DIGITS) ~= (proposed_step or step) then
    -- The key's expiry is refreshed once per step of the clock. The last token tells in which step that was.
    local kept = sub(op, ACQUIRE_RETENTION, ACQUIRE_LEASE - 1) + KEPT_LONGER_MS
    -- GT does not add an expiry to a key that has none: a new key, or one with dense tokens.
    done = last and run('PEXPIRE', key, kept, 'GT') or run('PEXPIRE', key, kept)
    if type(done) == 'table' then
      seen = done
    end
  end
  if letter == 'p' and token == now_digits and not seen then
    other = { now_digits, tostring(i - 1), '3', 'held', token, expires_digits }
  end
else
  seen = type(waiting) == 'table' and waiting or state
  -- This script wrote the tenure if its token is the last one, which is all that must be known here.
  local token, field, value, flags = nil, nil, nil, 0
  for j = 1, #state, 2 do
    local name = state[j]
    if name == 't' then
      token = state[j + 1]
    elseif name == 'w' or name == 'x' then
      flags = flags + 1
    elseif #name == FIELD_LENGTH then
      field, value = name, state[j + 1]
    end
  end
  local held_until, now_short = value and sub(value, 1, EXPIRY_LENGTH), sub(now_digits, 1, EXPIRY_LENGTH)
  if field and #state == 4 + 2 * flags and sub(field, FIELD_TOKEN) == token
    and #value >= VALUE_LABEL and held_until >= now_short
    and sub(field, 1, LEASE_LENGTH) ~= sub(op, ACQUIRE_LEASE, ACQUIRE_CLIENT - 1)
    -- The asking owner does not hold the lock at another client.
    and (sub(op, ACQUIRE_OWNER, ACQUIRE_OWNER) == 'l' or sub(op, ACQUIRE_OWNER) ~= sub(value, VALUE_KIND)
      or sub(op, ACQUIRE_CLIENT, ACQUIRE_OWNER - 1) == sub(value, VALUE_CLIENT, VALUE_KIND - 1)) then
    local place = '0'
    if sub(op, OP_REST, OP_REST) == '1' then
      --> waiting
    end
    if place then
      seen = nil
      other = { now_digits, i == 2 and '1' or tostring(i - 1), '3', 'busy', held_until, place }
    end
  end
end
