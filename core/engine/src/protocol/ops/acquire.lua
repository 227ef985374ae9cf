-- Takes the lock if it is free. If this lease has it already it keeps it: a retry changes nothing but
-- the expiry, which it never shortens. An owner may take the lock over from itself at another
-- client, but only the tenure that it names: one that an earlier reply named, and none that began
-- later. Nobody overtakes: a free lock for which others wait goes to the first of them.
--
-- One that proposes a token has a letter of its own. If that is near to this clock it counts instead of it:
-- the lock has it, or what is next to the last if that is as great. So servers agree that had the same last.
--
-- keys   lock, line
-- text   1 to wait in line, else 0; the token of the tenure to take over (all ? to be told which one
--        it could take over, all 0 for none), or the one that it proposes; the claim but for its time to live
-- common the lock is this lease's: its token is the time, or what it proposes, and it has the time to live
--        that it asked for. Written out here is also, with replies of their own, that it has another token
--        than it proposes, and that somebody else has it
-- reply  held, token, expiry (ms)
--        busy, expiry (ms), place in line (0 if it does not wait). If the lock is free, but more are
--          dead in line than one call passes by: busy, with an expiry of now, and 0
--        reclaimable, the token of the tenure that it may take over; nothing was done
--        full, how many wait
local state = run('HGETALL', key)
local last = #state == 2 and state[1] == 't' and #state[2] == TOKEN_LENGTH and state[2]
local waiting = #state == 0 and not state.err and run('EXISTS', KEYS[k + 1])
local token, proposed_step = now_digits, nil
if letter == 'p' then
  --> the proposal
  proposed_step = sub(token, 1, KEPT_STEP_DIGITS)
end
-- Both have as many digits, so this is quicker than by numbers.
if last and last < token or waiting == 0 then
  -- It is free, and nobody waits.
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
    -- The key's expiry is set once in each step of the clock; the last token says in which it was.
    local kept = sub(op, ACQUIRE_RETENTION, ACQUIRE_LEASE - 1) + KEPT_LONGER_MS
    -- GT sets none on a key that has none, which is one that was just made or has dense tokens.
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
  -- A tenure with the last token is one of this script, which is all that is asked of it here.
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
    -- It does not own it at another client.
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
