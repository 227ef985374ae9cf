-- Tokens, whatever the counter's key holds.

local function fail_without_token(key)
  fail('WRONGTYPE the key holds a value that is not a token', key)
end

-- Whether a text is a token that the client can read: one that it cannot would spoil the whole
-- batch's reply.
local function is_token(text)
  return #text <= TOKEN_LENGTH and string.match(text, '^[1-9]%d*$') and tonumber(text) <= MAX_TOKEN
end

-- Counts up. With a retention, the token is at least the clock, so that it grows even if the counter
-- was lost; and the counter may expire, unless it never did before. A counter that has no next token
-- is left as it was.
local function next_token(key, retention)
  local token = call('INCR', key)
  local is_new, next = token == 1, digits(token)
  if retention ~= '0' and token < now then
    call('SET', key, now_digits, 'KEEPTTL')
    next = now_digits
  elseif token < 1 or token > MAX_TOKEN then
    call('DECR', key)
    if token < 1 then
      fail_without_token(key)
    end
    fail('ERR the token counter is used up', key)
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
