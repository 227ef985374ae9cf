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

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local now_ms = math.floor(now / 1000)

-- Lua would print large numbers with an exponent.
local function digits(number)
  return string.format('%.0f', number)
end

local now_digits = digits(now)

-- Gives all that the common cases do without; the script defines what it uses anew on each call.
local rest
