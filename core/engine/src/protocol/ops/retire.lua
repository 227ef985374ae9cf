-- Ends a tenure (a lease with its token) and keeps its name taken for the time to live. The name is then held by a
-- tenure of the same token and label that nobody can renew, release or reclaim, and that has no client to notify: its
-- lease ID and its client are all zeros, and its kind is l. A repetition changes nothing.
--
-- keys   lock
-- text   retention, lease, token
-- reply  released
--        gone
--        taken
local function retire(k, op)
  local key, milliseconds = KEYS[k], tonumber(sub(op, OP_TTL, OP_REST - 1))
  local state = lock.read(key)
  local field = string.rep('0', LEASE_LENGTH) .. sub(op, RENEW_FIELD + LEASE_LENGTH)
  if not state.is_held then
    return { 'gone' }
  elseif state.field == field then
    return { 'released' }
  elseif state.field ~= sub(op, RENEW_FIELD) then
    return { 'taken' }
  end
  local who = string.rep('0', CLIENT_LENGTH) .. 'l' .. sub(state.value, VALUE_LABEL)
  -- The deletion comes first, so that this works even when memory is full: see `lock.clear`.
  lock.clear(key, state)
  call('HSET', key, field, tostring(now_ms + milliseconds) .. who)
  lock.keep(key, tonumber(sub(op, OP_REST, RENEW_FIELD - 1)), milliseconds)
  return { 'released' }
end
