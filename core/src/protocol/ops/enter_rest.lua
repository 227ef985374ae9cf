-- What enter.lua leaves to here: to enter.
local function enter(k, op)
  local key = KEYS[k]
  local fields, mark = call('HGETALL', key), {}
  for i = 1, #fields, 2 do
    mark[fields[i]] = fields[i + 1]
  end
  local process = string.match(checked(run('INFO', 'server'), key), 'run_id:(%x+)') or ''
  local id, longest = mark.id, tonumber(sub(op, OP_TTL, OP_REST - 1))
  if not id or #id ~= LEASE_LENGTH or mark.run ~= process or not tonumber(mark.since) then
    id, mark.since = sub(op, OP_REST, ENTER_KNOWN - 1), tostring(now_ms)
    call('HSET', key, 'id', id, 'run', process, 'since', mark.since, 'saved', '')
  end
  if not mark['k' .. id] or not tonumber(mark.longest) then
    mark.longest = tostring(longest)
    call('HSET', key, 'longest', mark.longest)
  end
  -- Notes an incarnation as of now. It takes the place of the one that was noted longest ago if there
  -- are too many of its kind.
  local function note(kind, incarnation, most)
    local count, oldest, since = 0, nil, nil
    for field, noted in pairs(mark) do
      if #field == 1 + LEASE_LENGTH and sub(field, 1, 1) == kind and field ~= kind .. incarnation then
        count, noted = count + 1, tonumber(noted) or 0
        if not oldest or noted < since or noted == since and field < oldest then
          oldest, since = field, noted
        end
      end
    end
    if count >= most then
      call('HDEL', key, oldest)
      mark[oldest] = nil
    end
    mark[kind .. incarnation] = tostring(now_ms)
    call('HSET', key, kind .. incarnation, mark[kind .. incarnation])
  end
  local function drop(field)
    call('HDEL', key, field)
    mark[field] = nil
  end
  for at = ENTER_KNOWN, tonumber(mark.longest) == longest and #op or 0, 1 + LEASE_LENGTH do
    local what, incarnation = sub(op, at, at), sub(op, at + 1, at + LEASE_LENGTH)
    if what == '-' then
      drop('k' .. incarnation)
    elseif what == '+' then
      drop('w' .. incarnation)
      note('k', incarnation, MOST_KNOWN)
    elseif not mark['w' .. incarnation] then
      note('w', incarnation, MOST_WATCHED)
    end
  end
  local function age(since)
    return tostring(math.max(0, now_ms - (tonumber(since) or now_ms)))
  end
  local reply = { 'entered', id, age(mark.since), mark.longest }
  for name, noted in pairs(mark) do
    if #name == 1 + LEASE_LENGTH then
      reply[#reply + 1] = sub(name, 2) .. (sub(name, 1, 1) == 'w' and age(noted) or '')
    end
  end
  return reply
end
