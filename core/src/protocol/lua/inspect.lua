-- Tells who has the lock.
--
-- keys   lock, token
-- args   -
-- reply  held, token, expiry (ms; -1 for none), kind, label
--        free, last token (0 if none is remembered)
local function inspect(k)
  local lock, counter = KEYS[k], KEYS[k + 1]
  local holder = holder_of(lock)
  if holder then
    return { 'held', holder.token, expiry_of(lock), holder.kind, holder.label }
  end
  local token = call('GET', counter) or '0'
  if token ~= '0' and not is_token(token) then
    fail(NOT_A_TOKEN, counter)
  end
  return { 'free', token }
end
