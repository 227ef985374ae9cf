-- The holder of a lock, or nil if it is free.
local function holder_of(key)
  local value = call('GET', key)
  if not value then
    return nil
  end
  local lease, client, token, kind, label = string.match(value, '^(%x+):(%x+):(%d+):([rl]):(.+)$')
  if not lease or #lease ~= LEASE_LENGTH or #client ~= CLIENT_LENGTH or not is_token(token) then
    fail('WRONGTYPE the key holds a value that is not a lock', key)
  end
  return { lease = lease, client = client, token = token, kind = kind, label = label }
end

-- Makes a lock last until this millisecond, if it would not anyway; returns until when it lasts.
local function extend(key, expires)
  local kept = call('PEXPIRETIME', key)
  if kept >= tonumber(expires) then
    return digits(kept)
  end
  call('PEXPIREAT', key, expires)
  return expires
end

-- When a lock expires, in milliseconds; -1 if somebody took its expiry away.
local function expiry_of(key)
  return digits(call('PEXPIRETIME', key))
end
