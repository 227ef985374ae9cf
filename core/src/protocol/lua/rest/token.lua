-- Tokens, whatever the counter holds.

local MAX_TOKEN = 9007199254740991
local NOT_A_TOKEN = 'WRONGTYPE the key holds a value that is not a token'

-- Whether these are a token's digits, as the client reads them: a reply that it cannot read would
-- spoil the whole batch.
local function is_token(text)
  return #text <= 16 and string.match(text, '^[1-9]%d*$') and tonumber(text) <= MAX_TOKEN
end

-- Counts up; with a retention the token is lifted to the clock, so that it grows even if the
-- counter was lost, and the counter may expire, unless it was to be kept for ever. A counter that
-- yields no token is left as it was.
local function next_token(key, retention)
  local token = call('INCR', key)
  local is_new, next = token == 1, digits(token)
  if retention ~= '0' and token < now then
    call('SET', key, now_digits, 'KEEPTTL')
    next = now_digits
  elseif token < 1 or token > MAX_TOKEN then
    call('DECR', key)
    fail(token < 1 and NOT_A_TOKEN or 'ERR the token counter is used up', key)
  end
  if retention == '0' then
    call('PERSIST', key)
  elseif is_new then
    call('PEXPIRE', key, retention)
  else
    call('PEXPIRE', key, retention, 'XX')
  end
  return next
end
