-- Frees the lock for the next in line, whoever has it, and tells the holder.
--
-- keys   lock, token, queue, alive
-- args   -
-- reply  released, token, expiry (ms; -1 for none), kind, label
--        free
local function force_release(k)
  local lock = KEYS[k]
  local holder = holder_of(lock)
  if not holder then
    free(k)
    return { 'free' }
  end
  local expires = expiry_of(lock)
  free(k)
  publish(holder.client, 'revoked', holder.lease, holder.token)
  return { 'released', holder.token, expires, holder.kind, holder.label }
end
