-- What enter.lua leaves to here: to enter.
local function enter(k, op)
  local key = KEYS[k]
  local fields, mark, known, count = call('HGETALL', key), {}, { 'entered' }, 0
  for i = 1, #fields, 2 do
    mark[fields[i]] = fields[i + 1]
    count = count + (#fields[i] == 1 + LEASE_LENGTH and 1 or 0)
  end
  local process = string.match(checked(run('INFO', 'server'), key), 'run_id:(%x+)') or ''
  local id, longest = mark.id, tonumber(sub(op, OP_TTL, OP_REST - 1))
  if not id or #id ~= LEASE_LENGTH or mark.run ~= process or not tonumber(mark.since) then
    id, mark.since = sub(op, OP_REST, ENTER_KNOWN - 1), tostring(now_ms)
    call('HSET', key, 'id', id, 'run', process, 'since', mark.since, 'saved', '')
  end
  if longest > (tonumber(mark.longest) or 0) then
    call('HSET', key, 'longest', tostring(longest))
  else
    longest = tonumber(mark.longest)
  end
  for at = ENTER_KNOWN, #op, 1 + LEASE_LENGTH do
    local field = 'k' .. sub(op, at + 1, at + LEASE_LENGTH)
    if sub(op, at, at) == '-' then
      call('HDEL', key, field)
      mark[field] = nil
    elseif count >= MOST_KNOWN then
      fail('ERR too many incarnations of servers are known', key)
    else
      call('HSET', key, field, '')
      mark[field] = ''
    end
  end
  local age = now_ms - tonumber(mark.since)
  known[2], known[3], known[4] = id, tostring(age < 0 and 0 or age), tostring(longest)
  for name in pairs(mark) do
    if #name == 1 + LEASE_LENGTH and sub(name, 1, 1) == 'k' then
      known[#known + 1] = sub(name, 2)
    end
  end
  return known
end
