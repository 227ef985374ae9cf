-- Enters a server of a quorum, which enter.lua does not cover: notes what the locker knows, and returns the
-- server's state.
local function enter(k, op)
  local key = KEYS[k]
  local fields, mark = call('HGETALL', key), {}
  for i = 1, #fields, 2 do
    mark[fields[i]] = fields[i + 1]
  end
  local process = string.match(checked(run('INFO', 'server'), key), 'run_id:(%x+)') or ''
  local id, longest = mark.id, tostring(tonumber(sub(op, OP_TTL, OP_REST - 1)))
  if not id or #id ~= LEASE_LENGTH or mark.run ~= process or not tonumber(mark.since) then
    id, mark.since = sub(op, OP_REST, ENTER_KNOWN - 1), tostring(now_ms)
    call('HSET', key, 'id', id, 'run', process, 'since', mark.since, 'saved', '')
  end
  if not mark['k' .. id] or not tonumber(mark.longest) then
    mark.longest = longest
    call('HSET', key, 'longest', longest)
  end
  for at = ENTER_KNOWN, mark.longest == longest and #op or 0, 1 + LEASE_LENGTH do
    local what, name = sub(op, at, at), sub(op, at + 1, at + LEASE_LENGTH)
    local kind, most = 'k', MOST_KNOWN
    if what == '?' then
      kind, most = 'w', MOST_WATCHED
    else
      call('HDEL', key, 'k' .. name, 'w' .. name)
      mark['k' .. name], mark['w' .. name] = nil, nil
    end
    if what ~= '-' and not mark[kind .. name] then
      -- When there are too many, the one noted longest ago is dropped.
      local count, oldest = 0, nil
      for field, noted in pairs(mark) do
        if #field == 1 + LEASE_LENGTH and sub(field, 1, 1) == kind then
          count = count + 1
          if not oldest or noted < mark[oldest] or noted == mark[oldest] and field < oldest then
            oldest = field
          end
        end
      end
      if count >= most then
        call('HDEL', key, oldest)
        mark[oldest] = nil
      end
      mark[kind .. name] = tostring(now_ms)
      call('HSET', key, kind .. name, tostring(now_ms))
    end
  end
  local function age(since)
    return tostring(math.max(0, now_ms - (tonumber(since) or now_ms)))
  end
  local reply = { 'entered', id, age(mark.since), mark.longest }
  for field, noted in pairs(mark) do
    if #field == 1 + LEASE_LENGTH then
      reply[#reply + 1] = sub(field, 2) .. (sub(field, 1, 1) == 'w' and age(noted) or '')
    end
  end
  return reply
end
