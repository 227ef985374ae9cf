-- The loop over the batch: see the top of the script.

-- An operation, and how many keys and arguments it has. The script defines all that it uses anew on
-- each call, so there is no table of them, and what is seldom used is only defined when it is.
local function find(name)
  if name == 'renew' then
    return renew, 1, 3
  elseif name == 'acquire' then
    return acquire, 4, 3
  elseif name == 'release' then
    return release, 4, 1
  end
  local force_release, inspect, list = seldom()
  if name == 'force_release' then
    return force_release, 4, 0
  elseif name == 'inspect' then
    return inspect, 4, 1
  elseif name == 'list' then
    return list, 0, 2
  end
end

local function execute(operation, key, arg)
  if now > tonumber(ARGV[arg + 1]) then
    return { 'late' }
  end
  local done, result = pcall(operation, key, arg + 2)
  if done then
    return result
  end
  if type(result) ~= 'table' then
    result = { text = tostring(result) }
  end
  return { 'error', result.text or result.err, result.key or KEYS[key] or '' }
end

local reply = { digits(now) }
local key, arg = 1, 1
while arg <= #ARGV do
  local operation, keys, args = find(ARGV[arg])
  if not operation then
    return redis.error_reply('ERR leasehold: unknown operation')
  end
  local fields = execute(operation, key, arg)
  reply[#reply + 1] = tostring(#fields)
  for i = 1, #fields do
    reply[#reply + 1] = fields[i]
  end
  key = key + keys
  arg = arg + 2 + args
end
return reply
