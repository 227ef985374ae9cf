-- Beginning and lengthening tenures.

local function is_brief(retention)
  return retention ~= 0 and retention < LEAST_PLAIN_RETENTION_MS
end

-- Keeps the key of a tenure of so many milliseconds for as long as its token is to be remembered, and
-- no shorter than it would be kept anyway: GT, which does nothing to a key that is kept for ever. A
-- retention of 0 is for ever.
local function keep(key, retention, milliseconds, is_new)
  local kept = KEPT_LONGER_MS
  if is_brief(retention) or milliseconds > MOST_PLAIN_TTL_MS then
    kept = milliseconds
  end
  if retention == 0 then
    call('PERSIST', key)
  elseif is_new then
    call('PEXPIRE', key, digits(retention + kept))
  else
    call('PEXPIRE', key, digits(retention + kept), 'GT')
  end
end

-- The token after the last. With a retention it is at least the clock, so that it grows even if the
-- last was lost.
local function next_token(key, last, retention)
  local token = (last or 0) + 1
  if retention ~= 0 and token < now then
    token = now
  end
  if token > MAX_TOKEN then
    fail('ERR the token counter is used up', key)
  end
  return token
end

-- Gives the lock, which is free or is taken away, to a claim for this many milliseconds. Returns the
-- token and when the lock expires. `waiting` says that others may wait, if that is not known yet.
local function take(key, state, member, milliseconds, waiting)
  local retention = tonumber(sub(member, CLAIM_RETENTION, CLAIM_LEASE - 1))
  local number, last = next_token(key, state.last, retention), state.last
  local token = digits(number)
  if state.field then
    clear(key, state)
  end
  state.field = sub(member, CLAIM_LEASE, CLAIM_CLIENT - 1) .. string.format('%0' .. TOKEN_LENGTH .. '.0f', number)
  state.expires = now_ms + milliseconds
  state.value = tostring(state.expires) .. sub(member, CLAIM_CLIENT)
  local remembered = is_brief(retention) and token .. '+' or token
  if waiting then
    call('HSET', key, 't', remembered, state.field, state.value, 'w', '', 'x', '')
  else
    call('HSET', key, 't', remembered, state.field, state.value)
  end
  if not last or last < step_began or state.is_brief or is_brief(retention) or retention == 0
    or milliseconds > MOST_PLAIN_TTL_MS then
    keep(key, retention, milliseconds, state.is_new)
  end
  state.is_new = false
  return token, tostring(state.expires)
end

-- Makes a tenure last until this many milliseconds from now, if it would not anyway; returns until
-- when it lasts. It does so even when memory is full: see `serve`.
local function extend(key, state, milliseconds, retention)
  if now_ms + milliseconds > state.expires then
    state.expires = now_ms + milliseconds
    call('HDEL', key, '')
    call('HSET', key, state.field, tostring(state.expires) .. sub(state.value, VALUE_CLIENT))
    if retention ~= 0 then
      keep(key, retention, milliseconds)
    end
  end
  return tostring(state.expires)
end
