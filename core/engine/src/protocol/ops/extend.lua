-- Extends the permit of a lease if it has this token; otherwise changes nothing. Never shortens it. With the letter W,
-- the permit is a writer's and becomes a reader's, and readers that wait next are admitted.
--
-- keys   lock, line, holders
-- text   retention, lease, token
-- reply  renewed, expiry (ms)
--        gone
local function extend(k, op)
  local lease = sub(op, RENEW_FIELD, RENEW_FIELD + LEASE_LENGTH - 1)
  local value, expires = share.find(k, lease)
  if not value or expires < now_ms or sub(value, 1, TOKEN_LENGTH) ~= sub(op, RENEW_FIELD + LEASE_LENGTH) then
    return { 'gone' }
  end
  local milliseconds, retention = tonumber(sub(op, OP_TTL, OP_REST - 1)), tonumber(sub(op, OP_REST, RENEW_FIELD - 1))
  expires = share.extend(k, lease, expires, milliseconds, retention)
  if sub(op, 1, 1) == 'W' then
    share.downgrade(k, lease, value)
  end
  return { 'renewed', tostring(expires) }
end
