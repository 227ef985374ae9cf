-- One call executes a batch of operations, each on the keys of one name.
--
-- KEYS   each operation's keys, one operation after the other
-- ARGV   per operation: its name, not_after (microseconds of this server's clock), its arguments
-- reply  flat list of strings: this server's time in microseconds, then per operation the number
--        of its fields and the fields, the first of which says what happened:
--          late                not_after had passed; nothing was done
--          error, text, key    the server refused a command on that key
--          …                   what the operation's own header says
--
-- lock   lease:client:token:kind:label, where kind is r if the label is an owner that may reclaim
--        the lock and l if it is for people only
-- token  the last token
-- queue  sorted set of the claims that wait, by arrival in microseconds
-- alive  sorted set of the same claims, by the milliseconds until which they count as alive
--
-- A claim is lease:client:window:retention:kind:label, with the times in milliseconds: who asks,
-- how long it may be silent, and how its token is made.

local MAX_TOKEN = 9007199254740991
local MAX_WAITERS = 65536
local NOT_A_TOKEN = 'WRONGTYPE the key holds a value that is not a token'
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now_ms = math.floor(now / 1000)

-- Lua would print large numbers with an exponent.
local function digits(number)
  return string.format('%.0f', number)
end

local function fail(text, key)
  error({ text = text, key = key })
end

-- A failing command ends its own operation and not the batch.
local function call(command, key, ...)
  local result = redis.pcall(command, key, ...)
  if type(result) == 'table' and result.err then
    fail(result.err, key)
  end
  return result
end

-- Whether these are a token's digits, as the client reads them: a reply that it cannot read would
-- spoil the whole batch.
local function is_token(text)
  return #text <= 16 and string.match(text, '^[1-9]%d*$') and tonumber(text) <= MAX_TOKEN
end

-- The holder of a lock, or nil if it is free.
local function holder_of(key)
  local value = call('GET', key)
  if not value then
    return nil
  end
  local lease, client, token, kind, label = string.match(value, '^(%x+):(%x+):(%d+):([rl]):(.+)$')
  if not lease or #lease ~= 32 or #client ~= 16 or not is_token(token) then
    fail('WRONGTYPE the key holds a value that is not a lock', key)
  end
  return { lease = lease, client = client, token = token, kind = kind, label = label }
end

-- When a lock expires, in milliseconds; -1 if somebody took its expiry away.
local function expiry_of(key)
  return digits(call('PEXPIRETIME', key))
end

-- Counts up; with a retention the token is lifted to the clock, so that it grows even if the
-- counter was lost, and the counter may expire. A counter that yields no token is left as it was.
local function next_token(key, retention)
  local token = call('INCR', key)
  if retention ~= '0' and token < now then
    call('SET', key, digits(now), 'PX', retention)
    return digits(now)
  end
  if token < 1 or token > MAX_TOKEN then
    call('DECR', key)
    fail(token < 1 and NOT_A_TOKEN or 'ERR the token counter is used up', key)
  end
  if retention == '0' then
    call('PERSIST', key)
  else
    call('PEXPIRE', key, retention)
  end
  return digits(token)
end
