-- Publishes a push to a client and returns the number of receivers. Other users may subscribe and publish on
-- the channel, so a push names only half of the lease ID and is sealed with all of it. For a cluster client
-- with shard subscriptions, it publishes first on the lock's own channel, which stays with this node. If
-- nobody receives that (yet), it publishes on the client's channel, which reaches all nodes.
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
