-- The loop over the batch: see the top of the script.

local reply, rest = now_digits, nil
-- When a lease expires that begins now, for this time to live: nearly always that of the one before.
local ttl, expires, expires_digits
local k = 1
for i = 2, #ARGV do
  local op, key = ARGV[i], KEYS[k]
  local letter, seen, keys = sub(op, 1, 1), nil, nil
  if letter ~= 'd' and sub(op, OP_TTL, OP_REST - 1) ~= ttl then
    ttl = sub(op, OP_TTL, OP_REST - 1)
    expires = now_ms + ttl
    expires_digits = tostring(expires)
  end
  --> the common operations
  else
    seen = true
  end
  if seen then
    if not rest then
      --> the rest
    end
    local fields
    fields, keys = rest(letter, k, op, seen)
    if not fields then
      return redis.error_reply('ERR leasehold: unknown operation')
    end
    if type(reply) == 'string' then
      reply = { now_digits }
    end
    reply[#reply + 1] = tostring(i - 1)
    reply[#reply + 1] = tostring(#fields)
    for j = 1, #fields do
      reply[#reply + 1] = fields[j]
    end
  end
  k = k + keys
end
return reply
