-- Records that the tick of this turn is completed, and frees the job for the next waiter. A turn that expired may still
-- complete its tick while nobody else was given it. A repeated request changes nothing.
--
-- keys   lock, line
-- text   lease, token; the client
-- reply  as for a release
local function complete(k, op)
  local key, field = KEYS[k], sub(op, COMPLETE_FIELD, COMPLETE_CLIENT - 1)
  local state = lock.read(key)
  if state.field == field and state.tick then
    local token = sub(field, FIELD_TOKEN)
    local time = string.format('%0' .. EXPIRY_LENGTH .. '.0f', now_ms)
    state.done, state.done_tick = token .. state.tick .. time .. sub(state.value, VALUE_RUNNER), state.tick
    -- Deleting first lets Redis write even when memory is full: see `lock.clear`.
    call('HDEL', key, '')
    call('HSET', key, 'd', state.done)
    return line.serve(k, state, sub(op, COMPLETE_CLIENT)) or { 'released' }
  elseif state.done and sub(state.done, 1, TOKEN_LENGTH) == sub(field, FIELD_TOKEN) then
    return { 'released' }
  end
  return { state.is_held and 'taken' or 'gone' }
end
