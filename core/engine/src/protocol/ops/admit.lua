-- Takes a part of a shared name, if it is free and nobody waits for it longer. If this lease already has a permit, only
-- the expiry changes, which never gets shorter: so a retry is harmless. First removes holders whose leases have
-- expired, and admits waiters that fit.
--
-- keys   lock, line, holders
-- text   as that of an acquisition. It neither reclaims nor proposes
-- reply  admitted, token, expiry (ms), capacity, epoch of the capacity, token of the last writer (0 if there was none),
--          the slots in one text
--        busy, the soonest expiry of a permit (ms), or now if one call cannot remove all that have expired; place in line
--          (0 if it does not wait). If the line begins with more dead waiters than one call skips: busy, with an expiry
--          of now, and 0
--        full, the number of waiters
--        excess, the capacity, which is less than the weight
local function admit(k, op)
  local state = share.read(k, op, ACQUIRE_OWNER)
  local queue, ttl, lease = KEYS[k + 1], sub(op, OP_TTL, OP_REST - 1), sub(op, ACQUIRE_LEASE, ACQUIRE_CLIENT - 1)
  local member, milliseconds, weight = ttl .. sub(op, ACQUIRE_CLAIM), tonumber(ttl), share.weight(op, ACQUIRE_OWNER)
  local value, expires = share.find(k, lease)
  if value and expires < now_ms then
    share.drop(k, state, lease)
  elseif value then
    local retention = tonumber(sub(op, ACQUIRE_RETENTION, ACQUIRE_LEASE - 1))
    return share.admitted(state, value, share.extend(k, lease, expires, milliseconds, retention))
  end
  if weight > state.capacity then
    line.leave(queue, member)
    return { 'excess', tostring(state.capacity) }
  end
  local first = share.serve(k, state, member)
  if first == false then
    return { 'busy', tostring(now_ms), '0' }
  elseif (not first or first == member) and state.used + weight <= state.capacity then
    local fields = share.take(k, state, member, milliseconds)
    if first then
      pcall(line.leave, queue, member)
    end
    return fields
  end
  local place = 0
  if sub(op, OP_REST, OP_REST) == '1' then
    place = line.wait(k, state, member, line.window(member))
    if not place then
      return { 'full', tostring(MAX_WAITERS) }
    end
  end
  return { 'busy', tostring(math.max(share.soonest(k, state), now_ms)), tostring(place) }
end
