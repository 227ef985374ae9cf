-- Frees the lock, for the next in line, if this tenure has it, whoever that is; the holder gets a push.
--
-- keys   lock, line
-- text   token
-- reply  released
--        gone
--        taken
local function force_release(k, op)
  local state = read(KEYS[k])
  local client, lease, token = state.client, state.lease, state.token
  if not state.is_held then
    serve(k, state)
    return { 'gone' }
  elseif tonumber(token) ~= tonumber(sub(op, OP_REST)) then
    return { 'taken' }
  end
  serve(k, state)
  publish(k, client, 'revoked', lease, token)
  return { 'released' }
end
