-- The loop over the operations of the batch; see prelude.lua.

local reply, rest
-- The expiry of a lease that starts now with the time to live `ttl`. Cached, because most operations of a
-- batch have the same time to live.
local ttl, expires, expires_digits
-- The current step of the clock, as the leading digits of a token.
local step
local k = 1
for i = 2, #ARGV do
  local op, key = ARGV[i], KEYS[k]
  -- `seen` is what a common case passes to the rest, or nil if it did everything. `other` is its part of the
  -- reply, after the time.
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
