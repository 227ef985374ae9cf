-- Frees the lock for the next waiter if the tenure with this token has it, even if another client holds it.
-- The holder gets a push.
--
-- keys   lock, line, holders
-- text   token
-- reply  released
--        gone
--        taken
local function force_release(k, op)
  local key, record = KEYS[k], call('HGET', KEYS[k], 's')
  if record then
    return share.force(k, record, sub(op, OP_REST))
  end
  local state = lock.read(key)
  if not state.is_held then
    -- Of a name without data nobody knows whether it is a lock. Waiters for a part of it must keep their places.
    if state.is_new then
      -- Deletes nothing, but a replica refuses it.
      call('HDEL', key, '')
    else
      line.serve(k, state)
    end
    return { 'gone' }
  end
  local client, lease, token = lock.client(state), lock.lease(state), sub(state.field, FIELD_TOKEN)
  if token ~= sub(op, OP_REST) then
    return { 'taken' }
  end
  -- Deletes nothing, but fails if `line.serve` would: the holder must not be told of a release that Redis
  -- refuses.
  call('HDEL', key, '')
  -- The push comes before the change, so that a client that tracks the key learns the reason first.
  publish(key, client, 'revoked', lease, token)
  line.serve(k, state)
  return { 'released' }
end
