-- One call executes a batch of operations, each on the keys of one name.
--
-- KEYS   the keys of each operation, in order
-- ARGV   not_after, then one text per operation: its letter, its time to live, and the parts that the header of its own
--        file lists, each with a fixed length. not_after is in microseconds of this server's clock, with as many digits
--        as a token. It is empty if all operations are releases, which are harmless however late they run
-- reply  this server's time in microseconds, if every operation had its common outcome, or 0 if no operation read the
--        clock. Otherwise a flat list of strings: the time, and for each operation with another outcome its number
--        (from 1), the number of fields that follow, and these fields. The first field names the outcome:
--          error, text, key    the server refused a command on that key
--          …                   an outcome that the header of the operation's file lists
--        Past not_after the script does nothing and replies with the list of the time and late
--
-- The two keys of a name:
--
-- lock   a hash.
--        t: the last token. A + after it means that the token does not tell when the key's expiry was set: the key may
--        expire soon, the token was ahead of the clock's step, or a renewal raised it.
--        (lease ID and token): the tenure that holds the lock, or held it until it expired. The value is its expiry, its
--        client, its kind and its label. The kind is r if the label is an owner, who may reclaim the lock, l if the
--        label is only for people to read, and j for a runner of a job, whose tick comes before the label.
--        d: present if the name is a job's. The last completed tick: the token of its turn, the tick, the time in
--        milliseconds and the label of its runner; all 0 and no label if none was completed
--        y: a request to the holder to yield: the end of its time (ms) and the label of the asking client. Such a tenure
--        has a y after its field, so that the common cases do not find it and leave the operation to the rest
--        w and x: present if somebody may be waiting. There are two of them, so that the number of deleted fields tells
--        them from a tenure
-- line   a sorted set of waiting claims. Each claim's score is its arrival in microseconds. Each claim is also in the
--        set with an a before it; the score of that is the time in milliseconds until which the waiter counts as alive.
--        Arrivals are always greater than such times
--
-- A claim consists of: the time to live, the window (how long the waiter may be silent and still count as
-- alive), the retention (how long the token is remembered, 0 for dense tokens), the lease ID, the client, the
-- kind and the label. Times are in milliseconds. All parts except the label have fixed lengths: CLAIM_… in
-- limits.rs says where each begins, and VALUE_…, FIELD_… and so on do for the other texts.
--
-- The common case of each operation is inlined in the loop without functions: Redis runs the whole text at
-- each call, and would define each function again. The rest is defined when the first operation of a call
-- needs it. There, an operation is a function of the index of its first key in KEYS, its text, and what the
-- common case has read. It returns the fields of its reply. A capital letter requests an operation that is
-- not a common case.
--
-- Names in capitals with an underscore are numbers of limits.rs, inserted when the crate is compiled. A
-- comment that begins with an arrow stands for lines that are generated from other files or the list of
-- operations.

local run, sub = redis.pcall, string.sub
local now_digits, now, now_ms = '0', nil, nil
if ARGV[1] ~= '' then
  --> the time
  -- Both have the same number of digits, so comparing strings gives the same result, faster.
  if now_digits > ARGV[1] then
    return { now_digits, 'late' }
  end
end
