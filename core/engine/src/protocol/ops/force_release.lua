-- Frees the lock, for the next in line, if this tenure has it, whoever that is; the holder gets a push.
--
-- keys   lock, line
-- text   token
-- reply  released
--        gone
--        taken
local function force_release(k, op)
  local key = KEYS[k]
  local state = lock.read(key)
  if not state.is_held then
    line.serve(k, state)
    return { 'gone' }
  end
  local client, lease, token = lock.client(state), lock.lease(state), sub(state.field, FIELD_TOKEN)
  if token ~= sub(op, OP_REST) then
    return { 'taken' }
  end
  -- Deletes nothing, and fails where `line.serve` would: nobody is told of a release that Redis refuses.
  call('HDEL', key, '')
  -- Before the lock changes: whoever tracks the key would otherwise hear of the change before its reason.
  publish(key, client, 'revoked', lease, token)
  line.serve(k, state)
  return { 'released' }
end
