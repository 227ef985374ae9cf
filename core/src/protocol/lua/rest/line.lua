-- The line of those who wait for a lock, and what is published to clients.

local MAX_WAITERS = 65536
-- The line itself is kept so much longer than the last claim in it counts as alive.
local LINGER = 60000
-- How many who died in line one operation passes by, so that none takes long.
local MOST_SKIPPED = 1000
-- No claim holds up the others for longer.
local LONGEST_WINDOW = 60000

local function parse_claim(text, key)
  local lease, client, window, kind, label = string.match(text, '^(%x+):(%x+):(%d+):%d+:([rl]):(.+)$')
  if not lease or #lease ~= 32 or #client ~= 16 then
    fail('WRONGTYPE the key holds a value that is not a claim', key)
  end
  window = math.min(tonumber(window), LONGEST_WINDOW)
  return { lease = lease, client = client, window = window, kind = kind, label = label }
end

-- Tells a client, on the channel that it may have subscribed to; returns how many heard it. Others
-- may listen and publish there, so only half of the lease id is told, and all of it seals the rest.
local function publish(k, client, what, lease, ...)
  local message = table.concat({ what, string.sub(lease, 1, 16), ... }, ':')
  local namespace = string.match(KEYS[k], '^{([^:]*):')
  local channel = 'leasehold:' .. namespace .. ':' .. client
  local heard = redis.pcall('PUBLISH', channel, message .. ':' .. redis.sha1hex(lease .. ':' .. message))
  return type(heard) == 'number' and heard or 0
end

local function leave_line(k, ...)
  call('ZREM', KEYS[k + 2], ...)
  call('ZREM', KEYS[k + 3], ...)
end

-- The first in line who is alive; nil if nobody is; false if so many were dead that it takes another
-- call to tell. The dead before it are dropped. Each round but the last drops somebody.
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

-- Gives a free lock to this member of the line, until it takes it up, and tells it. If nobody
-- hears, it has half of its window, in which it asks once more. It is promised no more in any
-- case: subscribers at another server of a group are not counted.
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

-- Frees the lock, and the first in line gets it (or whoever asks next sees to that). It is deleted in any case: when memory is full Redis
-- refuses to set anything, but not after another write of the same script. Trouble with the line is
-- the waiters' and must not keep the lock from being freed.
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
    local dead = call('ZRANGEBYSCORE', alive, '-inf', '(' .. digits(now_ms), 'LIMIT', '0', '100')
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
  local kept = digits(now_ms + window + LINGER)
  -- First, so that a place is also confirmed when memory is full: see `free`.
  call('PEXPIREAT', queue, kept)
  call('ZADD', alive, digits(now_ms + window), member)
  call('PEXPIREAT', alive, kept)
  return ahead + 1
end
