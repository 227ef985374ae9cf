-- The loop over the batch: see the top of the script.

local made
function rest()
  made = made or make_rest()
  return made
end

local reply, length = { now_digits }, 1
local key, arg = 1, 1
while ARGV[arg] do
  local name, operation, keys, args = ARGV[arg]
  --> operation, keys, args of the common operations
  if not operation then
    operation, keys, args = rest().find(name)
    if not operation then
      return redis.error_reply('ERR leasehold: unknown operation')
    end
  end
  local done, fields
  if now > tonumber(ARGV[arg + 1]) then
    fields = { 'late' }
  else
    done, fields = pcall(operation, key, arg + 2)
    if not done then
      fields = rest().failure(KEYS[key], fields)
    end
  end
  local count = #fields
  reply[length + 1] = tostring(count)
  for i = 1, count do
    reply[length + 1 + i] = fields[i]
  end
  length = length + 1 + count
  key = key + keys
  arg = arg + 2 + args
end
return reply
