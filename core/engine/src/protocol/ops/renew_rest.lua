-- The cases of a renewal that renew.lua does not cover: the tenure has ended or already lasts longer, its key
-- needs another expiry, there is a floor, or the holder was asked to yield.
local function renew(k, op, seen)
  local key = KEYS[k]
  checked(seen, key)
  local state = lock.read(key)
  if not state.is_held then
    return { 'gone' }
  elseif state.field ~= sub(op, RENEW_FIELD, RENEW_FLOOR - 1) then
    return { 'taken' }
  end
  local floor = sub(op, RENEW_FLOOR)
  if floor ~= '' and tonumber(floor) > (state.last or 0) then
    -- The + makes the next acquisition set the key's expiry. Deleting first lets Redis write even when memory
    -- is full: see `lock.clear`.
    call('HDEL', key, '')
    call('HSET', key, 't', floor .. '+')
  end
  local retention = tonumber(sub(op, OP_REST, RENEW_FIELD - 1))
  local expires = lock.extend(key, state, tonumber(sub(op, OP_TTL, OP_REST - 1)), retention)
  if state.request then
    return { 'wanted', expires, sub(state.request, 1, EXPIRY_LENGTH), sub(state.request, REQUEST_LABEL) }
  end
  return { 'renewed', expires }
end
