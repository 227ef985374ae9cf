-- Refuses a stale token. Otherwise stores it and lets the user's script write, all in one call. A client puts
-- this in front of the script, which does not see the first key and argument any more.
--
-- KEYS   the fence, then the script's keys
-- ARGV   the token, then the script's arguments
-- reply  the script's; or one of these errors, after which nothing was written:
--          STALETOKEN highest   a greater token was seen
--          NOTAFENCE            the fence key holds something else
--          BADTOKEN             the argument is not a token
--
-- fence  the greatest token seen, in digits; a string without an expiry
--
-- It is sent as one line, so that line numbers in errors are those of the user's script: comments
-- must be on lines of their own.
do
  local fence, token = table.remove(KEYS, 1), table.remove(ARGV, 1)
  local function is_token(text)
    return #text <= 16 and string.match(text, '^[1-9]%d*$') and tonumber(text) <= 9007199254740991
  end
  local seen = redis.pcall('GET', fence)
  if type(seen) == 'table' and not string.match(seen.err, '^WRONGTYPE') then
    return seen
  end
  if not token or not is_token(token) then
    return redis.error_reply('BADTOKEN a token must be plain digits from 1 to 9007199254740991')
  end
  if seen ~= token then
    if type(seen) == 'table' or (seen and not is_token(seen)) then
      return redis.error_reply('NOTAFENCE the fence key holds something else')
    end
    if seen and tonumber(seen) > tonumber(token) then
      return redis.error_reply('STALETOKEN ' .. seen)
    end
    -- Before the write: if that fails halfway, no older holder may write after it.
    redis.call('SET', fence, token)
  end
end
