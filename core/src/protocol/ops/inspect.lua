-- Tells who has the lock and who waits for it. It changes nothing.
--
-- keys   lock, token, queue, alive
-- args   how many places of the line to look at
-- reply  held, token, expiry (ms; -1 for none), kind, label, waiting…
--        free, last token (0 if none is remembered), waiting…
--        where waiting… is how many wait and are alive, how many of them are named, and for each of
--        these, in order: its kind, its label, when it came (microseconds)
local function inspect(k, a)
  local lock, counter, queue, alive = KEYS[k], KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]
  local places = tonumber(ARGV[a])
  local holder = holder_of(lock)
  local reply
  if holder then
    reply = { 'held', holder.token, expiry_of(lock), holder.kind, holder.label }
  else
    local token = call('GET', counter) or '0'
    if token ~= '0' and not is_token(token) then
      fail_without_token(counter)
    end
    reply = { 'free', token }
  end
  reply[#reply + 1] = tostring(call('ZCOUNT', alive, digits(now_ms), '+inf'))
  local count = #reply + 1
  reply[count] = 0
  local line = call('ZRANGE', queue, 0, places - 1, 'WITHSCORES')
  for i = 1, #line, 2 do
    local live_until = call('ZSCORE', alive, line[i])
    if tonumber(live_until or 0) >= now_ms then
      local claim = parse_claim(line[i], queue)
      reply[count] = reply[count] + 1
      reply[#reply + 1] = claim.kind
      reply[#reply + 1] = claim.label
      reply[#reply + 1] = digits(tonumber(line[i + 1]))
    end
  end
  reply[count] = tostring(reply[count])
  return reply
end
