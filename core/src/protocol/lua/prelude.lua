-- One call executes a batch of operations, each on the keys of one name.
--
-- KEYS   each operation's keys, one operation after the other
-- ARGV   per operation: its name, not_after (microseconds of this server's clock), its arguments
-- reply  flat list of strings: this server's time in microseconds, then per operation the number
--        of its fields and the fields, the first of which says what happened:
--          late                not_after had passed; nothing was done
--          error, text, key    the server refused a command on that key
--          …                   what the header of the operation's own file says
--
-- What the four keys of a name hold:
--
-- lock   lease:client:token:kind:label of the holder. The kind is r if the label is an owner, who
--        may reclaim the lock, and l if it is only there to be read by people
-- token  the last token that was given
-- queue  sorted set of the claims that wait; the score is when each arrived, in microseconds
-- alive  sorted set of the same claims; the score is the millisecond until which each counts as alive
--
-- A claim is lease:client:window:retention:kind:label, with the times in milliseconds. It says who
-- asks, for how long it may be silent and still count as alive, and how its token is made.
--
-- An operation is a function of k and a, the places of its first key in KEYS and of its first
-- argument in ARGV. It returns the fields of its reply.
--
-- Names in capitals with an underscore are the numbers of limits.rs, put in before the script is
-- sent. A comment that begins with an arrow stands for lines that are made of the list of operations.

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local now_ms = math.floor(now / 1000)

-- Lua would print large numbers with an exponent.
local function digits(number)
  return string.format('%.0f', number)
end

local now_digits = digits(now)

-- Returns what the common cases do not need. It is defined only if it is asked for, because Redis
-- runs the definitions anew at each call of the script.
local rest
