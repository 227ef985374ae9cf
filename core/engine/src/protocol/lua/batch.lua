-- The loop over the batch: see the top of the script.

local reply, rest
-- When a lease expires that begins now, for this time to live: nearly always that of the one before.
local ttl, expires, expires_digits
-- The step of the clock, in digits, for tokens to be compared with.
local step
local k = 1
for i = 2, #ARGV do
  local op, key = ARGV[i], KEYS[k]
  -- What a common case leaves to the rest; or its own part of the reply, behind the time.
  local letter, seen, other, keys = sub(op, 1, 1), nil, nil, nil
  --> the common operations
  else
    seen = true
  end
  if seen then
    if not rest then
      --> the rest
    end
    other, keys = rest(i - 1, letter, k, op, seen)
    if not other then
      return redis.error_reply('ERR leasehold: unknown operation')
    end
  end
  if not reply then
    reply = other
  elseif other then
    for j = 2, #other do
      reply[#reply + 1] = other[j]
    end
  end
  k = k + keys
end
return reply or now_digits
