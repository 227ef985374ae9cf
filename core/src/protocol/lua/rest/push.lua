-- Publishes a push to a client, on its channel; returns how many heard it. Others may listen and
-- publish on that channel, so a push names only half of the lease id, and is sealed with all of it.
local function publish(key, client, what, lease, token, ...)
  token = string.match(token, '^0*(.+)$')
  local message = table.concat({ what, sub(lease, 1, HALF_LENGTH), token, ... }, ':')
  local namespace = string.match(key, '^{([^:]*):')
  local channel = 'leasehold:' .. namespace .. ':' .. client
  local seal = redis.sha1hex(lease .. ':' .. message)
  local heard = run('PUBLISH', channel, message .. ':' .. seal)
  return type(heard) == 'number' and heard or 0
end
