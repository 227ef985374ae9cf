-- The cases of an acquisition that acquire.lua does not cover: the lock is held, somebody waits for it, or
-- its key needs another expiry.
local function acquire(k, op, seen)
  local letter, token = sub(op, 1, 1), nil
  if letter == 'p' or letter == 'P' then
    --> the proposal
  end
  local key, queue = KEYS[k], KEYS[k + 1]
  local lease = sub(op, ACQUIRE_LEASE, ACQUIRE_CLIENT - 1)
  if type(seen) == 'table' and seen.err then
    -- The tenure may have been stored before a later command failed.
    run('HDEL', key, lease .. (token or now_digits))
    fail(seen.err, key)
  end
  local ttl = sub(op, OP_TTL, OP_REST - 1)
  local state, member = lock.read(key, seen), ttl .. sub(op, ACQUIRE_CLAIM)
  local takes, first, tick = false, nil, lock.tick(op, ACQUIRE_OWNER)
  if not state.is_new and not tick ~= not state.done then
    fail('WRONGTYPE the name is used for ' .. (tick and 'a lock, not for a job' or 'a job, not for a lock'), key)
  end
  if tick and state.done and tick <= state.done_tick then
    line.leave(queue, member)
    return { 'completed' }
  end
  if state.is_held and lock.lease(state) == lease then
    local retention = tonumber(sub(op, ACQUIRE_RETENTION, ACQUIRE_LEASE - 1))
    return { 'held', sub(state.field, FIELD_TOKEN), lock.extend(key, state, tonumber(ttl), retention) }
  elseif state.is_held then
    -- Kind and label stand together at the end of the operation's text and of the stored value.
    local owner, reclaims = sub(op, ACQUIRE_OWNER), sub(op, ACQUIRE_RECLAIMS, ACQUIRE_CLAIM - 1)
    if sub(owner, 1, 1) == 'r' and sub(state.value, VALUE_KIND) == owner
      and lock.client(state) ~= sub(op, ACQUIRE_CLIENT, ACQUIRE_OWNER - 1) then
      local token = sub(state.field, FIELD_TOKEN)
      if sub(reclaims, 1, 1) == '?' then
        return { 'reclaimable', token }
      end
      takes = reclaims == token
    end
  else
    first = line.first(k, state)
    if first == false then
      -- A waiter behind the dead ones may be alive and must not be overtaken: the lock stays free.
      return { 'busy', tostring(now_ms), '0' }
    end
    takes = not first or first == member
    if first then
      -- A first deletion lets Redis write the rest even when memory is full: see `line.serve`.
      lock.clear(key, state)
    end
  end
  if takes then
    local superseded, client = state.is_held and state.field, state.is_held and lock.client(state)
    local expires
    token, expires = lock.take(key, state, member, tonumber(ttl), first and not state.is_flagged, token)
    if superseded then
      local former = sub(superseded, 1, FIELD_TOKEN - 1)
      publish(key, client, 'superseded', former, sub(superseded, FIELD_TOKEN))
    end
    if superseded or first then
      -- The lock is taken, and the reply must say so even if the line's key holds something else.
      pcall(line.leave, queue, member)
    end
    return { 'held', token, expires }
  end
  if first then
    line.grant(k, state, first)
  end
  local place = 0
  if sub(op, OP_REST, OP_REST) == '1' then
    place = line.wait(k, state, member, line.window(member))
    if not place then
      return { 'full', tostring(MAX_WAITERS) }
    end
  end
  return { 'busy', tostring(state.expires), tostring(place) }
end
