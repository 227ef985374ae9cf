-- The holders of a shared name: of a semaphore, of a quota, or readers and writers.

-- Returns the weight of a claim on a part of a name, whose kind is at this place. Returns nil if the text is not one.
function share.weight(text, kind)
  return string.find(text, '^[sum]%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d.', kind)
    and tonumber(sub(text, kind + SHARE_WEIGHT, kind + SHARE_CAPACITY - 1))
end

-- Reads the state of a shared name for a claim whose kind is at this place of the text. Removes holders whose leases
-- have expired, up to a limit. Fails if the name is used for something else.
function share.read(k, text, at)
  local key, holders, kind = KEYS[k], KEYS[k + 2], sub(text, at, at)
  local last, record = call('HGET', key, 't'), call('HGET', key, 's')
  -- Only the common cases of a lock need the flags, and they find a record here.
  local state = { is_new = not last, is_flagged = true, kind = kind }
  if last then
    state.last, state.is_brief = lock.last(last, key)
    if not record or sub(record, 1, 1) ~= kind then
      local use = record and lock.use(record) or 'a lock or a job'
      fail('WRONGTYPE the name is used for ' .. use .. ', not for ' .. lock.use(kind), key)
    elseif #record ~= RECORD_LENGTH or string.find(record, '%D', RECORD_CAPACITY) then
      fail('WRONGTYPE the key holds a value that is not the record of a shared name', key)
    end
    state.record, state.generation = sub(record, 1, RECORD_GENERATION - 1), sub(record, RECORD_GENERATION)
  else
    -- The name begins with the first epoch of the capacity that the claim asks for.
    local capacity, epoch = sub(text, at + SHARE_CAPACITY, at + SHARE_LENGTH - 1), string.rep('0', UNITS_LENGTH - 1) .. '1'
    state.record, state.generation = kind .. capacity .. epoch, string.rep('0', TOKEN_LENGTH)
    if #call('HGETALL', key) > 0 then
      fail('WRONGTYPE the key holds a value that is not the record of a shared name', key)
    elseif call('ZSCORE', holders, 'u') then
      -- The tokens of these holders are lost, and so are their leases.
      share.clear(holders)
    elseif call('ZCOUNT', holders, '-inf', '+inf') > 0 then
      fail('WRONGTYPE the key holds a value that is not a set of holders', holders)
    end
  end
  state.capacity = tonumber(sub(state.record, RECORD_CAPACITY, RECORD_EPOCH - 1))
  state.used = 0 - tonumber(call('ZSCORE', holders, 'u') or 0)
  if state.used > 0 and share.soonest(k, state) < now_ms then
    local before_now = '(' .. sub(now_digits, 1, EXPIRY_LENGTH)
    local ended = call('ZRANGEBYSCORE', holders, 'LEAST_EXPIRY', before_now, 'LIMIT', '0', 'MOST_CLEARED')
    for i = 1, #ended do
      share.drop(k, state, ended[i])
    end
  elseif state.used <= 0 and not state.is_new then
    share.forget(key)
  end
  return state
end

