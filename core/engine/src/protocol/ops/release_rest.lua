-- The cases of a release that release.lua does not cover: somebody may wait, this tenure does not have the
-- lock, or it is a turn of a job. Its letter is C if the turn completes its tick.
local function release(k, op, deleted)
  local key, tick = KEYS[k], sub(op, 1, 1) == 'C' and lock.tick(op, RELEASE_OWNER)
  checked(deleted, key)
  local state, token = lock.read(key), sub(op, RELEASE_TOKEN, RELEASE_CLIENT - 1)
  -- Three deleted fields are the tenure and both flags.
  if deleted == 3 or lock.lease(state) == sub(op, RELEASE_FIELD, RELEASE_TOKEN - 1) then
    if tick and tick == state.tick then
      local time = string.format('%0' .. EXPIRY_LENGTH .. '.0f', now_ms)
      state.done = sub(state.field, FIELD_TOKEN) .. tick .. time .. sub(state.value, VALUE_RUNNER)
      state.done_tick = tick
      -- Deleting first lets Redis write even when memory is full: see `lock.clear`.
      call('HDEL', key, '')
      call('HSET', key, 'd', state.done)
    end
    local client = sub(op, RELEASE_CLIENT, RELEASE_CLIENT + CLIENT_LENGTH - 1)
    return line.serve(k, state, client) or { 'released' }
  end
  if deleted == 2 then
    lock.flag(key, state)
  end
  line.leave(KEYS[k + 1], sub(op, OP_TTL, RELEASE_TOKEN - 1) .. sub(op, RELEASE_CLIENT))
  if tick and state.done and tick <= state.done_tick then
    return { sub(state.done, 1, TOKEN_LENGTH) == token and 'released' or 'completed' }
  elseif state.is_held then
    return { 'taken' }
  end
  line.serve(k, state)
  return { 'gone' }
end
