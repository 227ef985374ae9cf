-- Asks the holder to release the lock, if the tenure with this token has it. The request stays in the lock's hash until
-- the tenure ends, and the holder gets a push. A pending request stays if it ends no later than the new one, so a retry
-- is harmless.
--
-- keys   lock
-- text   how long the holder has, as the time to live; token; the label of the asking client
-- reply  asked
--        gone
--        taken
local function ask_yield(k, op)
  local key = KEYS[k]
  local state = lock.read(key)
  if not state.is_held then
    return { 'gone' }
  end
  local token = sub(state.field, FIELD_TOKEN)
  if token ~= sub(op, OP_REST, YIELD_LABEL - 1) then
    return { 'taken' }
  end
  local ends, pending = now_ms + sub(op, OP_TTL, OP_REST - 1), lock.wanted_until(state)
  if not pending or ends < pending then
    -- The tenure is stored under its new field before the old one is deleted: Redis may refuse to write.
    call('HSET', key, state.field .. 'y', state.value, 'y', tostring(ends) .. sub(op, YIELD_LABEL))
    call('HDEL', key, state.field)
    publish(key, lock.client(state), 'wanted', lock.lease(state), token)
  end
  return { 'asked' }
end
