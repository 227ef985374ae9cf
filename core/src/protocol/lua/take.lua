-- Gives the lock to a claim, for this many milliseconds. Returns the token and when the lock expires.
local function take(k, claim, milliseconds)
  local lock, counter = KEYS[k], KEYS[k + 1]
  local retention, owner = string.match(claim, '^%d+:(%d+):(.+)$', AFTER_CLIENT)
  local last = redis.pcall('GET', counter)
  -- Whether the clock is past the last token, as it nearly always is.
  local passed = not last
    or #last == TOKEN_LENGTH and string.find(last, '^[1-9]%d*$') and tonumber(last) < now
  local token
  if passed and retention ~= '0' then
    token = now_digits
    if last then
      -- A counter that never expired goes on so, whatever this claim would have.
      redis.call('SET', counter, token, 'KEEPTTL')
      redis.call('PEXPIRE', counter, retention, 'XX')
    else
      redis.call('SET', counter, token, 'PX', retention)
    end
  else
    token = rest().next_token(counter, retention)
  end
  local expires = digits(now_ms + milliseconds)
  local lease_and_client = string.sub(claim, 1, AFTER_CLIENT - 1)
  redis.call('SET', lock, lease_and_client .. token .. ':' .. owner, 'PXAT', expires)
  return token, expires
end
