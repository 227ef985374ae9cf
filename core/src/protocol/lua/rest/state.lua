-- What the hash of a name holds.

-- Reads it, unless it was `seen` before. What the client could not read is an error: it would
-- spoil the whole batch's reply.
local function read(key, seen)
  local fields = type(seen) == 'table' and seen or call('HGETALL', key)
  local state = { is_new = #fields == 0 }
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == 't' then
      local last, mark = string.match(value, '^(%d+)(%+?)$')
      if not last or #last > TOKEN_LENGTH or tonumber(last) > MAX_TOKEN then
        fail('WRONGTYPE the key holds a value that is not a token', key)
      end
      state.last, state.is_brief = tonumber(last), mark == '+'
    elseif field == 'w' or field == 'x' then
      state.is_flagged = true
    else
      local lease, token = sub(field, 1, FIELD_TOKEN - 1), sub(field, FIELD_TOKEN)
      local expires, client = sub(value, 1, VALUE_CLIENT - 1), sub(value, VALUE_CLIENT, VALUE_KIND - 1)
      local kind = sub(value, VALUE_KIND, VALUE_KIND)
      if state.field or #field ~= FIELD_LENGTH or #value < VALUE_LABEL
        or kind ~= 'r' and kind ~= 'l' or not string.find(lease .. client, '^%x+$')
        or not string.find(token .. expires, '^%d+$')
        or tonumber(token) < 1 or tonumber(token) > MAX_TOKEN then
        fail('WRONGTYPE the key holds a value that is not a lock', key)
      end
      state.field, state.value, state.lease, state.token = field, value, lease, digits(tonumber(token))
      state.expires = tonumber(expires)
      state.client, state.kind, state.label = client, kind, sub(value, VALUE_LABEL)
    end
  end
  -- It is over when the next millisecond begins, as the expiry of a key is.
  state.is_held = state.field and state.expires >= now_ms
  return state
end

-- Says that somebody may wait, which the common cases go by. A hash that holds nothing else would
-- stay for ever; for one that is not there they look at the line itself.
local function flag(key, state)
  if not state.is_new then
    call('HSET', key, 'w', '', 'x', '')
  end
end

-- Deletes the tenure that has it or had it, if there is one. After a deletion Redis lets the script
-- write even when memory is full.
local function clear(key, state)
  call('HDEL', key, state.field or '')
  state.field, state.is_held = nil, nil
end
