-- What acquire.lua leaves to here: the lock is held, or somebody waits for it, or its key is not kept
-- as is common.
local function acquire(k, op, seen)
  local lock, line = KEYS[k], KEYS[k + 1]
  local member = sub(op, OP_TTL, OP_REST - 1) .. sub(op, ACQUIRE_CLAIM)
  local claim, reclaims = parse_claim(member, lock), sub(op, ACQUIRE_RECLAIMS, ACQUIRE_CLAIM - 1)
  if type(seen) == 'table' and seen.err then
    -- It may be set, and have failed only then.
    run('HDEL', lock, claim.lease .. now_digits)
    fail(seen.err, lock)
  end
  local state = read(lock, seen)
  local takes, first = false, nil
  if state.is_held and state.lease == claim.lease then
    return { 'held', state.token, extend(lock, state, claim.ttl, claim.retention) }
  elseif state.is_held then
    local same_owner = claim.kind == 'r' and state.kind == 'r' and state.label == claim.label
    if same_owner and state.client ~= claim.client then
      if sub(reclaims, 1, 1) == '?' then
        return { 'reclaimable', state.token }
      end
      takes = tonumber(reclaims) == tonumber(state.token)
    end
  else
    first = first_in_line(line)
    if first == false then
      -- Somebody behind the dead may be alive and must not be overtaken: the lock stays free.
      return { 'busy', tostring(now_ms), '0' }
    end
    takes = not first or first == member
    if first then
      -- So that Redis does the rest even when memory is full: see `serve`.
      clear(lock, state)
    end
  end
  if takes then
    local superseded = state.is_held and { state.client, state.lease, state.token }
    local token, taken_until = take(lock, state, member, claim.ttl, first and not state.is_flagged)
    if superseded then
      publish(k, superseded[1], 'superseded', superseded[2], superseded[3])
    end
    if superseded or first then
      -- The lock is taken, and the reply says so even if the line's key holds something else.
      pcall(leave_line, line, member)
    end
    return { 'held', token, taken_until }
  end
  if first then
    grant(k, state, first)
  end
  local place = 0
  if sub(op, OP_REST, OP_REST) == '1' then
    place = wait_in_line(k, state, member, claim.window)
    if not place then
      return { 'full', tostring(MAX_WAITERS) }
    end
  end
  return { 'busy', tostring(state.expires), tostring(place) }
end
