-- The loop over the batch: see the top of the script.
local operations = {
  acquire = { run = acquire, keys = 4, args = 3 },
  renew = { run = renew, keys = 1, args = 3 },
  release = { run = release, keys = 4, args = 1 },
  force_release = { run = force_release, keys = 4, args = 0 },
  inspect = { run = inspect, keys = 4, args = 1 },
  list = { run = list, keys = 0, args = 2 },
}

local function execute(operation, key, arg)
  if now > tonumber(ARGV[arg + 1]) then
    return { 'late' }
  end
  local done, result = pcall(operation.run, key, arg + 2)
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
  local operation = operations[ARGV[arg]]
  if not operation then
    return redis.error_reply('ERR leasehold: unknown operation')
  end
  local fields = execute(operation, key, arg)
  reply[#reply + 1] = tostring(#fields)
  for i = 1, #fields do
    reply[#reply + 1] = fields[i]
  end
  key = key + operation.keys
  arg = arg + 2 + operation.args
end
return reply
