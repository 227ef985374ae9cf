-- Tells who has the lock and who waits for it. It changes nothing.
--
-- keys   lock, line
-- text   how many places of the line to look at
-- reply  held, token, expiry (ms), kind, label, waiting…
--        free, last token (0 if none is remembered), waiting…
--        where waiting… is how many wait and are alive, how many of them are named, and for each of
--        these, in order: its kind, its label, when it came (microseconds)
local function inspect(k, op)
  local line, places = KEYS[k + 1], tonumber(sub(op, OP_REST))
  local state = read(KEYS[k])
  local fields
  if state.is_held then
    fields = { 'held', state.token, tostring(state.expires), state.kind, state.label }
  else
    fields = { 'free', digits(state.last or 0) }
  end
  fields[#fields + 1] = tostring(call('ZCOUNT', line, tostring(now_ms), '(LEAST_ARRIVAL'))
  local count = #fields + 1
  fields[count] = 0
  local claims = call(
    'ZRANGEBYSCORE', line, 'LEAST_ARRIVAL', '+inf', 'WITHSCORES', 'LIMIT', '0', tostring(places)
  )
  for i = 1, #claims, 2 do
    local live_until = call('ZSCORE', line, 'a' .. claims[i])
    if tonumber(live_until or 0) >= now_ms then
      local claim = parse_claim(claims[i], line)
      fields[count] = fields[count] + 1
      fields[#fields + 1] = claim.kind
      fields[#fields + 1] = claim.label
      fields[#fields + 1] = digits(tonumber(claims[i + 1]))
    end
  end
  fields[count] = tostring(fields[count])
  return fields
end
