-- One call executes a batch of operations, each on the keys of one name.
--
-- KEYS   each operation's keys, one operation after the other
-- ARGV   not_after (microseconds of this server's clock, with as many digits as a token; empty for
--        releases alone, which do no harm however late), then a text for each operation: its letter,
--        its time to live, and what the header of its own file says, each at its place
-- reply  this server's time in microseconds, if every operation did what is common; 0 if nothing made
--        it look at the clock. Else a flat
--        list of strings: the time, and for each other operation its number, from 1, how many
--        fields follow, and these, the first of which says what happened:
--          error, text, key    the server refused a command on that key
--          …                   what the header of the operation's own file says
--        Past not_after nothing is done, and the list is the time and late.
--
-- What the two keys of a name hold:
--
-- lock   a hash. t: the last token, with a + behind it if it does not tell when the key's expiry was
--        set: the key may expire before long, or it was ahead of the clock, or a renewal raised it.
--        While the lock is held, or was until it expired: under lease and token, when that tenure
--        expires, its client, its kind and its label. The kind is r if the label is an owner, who may
--        reclaim the lock, and l if it is only there to be read by people. w and x: there if somebody
--        may wait, and two, so that a count of what was deleted tells them from a tenure
-- line   a sorted set: the claims that wait by when each arrived, in microseconds; and each with an
--        a before it by the millisecond until which it counts as alive, which is less
--
-- A claim says for how long it wants the lock, for how long it may be silent and still count as alive,
-- how long the token is to be remembered (0: its tokens are dense), who asks, its kind and its label.
-- Times are in milliseconds. All but the label are as long in every claim: CLAIM_… in limits.rs says
-- where each begins, and so do VALUE_… and the others.
--
-- The common case of an operation is written out in the loop, and uses no function: Redis runs the
-- whole text anew at each call, and would make each function anew. Whatever else there is to do is
-- made when the first operation needs it. There an operation is a function of the place of its first
-- key in KEYS, its text, and what the common case has seen. It returns the fields of its reply. A
-- capital letter says that it is not a common case.
--
-- Names in capitals with an underscore are the numbers of limits.rs, put in before the script is
-- sent. A comment that begins with an arrow stands for lines that are made of the list of operations.

local run, sub = redis.pcall, string.sub
local now_digits, now, now_ms = '0', nil, nil
if ARGV[1] ~= '' then
  --> the time
  -- Both have as many digits, so this is quicker than by numbers.
  if now_digits > ARGV[1] then
    return { now_digits, 'late' }
  end
end
