-- Extends the lock if this tenure, which is a lease with its token, still has it, and takes nothing
-- otherwise. It never shortens: an older command may come again after one that asked for longer.
--
-- keys   lock
-- args   lease, token, ttl (ms)
-- reply  renewed, expiry (ms)
--        gone
--        taken
local function renew(k, a)
  local lock, lease, token = KEYS[k], ARGV[a], ARGV[a + 1]
  local value = redis.call('GET', lock)
  if not value then
    return { 'gone' }
  end
  -- Most operations are renewals, so the value is not parsed: lease and token have their places.
  if string.sub(value, 1, LEASE_LENGTH) ~= lease
    or string.sub(value, AFTER_CLIENT, AFTER_CLIENT + #token) ~= token .. ':' then
    rest().holder_of(lock)
    return { 'taken' }
  end
  local expires = digits(now_ms + ARGV[a + 2])
  if redis.call('PEXPIREAT', lock, expires, 'GT') == 0 then
    expires = rest().extend(lock, expires)
  end
  return { 'renewed', expires }
end
