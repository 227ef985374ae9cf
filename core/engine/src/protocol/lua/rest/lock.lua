-- The hash of a name: the holder and the last token.

local function is_token(text)
  return tonumber(text) >= 1 and tonumber(text) <= MAX_TOKEN
end

-- Returns true if a field and its value are a tenure that clients can read. Extracting a substring costs as
-- much as a command, so most checks match in place.
function lock.is_tenure(field, value)
  return #field == FIELD_LENGTH
    and not string.find(field, '%X')
    and not string.find(field, '%D', FIELD_TOKEN)
    and (string.find(field, '^[1-8]', FIELD_TOKEN) or is_token(sub(field, FIELD_TOKEN)))
    and string.find(value, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%x')
    and string.find(value, '^%x+[rlj].', VALUE_CLIENT)
    and (string.find(value, '^[rl]', VALUE_KIND) or lock.tick(value, VALUE_KIND))
end

-- Returns what a name is used for whose record of a shared name, or whose claim, begins with this kind.
function lock.use(kind)
  local uses = { s = 'a semaphore', u = 'a quota', m = 'readers and writers' }
  return uses[sub(kind, 1, 1)] or 'something else'
end

-- Returns the digits of the tick in the text of a runner, whose kind is at this place, or nil if it is not one.
function lock.tick(text, kind)
  local tick = sub(text, kind + 1, kind + TICK_LENGTH)
  return #text > kind + TICK_LENGTH and sub(text, kind, kind) == 'j' and not string.find(tick, '%D') and tick or nil
end

-- Returns the last token of the hash, and true if it is marked, from its text.
function lock.last(text, key)
  local last, mark = string.match(text, '^(%d+)(%+?)$')
  if not last or #last > TOKEN_LENGTH or tonumber(last) > MAX_TOKEN then
    fail('WRONGTYPE the key holds a value that is not a token', key)
  end
  return tonumber(last), mark == '+'
end

-- Reads the hash, unless `seen` already holds it. Fails if another program wrote to the hash.
function lock.read(key, seen)
  local fields = type(seen) == 'table' and seen or call('HGETALL', key)
  local state = { is_new = #fields == 0, last = nil, field = nil, value = nil, expires = nil, is_held = false }
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == 't' then
      state.last, state.is_brief = lock.last(value, key)
    elseif field == 'w' or field == 'x' then
      state.is_flagged = true
    elseif field == 'd' then
      if #value < DONE_LABEL - 1 or string.find(sub(value, 1, DONE_LABEL - 1), '%D') then
        fail('WRONGTYPE the key holds a value that is not a completed tick', key)
      end
      state.done, state.done_tick = value, sub(value, DONE_TICK, DONE_TIME - 1)
    elseif field == 'y' and string.find(value, '^%d%d%d%d%d%d%d%d%d%d%d%d%d.') then
      state.request = value
    else
      state.stored = field
      if #field > FIELD_LENGTH then
        field = string.match(field, '^(.*)y$') or field
      end
      if state.field or not lock.is_tenure(field, value) then
        local record = call('HGET', key, 's')
        if record then
          fail('WRONGTYPE the name is used for ' .. lock.use(record) .. ', not for a lock or a job', key)
        end
        fail('WRONGTYPE the key holds a value that is not a lock', key)
      end
      state.field, state.value, state.expires = field, value, tonumber(sub(value, 1, EXPIRY_LENGTH))
      -- The tenure is held through the millisecond of its expiry, as a key exists through its own.
      state.is_held = state.expires >= now_ms
      state.tick = lock.tick(value, VALUE_KIND)
    end
  end
  return state
end

-- Returns the lease ID of the tenure, if there is one.
function lock.lease(state)
  return state.field and sub(state.field, 1, FIELD_TOKEN - 1)
end

-- Returns until when the holder is asked to yield (ms). Returns false or nil if no request is pending.
function lock.wanted_until(state)
  local ends = state.request and tonumber(sub(state.request, 1, EXPIRY_LENGTH))
  return ends and ends >= now_ms and ends
end

function lock.client(state)
  return sub(state.value, VALUE_CLIENT, VALUE_KIND - 1)
end

-- Flags the lock: somebody may be waiting. The common cases rely on this. A missing hash gets no flag,
-- because a hash of flags alone would never expire; there the common cases check the line itself.
function lock.flag(key, state)
  if not state.is_new then
    call('HSET', key, 'w', '', 'x', '')
  end
end

-- Deletes the current or expired tenure, if there is one. After a deletion, Redis lets the script write even
-- when memory is full.
function lock.clear(key, state)
  if state.request then
    call('HDEL', key, state.stored or '', 'y')
  else
    call('HDEL', key, state.stored or '')
  end
  state.field, state.stored, state.request, state.is_held, state.tick = nil, nil, nil, nil, nil
end

-- Sets the expiry of a key whose tenure lasts this many milliseconds, so that the key outlives the tenure by
-- the retention. It never shortens the expiry, and gives none to a key without one: GT. A retention of 0
-- means forever. Only a short retention or a long tenure gets its exact time; others get extra time, so that
-- few operations set an expiry.
function lock.keep(key, retention, milliseconds, is_new)
  local kept = KEPT_LONGER_MS
  if retention < LEAST_PLAIN_RETENTION_MS or milliseconds > MOST_PLAIN_TTL_MS then
    kept = milliseconds
  end
  if retention == 0 then
    call('PERSIST', key)
  elseif is_new then
    call('PEXPIRE', key, tostring(retention + kept))
  else
    call('PEXPIRE', key, tostring(retention + kept), 'GT')
  end
end

-- Returns the next token, how it is remembered, and whether the expiry of the key must be set for a tenure of this many
-- milliseconds. That is done once per step of the clock. The last token tells in which step it was done, unless it is
-- marked: then its step is not that of the clock, or the key may expire soon.
--
-- With a retention, the token is at least the server's clock, or the proposed token instead of the clock. So
-- tokens grow even if the last one was lost.
function lock.next(key, state, retention, milliseconds, proposed)
  local last, token, clock = state.last or 0, proposed or now_digits, proposed and tonumber(proposed) or now
  if retention == 0 or last >= clock then
    if last >= MAX_TOKEN then
      fail('ERR the token counter is used up', key)
    end
    token = string.format('%0' .. TOKEN_LENGTH .. '.0f', last + 1)
  end
  local step_us = KEPT_STEP_MS * 1000
  local began = clock - clock % step_us
  local is_short = retention < LEAST_PLAIN_RETENTION_MS
  local is_due = state.is_brief or is_short or milliseconds > MOST_PLAIN_TTL_MS
    or last < began or last >= began + step_us
  local is_brief = retention ~= 0 and (is_short or tonumber(token) >= began + step_us)
  return token, is_brief and token .. '+' or token, is_due
end

-- Gives the lock, which is free or being reclaimed, to a claim for this many milliseconds. Returns the token
-- and the expiry. `waiting` is true if others may wait and the lock is not flagged yet.
function lock.take(key, state, member, milliseconds, waiting, proposed)
  local retention = tonumber(sub(member, CLAIM_RETENTION, CLAIM_LEASE - 1))
  local token, remembered, is_due = lock.next(key, state, retention, milliseconds, proposed)
  if state.field then
    lock.clear(key, state)
  end
  local field, expires = sub(member, CLAIM_LEASE, CLAIM_CLIENT - 1) .. token, tostring(now_ms + milliseconds)
  local value = expires .. sub(member, CLAIM_CLIENT)
  if waiting then
    call('HSET', key, 't', remembered, field, value, 'w', '', 'x', '')
  else
    call('HSET', key, 't', remembered, field, value)
  end
  if not state.done and lock.tick(member, CLAIM_KIND) then
    -- Marks the name as a job's before its first tick is completed.
    call('HSET', key, 'd', string.rep('0', DONE_LABEL - 1))
  end
  if is_due then
    lock.keep(key, retention, milliseconds, state.is_new)
  end
  state.is_new, state.field, state.stored = false, field, field
  state.value, state.expires = value, now_ms + milliseconds
  return token, expires
end

-- Extends a tenure to this many milliseconds from now, unless it already lasts longer. Returns its expiry.
-- Works even when memory is full: see `clear`.
function lock.extend(key, state, milliseconds, retention)
  if now_ms + milliseconds > state.expires then
    state.expires = now_ms + milliseconds
    call('HDEL', key, '')
    call('HSET', key, state.stored, tostring(state.expires) .. sub(state.value, VALUE_CLIENT))
    if retention ~= 0 then
      lock.keep(key, retention, milliseconds)
    end
  end
  return tostring(state.expires)
end
