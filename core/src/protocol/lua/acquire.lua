-- Takes the lock if it is free, and again if this lease has it already: a retry changes nothing
-- but the expiry. An owner that may reclaim takes over from its former self at another client.
--
-- keys   lock, token
-- args   lease, ttl (ms), client, kind, label, retention (ms; 0 keeps a dense counter for ever)
-- reply  held, token, expiry (ms)
--        busy, expiry (ms; -1 for none)
local function acquire(k, a)
  local lock, lease, client, kind, label = KEYS[k], ARGV[a], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4]
  local token
  local holder = holder_of(lock)
  if holder then
    local reclaims = kind == 'r' and holder.kind == 'r' and holder.label == label and holder.client ~= client
    if holder.lease == lease then
      token = holder.token
    elseif not reclaims then
      return { 'busy', expiry_of(lock) }
    end
  end
  token = token or next_token(KEYS[k + 1], ARGV[a + 5])
  local expires = digits(now_ms + tonumber(ARGV[a + 1]))
  call('SET', lock, table.concat({ lease, client, token, kind, label }, ':'), 'PXAT', expires)
  return { 'held', token, expires }
end
