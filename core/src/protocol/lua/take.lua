-- Gives the lock to a claim, for so many milliseconds.
local function take(k, claim, milliseconds)
  local lock, counter = KEYS[k], KEYS[k + 1]
  local retention, owner = string.match(claim, '^%d+:(%d+):(.+)$', 51)
  local last = redis.pcall('GET', counter)
  -- The clock has passed the last token: most are so.
  local passed = not last or #last == 16 and string.find(last, '^[1-9]%d*$') and tonumber(last) < now
  local token
  if passed and retention ~= '0' then
    token = now_digits
    if last then
      -- A counter that was to be kept for ever is so, whoever counts.
      redis.call('SET', counter, token, 'KEEPTTL')
      redis.call('PEXPIRE', counter, retention, 'XX')
    else
      redis.call('SET', counter, token, 'PX', retention)
    end
  else
    token = rest().next_token(counter, retention)
  end
  local expires = digits(now_ms + milliseconds)
  redis.call('SET', lock, string.sub(claim, 1, 50) .. token .. ':' .. owner, 'PXAT', expires)
  return token, expires
end
