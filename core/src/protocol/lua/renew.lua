-- Extends the lock if this lease still has it; takes nothing otherwise.
--
-- keys   lock
-- args   lease, ttl (ms)
-- reply  renewed, expiry (ms)
--        gone
--        taken
local function renew(k, a)
  local lock = KEYS[k]
  local holder = holder_of(lock)
  if not holder then
    return { 'gone' }
  end
  if holder.lease ~= ARGV[a] then
    return { 'taken' }
  end
  local expires = digits(now_ms + tonumber(ARGV[a + 1]))
  call('PEXPIREAT', lock, expires)
  return { 'renewed', expires }
end
