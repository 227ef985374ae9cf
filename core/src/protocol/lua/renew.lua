-- Extends the lock if this tenure, a lease with its token, still has it; takes nothing otherwise.
--
-- keys   lock
-- args   lease, token, ttl (ms)
-- reply  renewed, expiry (ms)
--        gone
--        taken
local function renew(k, a)
  local lock = KEYS[k]
  local holder = holder_of(lock)
  if not holder then
    return { 'gone' }
  end
  if holder.lease ~= ARGV[a] or holder.token ~= ARGV[a + 1] then
    return { 'taken' }
  end
  local expires = digits(now_ms + tonumber(ARGV[a + 2]))
  call('PEXPIREAT', lock, expires)
  return { 'renewed', expires }
end
