-- Publishes a push to a client, on its channel; returns how many heard it. Others may listen and
-- publish on that channel, so a push names only half of the lease id, and is sealed with all of it. A
-- client of a cluster that listens at shards is told on the lock's own channel, which stays with this
-- node; if it does not hear that (yet), on the other, which goes to all nodes.
local function publish(key, client, what, lease, token, ...)
  token = string.match(token, '^0*(.+)$')
  local message = table.concat({ what, sub(lease, 1, HALF_LENGTH), token, ... }, ':')
  local namespace = string.match(key, '^{([^:]*):')
  local channel = 'leasehold:' .. namespace .. ':' .. client
  message = message .. ':' .. redis.sha1hex(lease .. ':' .. message)
  local heard = client >= 'FIRST_AT_SHARDS' and run('SPUBLISH', channel .. ':' .. key, message)
  if type(heard) ~= 'number' or heard == 0 then
    heard = run('PUBLISH', channel, message)
  end
  return type(heard) == 'number' and heard or 0
end
