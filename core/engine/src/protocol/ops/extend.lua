-- Extends the permit of a lease if it has this token; otherwise changes nothing. Never shortens it.
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
  return { 'renewed', tostring(share.extend(k, lease, expires, milliseconds, retention)) }
end
