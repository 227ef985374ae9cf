-- Frees the lock, whoever has it.
--
-- keys   lock
-- args   -
-- reply  released, token, expiry (ms; -1 for none), kind, label
--        free
local function force_release(k)
  local lock = KEYS[k]
  local holder = holder_of(lock)
  if not holder then
    return { 'free' }
  end
  local expires = expiry_of(lock)
  call('DEL', lock)
  return { 'released', holder.token, expires, holder.kind, holder.label }
end
