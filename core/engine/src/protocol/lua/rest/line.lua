-- The line of waiters for a lock.

-- Returns the client, the window and the lease ID of a claim. Fails if the text is not a claim.
function line.parse(text, key)
  local kind = sub(text, CLAIM_KIND, CLAIM_KIND)
  if #text < CLAIM_LABEL or kind ~= 'r' and kind ~= 'l' and not lock.tick(text, CLAIM_KIND)
    and not share.weight(text, CLAIM_KIND)
    or string.find(sub(text, 1, CLAIM_LEASE - 1), '%D')
    or string.find(sub(text, CLAIM_LEASE, CLAIM_KIND - 1), '%X') then
    fail('WRONGTYPE the key holds a value that is not a claim', key)
  end
  local client, lease = sub(text, CLAIM_CLIENT, CLAIM_KIND - 1), sub(text, CLAIM_LEASE, CLAIM_CLIENT - 1)
  return client, line.window(text), lease
end

function line.window(claim)
  return math.min(tonumber(sub(claim, CLAIM_WINDOW, CLAIM_RETENTION - 1)), LONGEST_WINDOW_MS)
end

function line.leave(key, member)
  call('ZREM', key, member, 'a' .. member)
end

-- Returns true if the name cannot serve this claim: its tick was completed, or it is for another use of the name, whose
-- key was deleted meanwhile. Tells its client, which asks again.
function line.is_over(k, state, member)
  local is_other = (share.weight(member, CLAIM_KIND) and sub(member, CLAIM_KIND, CLAIM_KIND)) ~= state.kind
  local tick = state.done and lock.tick(member, CLAIM_KIND)
  if not is_other and (not tick or tick > state.done_tick) then
    return false
  end
  local client, _, lease = line.parse(member, KEYS[k + 1])
  publish(KEYS[k], client, 'completed', lease, is_other and '1' or sub(state.done, 1, TOKEN_LENGTH))
  return true
end

-- Returns the first waiter that is alive, and removes those before it that are dead or whose tick was completed.
-- Returns nil if there is none, and false if it skipped too many to tell in this call. Every round except the last
-- removes a waiter.
function line.first(k, state)
  local key, count, left = KEYS[k + 1], 1, MOST_SKIPPED
  while left > 0 do
    local most = tostring(math.min(count, left))
    local members = call('ZRANGEBYSCORE', key, 'LEAST_ARRIVAL', '+inf', 'LIMIT', '0', most)
    if #members == 0 then
      return nil
    end
    local marks = {}
    for i = 1, #members do
      marks[i] = 'a' .. members[i]
    end
    local live_until = call('ZMSCORE', key, unpack(marks))
    local first = 1
    while first <= #members
      and (tonumber(live_until[first] or 0) < now_ms or line.is_over(k, state, members[first])) do
      first = first + 1
    end
    if first > 1 then
      call('ZREM', key, unpack(members, 1, first - 1))
      call('ZREM', key, unpack(marks, 1, first - 1))
    end
    if members[first] then
      return members[first]
    end
    left = left - #members
    count = count * 8
  end
  return false
end

-- Grants a free lock to this member of the line. If the calling client is its own client, the lock is held
-- for the time to live, and the reply reports the grant. Otherwise the client gets a push, and the lock is
-- held for the window, in which the client confirms it. If nobody received the push, the lock is held for
-- half the window, in which the client asks again. The push always promises half the window, because
-- subscribers at other nodes of a cluster are not counted. The grant is stored before it is published.
function line.grant(k, state, member, client)
  local key, queue = KEYS[k], KEYS[k + 1]
  local claimant, window, lease = line.parse(member, queue)
  local milliseconds, is_own = window, claimant == client
  if is_own then
    milliseconds = tonumber(sub(member, 1, CLAIM_WINDOW - 1))
  end
  -- The next operation finds out whether others wait.
  local token, expires = lock.take(key, state, member, milliseconds, true)
  line.leave(queue, member)
  if is_own then
    return { 'handed_over', lease, token, expires }
  end
  local promised = now_ms + math.floor(window / 2)
  if publish(key, claimant, 'granted', lease, token, tostring(promised), now_digits) == 0 then
    state.expires = promised
    call('HSET', key, state.field, tostring(promised) .. sub(state.value, VALUE_CLIENT))
  end
end

-- Frees the lock and hands it to the first waiter. Returns the reply if the calling client has the lock
-- again. If it cannot find the first waiter in this call, it flags the lock, and the next operation serves
-- the line. It deletes the tenure first: when memory is full, Redis refuses to add data, except after another
-- write of the same script. An error in the line affects only waiters and must not keep the lock from being
-- freed.
function line.serve(k, state, client)
  local key = KEYS[k]
  lock.clear(key, state)
  local done, first, handed = pcall(line.first, k, state)
  if done and first then
    done, handed = pcall(line.grant, k, state, first, client)
  elseif first == false then
    lock.flag(key, state)
  end
  if not done then
    lock.clear(key, state)
    lock.flag(key, state)
    return nil
  end
  return handed
end

-- Takes a place in line, or confirms it. Returns the place, counted from 1, or nil if the line is full.
function line.wait(k, state, member, window)
  local key, queue = KEYS[k], KEYS[k + 1]
  local kept, live_until = tostring(now_ms + window + LINGER_MS), tostring(now_ms + window)
  local arrived = call('ZSCORE', queue, member)
  if arrived then
    -- This write comes first, so that a place is confirmed even when memory is full: see `serve`.
    call('PEXPIREAT', queue, kept)
    call('ZADD', queue, live_until, 'a' .. member)
    if not state.is_flagged then
      lock.flag(key, state)
    end
    return call('ZCOUNT', queue, 'LEAST_ARRIVAL', '(' .. arrived) + 1
  end
  local last, ahead = call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')[2], 0
  local arrival = now_digits
  if last then
    local before_now = '(' .. sub(now_digits, 1, EXPIRY_LENGTH)
    local marks = call('ZRANGEBYSCORE', queue, '-inf', before_now, 'LIMIT', '0', 'MOST_CLEARED')
    if #marks > 0 then
      call('ZREM', queue, unpack(marks))
      for i = 1, #marks do
        marks[i] = sub(marks[i], 2)
      end
      call('ZREM', queue, unpack(marks))
    end
    ahead = call('ZCOUNT', queue, 'LEAST_ARRIVAL', '+inf')
    if ahead >= MAX_WAITERS then
      return nil
    end
    -- Waiters keep their order even if they arrive in the same microsecond, or after the clock was set back.
    if tonumber(last) >= now then
      arrival = string.format('%.0f', tonumber(last) + 1)
    end
  end
  call('ZADD', queue, arrival, member, live_until, 'a' .. member)
  call('PEXPIREAT', queue, kept)
  if not state.is_flagged then
    lock.flag(key, state)
  end
  return ahead + 1
end
