-- The line of those who wait for a lock.

local function parse_claim(text, key)
  local lease, client, window, kind, label = string.match(text, '^(%x+):(%x+):(%d+):%d+:([rl]):(.+)$')
  if not lease or #lease ~= LEASE_LENGTH or #client ~= CLIENT_LENGTH then
    fail('WRONGTYPE the key holds a value that is not a claim', key)
  end
  window = math.min(tonumber(window), LONGEST_WINDOW_MS)
  return { lease = lease, client = client, window = window, kind = kind, label = label }
end

local function leave_line(k, ...)
  call('ZREM', KEYS[k + 2], ...)
  call('ZREM', KEYS[k + 3], ...)
end

-- The first in line who is alive, and the dead before it leave the line. nil if nobody is alive;
-- false if so many were dead that it takes another call to tell. Each round but the last drops
-- somebody.
local function first_in_line(k)
  local queue, alive, count, left = KEYS[k + 2], KEYS[k + 3], 1, MOST_SKIPPED
  while left > 0 do
    local members = call('ZRANGE', queue, 0, math.min(count, left) - 1)
    if #members == 0 then
      return nil
    end
    local live_until = call('ZMSCORE', alive, unpack(members))
    local first = 1
    while first <= #members and (tonumber(live_until[first] or 0) < now_ms) do
      first = first + 1
    end
    if first > 1 then
      leave_line(k, unpack(members, 1, first - 1))
    end
    if members[first] then
      return members[first]
    end
    left = left - #members
    count = count * 8
  end
  return false
end

-- Gives a free lock to this member of the line and pushes that to its client. The lock is kept for
-- its window, in which it takes it up; or, if nobody heard the push, for half of it, in which it asks
-- again. The push promises half of it in any case: who listens at another server of a cluster is
-- not counted.
local function grant(k, member)
  local claim = parse_claim(member, KEYS[k + 2])
  local token = take(k, member, claim.window)
  leave_line(k, member)
  local promised = digits(now_ms + math.floor(claim.window / 2))
  local heard = publish(k, claim.client, 'granted', claim.lease, token, promised, digits(now))
  if heard == 0 then
    call('PEXPIREAT', KEYS[k], promised)
  end
end

local function hand_over(k)
  local first = first_in_line(k)
  if first then
    grant(k, first)
  end
end

-- Frees the lock and hands it to the first in line; if that cannot be told yet, whoever asks next
-- sees to it. The lock is deleted first: when memory is full Redis refuses to set anything, but not
-- after another write of the same script. An error in the line is the waiters' trouble, and must
-- not keep the lock from being freed.
local function free(k)
  call('DEL', KEYS[k])
  if not pcall(hand_over, k) then
    call('DEL', KEYS[k])
  end
end

-- Takes a place in line, or confirms it; returns it, counted from 1, or nil if the line is full.
local function wait_in_line(k, member, window)
  local queue, alive = KEYS[k + 2], KEYS[k + 3]
  local ahead = call('ZRANK', queue, member)
  if not ahead then
    local before_now = '(' .. digits(now_ms)
    local dead = call('ZRANGEBYSCORE', alive, '-inf', before_now, 'LIMIT', 0, MOST_CLEARED)
    if #dead > 0 then
      leave_line(k, unpack(dead))
    end
    ahead = call('ZCARD', queue)
    if ahead >= MAX_WAITERS then
      return nil
    end
    -- Two that come in the same microsecond, or after the clock was set back, keep their order.
    local last = call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    local arrival = last and math.max(now, tonumber(last) + 1) or now
    call('ZADD', queue, digits(arrival), member)
  end
  local kept = digits(now_ms + window + LINGER_MS)
  -- First, so that a place is confirmed even when memory is full: see `free`.
  call('PEXPIREAT', queue, kept)
  call('ZADD', alive, digits(now_ms + window), member)
  call('PEXPIREAT', alive, kept)
  return ahead + 1
end
