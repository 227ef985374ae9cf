-- The line of those who wait for a lock.

local function parse_claim(text, key)
  local kind = sub(text, CLAIM_KIND, CLAIM_KIND)
  if #text < CLAIM_LABEL or kind ~= 'r' and kind ~= 'l'
    or not string.find(sub(text, 1, CLAIM_LEASE - 1), '^%d+$')
    or not string.find(sub(text, CLAIM_LEASE, CLAIM_KIND - 1), '^%x+$') then
    fail('WRONGTYPE the key holds a value that is not a claim', key)
  end
  return {
    ttl = tonumber(sub(text, 1, CLAIM_WINDOW - 1)),
    window = math.min(tonumber(sub(text, CLAIM_WINDOW, CLAIM_RETENTION - 1)), LONGEST_WINDOW_MS),
    retention = tonumber(sub(text, CLAIM_RETENTION, CLAIM_LEASE - 1)),
    lease = sub(text, CLAIM_LEASE, CLAIM_CLIENT - 1),
    client = sub(text, CLAIM_CLIENT, CLAIM_KIND - 1),
    kind = kind,
    label = sub(text, CLAIM_LABEL),
  }
end

-- By what the line knows until when each of these counts as alive.
local function marks_of(members, last)
  local marks = {}
  for i = 1, last do
    marks[i] = 'a' .. members[i]
  end
  return marks
end

local function leave_line(line, member)
  call('ZREM', line, member, 'a' .. member)
end

-- The first in line who is alive, and the dead before it leave the line. nil if nobody is alive;
-- false if so many were dead that it takes another call to tell. Each round but the last drops
-- somebody.
local function first_in_line(line)
  local count, left = 1, MOST_SKIPPED
  while left > 0 do
    local most = tostring(math.min(count, left))
    local members = call('ZRANGEBYSCORE', line, 'LEAST_ARRIVAL', '+inf', 'LIMIT', '0', most)
    if #members == 0 then
      return nil
    end
    local marks = marks_of(members, #members)
    local live_until = call('ZMSCORE', line, unpack(marks))
    local first = 1
    while first <= #members and (tonumber(live_until[first] or 0) < now_ms) do
      first = first + 1
    end
    if first > 1 then
      call('ZREM', line, unpack(members, 1, first - 1))
      call('ZREM', line, unpack(marks, 1, first - 1))
    end
    if members[first] then
      return members[first]
    end
    left = left - #members
    count = count * 8
  end
  return false
end

-- Gives a free lock to this member of the line. If it is of the client that asks, the reply says so,
-- and it has the time that it asked for. Else its client gets a push, and the lock is kept for its
-- window, in which it takes it up; or, if nobody heard the push, for half of it, in which it asks
-- again. The push promises half of it in any case: who listens at another server of a cluster is not
-- counted. It is stored before it is told.
local function grant(k, state, member, client)
  local lock, line = KEYS[k], KEYS[k + 1]
  local claim = parse_claim(member, line)
  local is_own = claim.client == client
  -- Each has two places in the set.
  local others = call('ZCARD', line) > 2
  local token, expires = take(lock, state, member, is_own and claim.ttl or claim.window, others)
  leave_line(line, member)
  if is_own then
    return { 'handed_over', claim.lease, token, expires }
  end
  local promised = now_ms + math.floor(claim.window / 2)
  if publish(k, claim.client, 'granted', claim.lease, token, tostring(promised), now_digits) == 0 then
    state.expires = promised
    call('HSET', lock, state.field, tostring(promised) .. sub(state.value, VALUE_CLIENT))
  end
end

local function hand_over(k, state, client)
  local first = first_in_line(KEYS[k + 1])
  if first then
    return grant(k, state, first, client)
  elseif first == false then
    flag(KEYS[k], state)
  end
end

-- Frees the lock and hands it to the first in line; if that cannot be told yet, whoever asks next
-- sees to it. Returns the reply if the client that asks has it again. The tenure is deleted first:
-- when memory is full Redis refuses to set anything, but not after another write of the same script.
-- An error in the line is the waiters' trouble, and must not keep the lock from being freed.
local function serve(k, state, client)
  clear(KEYS[k], state)
  local done, handed = pcall(hand_over, k, state, client)
  if not done then
    clear(KEYS[k], state)
    flag(KEYS[k], state)
    return nil
  end
  return handed
end

-- Takes a place in line, or confirms it; returns it, counted from 1, or nil if the line is full.
local function wait_in_line(k, state, member, window)
  local line, arrival = KEYS[k + 1], nil
  local kept, live_until = digits(now_ms + window + LINGER_MS), tostring(now_ms + window)
  local arrived = call('ZSCORE', line, member)
  if arrived then
    -- First, so that a place is confirmed even when memory is full: see `serve`.
    call('PEXPIREAT', line, kept)
    call('ZADD', line, live_until, 'a' .. member)
    if not state.is_flagged then
      flag(KEYS[k], state)
    end
    return call('ZCOUNT', line, 'LEAST_ARRIVAL', '(' .. arrived) + 1
  end
  local last, ahead = call('ZRANGE', line, '-1', '-1', 'WITHSCORES')[2], 0
  if last then
    local before_now = '(' .. tostring(now_ms)
    local marks = call('ZRANGEBYSCORE', line, '-inf', before_now, 'LIMIT', '0', 'MOST_CLEARED')
    if #marks > 0 then
      call('ZREM', line, unpack(marks))
      for i = 1, #marks do
        marks[i] = sub(marks[i], 2)
      end
      call('ZREM', line, unpack(marks))
    end
    ahead = call('ZCOUNT', line, 'LEAST_ARRIVAL', '+inf')
    if ahead >= MAX_WAITERS then
      return nil
    end
  end
  -- Two that come in the same microsecond, or after the clock was set back, keep their order.
  arrival = last and math.max(now, tonumber(last) + 1) or now
  call('ZADD', line, digits(arrival), member, live_until, 'a' .. member)
  call('PEXPIREAT', line, kept)
  if not state.is_flagged then
    flag(KEYS[k], state)
  end
  return ahead + 1
end