-- Returns the soonest expiry of a permit, or 0 if there is none.
function share.soonest(k, state)
  if not state.soonest then
    local first = call('ZRANGEBYSCORE', KEYS[k + 2], 'LEAST_EXPIRY', '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
    state.soonest = tonumber(first[2] or 0)
  end
  return state.soonest
end

-- Deletes the set of holders. An expiry in the past does that, and needs no right to DEL.
function share.clear(holders)
  call('PEXPIRE', holders, '-1')
end

-- Removes all permits from the hash: their set of holders was deleted.
function share.forget(key)
  local fields = call('HGETALL', key)
  for i = 1, #fields, 2 do
    if #fields[i] == LEASE_LENGTH then
      call('HDEL', key, fields[i])
    end
  end
end

-- Ends a permit and frees its slots. Returns false if the lease has none. The deletions come first, because Redis
-- then lets the script write even when memory is full.
function share.drop(k, state, lease)
  local key, holders = KEYS[k], KEYS[k + 2]
  local value = call('HGET', key, lease)
  state.soonest = nil
  call('HDEL', key, lease)
  if call('ZREM', holders, lease) == 0 then
    return false
  end
  local weight = value and tonumber(sub(value, PERMIT_WEIGHT, PERMIT_SLOTS - 1)) or 0
  state.used = state.used - weight
  if state.used <= 0 then
    share.clear(holders)
    return true
  end
  local scores = { tostring(-state.used), 'u' }
  for i = 0, state.kind == 's' and weight - 1 or -1 do
    local at = PERMIT_SLOTS + i * SLOT_LENGTH
    local slot = sub(value, at, at + SLOT_LENGTH - 1)
    scores[#scores + 1] = tostring(tonumber(slot))
    scores[#scores + 1] = slot
  end
  call('ZADD', holders, unpack(scores))
  return true
end

-- Takes the lowest free slots, and returns them as one text. A slot that was never used is free, too. It is lower than
-- no free slot of the set, because slots are first used in their order.
function share.pick(k, state, weight)
  local holders = KEYS[k + 2]
  local below = '(' .. tostring(state.capacity)
  local slots = call('ZRANGEBYSCORE', holders, '0', below, 'LIMIT', '0', tostring(weight))
  local unused = #slots < weight and state.used + call('ZCOUNT', holders, '0', '(LEAST_EXPIRY')
  if #slots > 0 then
    call('ZREM', holders, unpack(slots))
  end
  while #slots < weight do
    slots[#slots + 1] = string.format('%0' .. SLOT_LENGTH .. '.0f', unused)
    unused = unused + 1
  end
  return table.concat(slots)
end

-- Stores the record of the name, and the last token as it is remembered.
function share.store(key, state, remembered, ...)
  call('HSET', key, 't', remembered, 's', state.record .. state.generation, ...)
end

-- Gives a part of the name, which is free, to a claim for this many milliseconds. Returns the fields of the reply.
function share.take(k, state, member, milliseconds)
  local key, holders, weight = KEYS[k], KEYS[k + 2], share.weight(member, CLAIM_KIND)
  local retention = tonumber(sub(member, CLAIM_RETENTION, CLAIM_LEASE - 1))
  local token, remembered, is_due = lock.next(key, state, retention, milliseconds)
  local lease, is_first = sub(member, CLAIM_LEASE, CLAIM_CLIENT - 1), state.used == 0
  local slots = state.kind == 's' and share.pick(k, state, weight) or ''
  if state.kind == 'm' and weight == state.capacity then
    state.generation = token
  end
  local expires = now_ms + milliseconds
  state.used = state.used + weight
  call('ZADD', holders, tostring(expires), lease, tostring(-state.used), 'u')
  local who = sub(member, CLAIM_CLIENT, CLAIM_KIND - 1)
  local units = sub(member, CLAIM_KIND + SHARE_WEIGHT, CLAIM_KIND + SHARE_CAPACITY - 1)
  local value = token .. who .. units .. slots .. sub(member, CLAIM_KIND + SHARE_LENGTH)
  share.store(key, state, remembered, lease, value)
  if is_due then
    lock.keep(key, retention, milliseconds, state.is_new)
  end
  if is_due or is_first then
    lock.keep(holders, retention, milliseconds, is_first)
  end
  state.is_new, state.last, state.is_brief, state.soonest = false, tonumber(token), remembered ~= token, nil
  return share.admitted(state, value, expires)
end

-- Returns the fields of the reply to the holder of a permit.
function share.admitted(state, value, expires)
  local slots = ''
  if state.kind == 's' then
    local weight = tonumber(sub(value, PERMIT_WEIGHT, PERMIT_SLOTS - 1))
    slots = sub(value, PERMIT_SLOTS, PERMIT_SLOTS + weight * SLOT_LENGTH - 1)
  end
  local capacity, epoch = sub(state.record, RECORD_CAPACITY, RECORD_EPOCH - 1), sub(state.record, RECORD_EPOCH)
  return { 'admitted', sub(value, 1, TOKEN_LENGTH), tostring(expires), capacity, epoch, state.generation, slots }
end

-- Returns the token's part of the permit's value and its expiry, if the lease has one.
function share.find(k, lease)
  local value = call('HGET', KEYS[k], lease)
  local expires = value and call('ZSCORE', KEYS[k + 2], lease)
  if expires and #value > PERMIT_SLOTS then
    return value, tonumber(expires)
  end
end

-- Extends a permit to this many milliseconds from now, unless it already lasts longer. Returns its expiry.
function share.extend(k, lease, expires, milliseconds, retention)
  if now_ms + milliseconds > expires then
    expires = now_ms + milliseconds
    -- Deleting first lets Redis write even when memory is full: see `lock.clear`.
    call('HDEL', KEYS[k], '')
    call('ZADD', KEYS[k + 2], tostring(expires), lease)
    lock.keep(KEYS[k], retention, milliseconds)
    lock.keep(KEYS[k + 2], retention, milliseconds)
  end
  return expires
end

-- Makes a writer, whose permit has this value, a reader, and admits the waiters that fit now. Does nothing for a reader.
function share.downgrade(k, lease, value)
  local state, weight = share.read(k, 'm', 1), tonumber(sub(value, PERMIT_WEIGHT, PERMIT_SLOTS - 1))
  if weight > 1 then
    state.used = state.used - weight + 1
    local one = string.rep('0', UNITS_LENGTH - 1) .. '1'
    -- Deleting first lets Redis write even when memory is full: see `lock.clear`.
    call('HDEL', KEYS[k], '')
    call('HSET', KEYS[k], lease, sub(value, 1, PERMIT_WEIGHT - 1) .. one .. sub(value, PERMIT_SLOTS))
    call('ZADD', KEYS[k + 2], tostring(-state.used), 'u')
    pcall(share.serve, k, state)
  end
end

-- Returns true if a shared name has a holder.
function share.is_held(key)
  return call('HGET', key, 's') and call('ZCOUNT', key .. ':holders', tostring(now_ms), '+inf') > 0
end

-- Adds the state of a shared name and its holders, the soonest to expire first.
function share.describe(k, record, places, add)
  local key, holders, kind = KEYS[k], KEYS[k + 2], sub(record, 1, 1)
  local used, from = 0 - tonumber(call('ZSCORE', holders, 'u') or 0), tostring(now_ms)
  local function permit(lease)
    local value = call('HGET', key, lease) or string.rep('0', PERMIT_SLOTS)
    local weight = tonumber(sub(value, PERMIT_WEIGHT, PERMIT_SLOTS - 1))
    return value, weight, PERMIT_SLOTS + (kind == 's' and weight * SLOT_LENGTH or 0)
  end
  local ended = call('ZRANGEBYSCORE', holders, 'LEAST_EXPIRY', '(' .. from, 'LIMIT', '0', 'MOST_CLEARED')
  for i = 1, #ended do
    local _, weight = permit(ended[i])
    used = used - weight
  end
  local function number(first, last)
    return tostring(tonumber(sub(record, first, last)))
  end
  add('shared', kind, number(RECORD_CAPACITY, RECORD_EPOCH - 1), number(RECORD_EPOCH, RECORD_GENERATION - 1))
  add(sub(record, RECORD_GENERATION), tostring(used), tostring(call('ZCOUNT', holders, from, '+inf')))
  local live = call('ZRANGEBYSCORE', holders, from, '+inf', 'WITHSCORES', 'LIMIT', '0', tostring(places))
  add(tostring(#live / 2))
  for i = 1, #live, 2 do
    local value, weight, label = permit(live[i])
    add(sub(value, 1, TOKEN_LENGTH), live[i + 1], tostring(weight), sub(value, PERMIT_SLOTS, label - 1), sub(value, label))
  end
end

-- Ends the permit with this token for an operator, and admits the waiters that fit now. The holder gets a push.
function share.force(k, record, token)
  local state, fields = share.read(k, record, 1), call('HGETALL', KEYS[k])
  for i = 1, #fields, 2 do
    local lease, value = fields[i], fields[i + 1]
    if #lease == LEASE_LENGTH and sub(value, 1, TOKEN_LENGTH) == token then
      publish(KEYS[k], sub(value, PERMIT_CLIENT, PERMIT_WEIGHT - 1), 'revoked', lease, token)
      share.drop(k, state, lease)
      pcall(share.serve, k, state)
      return { 'released' }
    end
  end
  return { 'gone' }
end

-- Admits waiters in order while the first of them fits, up to a limit and not past `own`, which is the member of the
-- calling lease. Returns the first waiter that was not admitted, nil if nobody waits or nothing is free, and false if it
-- cannot tell.
-- Each waiter gets a push and has the window to confirm its permit, as with `line.grant`. But the first one of the
-- calling client, if `state.client` says which that is, gets its time to live, and the reply in `state.handed`. One whose
-- weight is above the capacity leaves the line, and its push makes it ask again.
function share.serve(k, state, own)
  local key, queue, first = KEYS[k], KEYS[k + 1], nil
  for _ = 1, MOST_ADMITTED do
    if state.used >= state.capacity and not state.is_resized then
      return nil
    end
    first = line.first(k, state)
    local weight = first and share.weight(first, CLAIM_KIND)
    if not first or first == own or weight <= state.capacity and state.used + weight > state.capacity then
      return first
    end
    local client, window, lease = line.parse(first, queue)
    if weight > state.capacity then
      line.leave(queue, first)
      publish(key, client, 'completed', lease, '1')
    elseif client == state.client and not state.handed then
      local handed = share.take(k, state, first, tonumber(sub(first, 1, CLAIM_WINDOW - 1)))
      line.leave(queue, first)
      handed[1] = lease
      state.handed = { 'handed_over', unpack(handed) }
    else
      local promised, token = tostring(now_ms + math.floor(window / 2)), share.take(k, state, first, window)[2]
      line.leave(queue, first)
      if publish(key, client, 'granted', lease, token, promised, now_digits) == 0 then
        call('ZADD', KEYS[k + 2], promised, lease)
      end
    end
  end
  return first
end
