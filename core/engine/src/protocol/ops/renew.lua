-- Extends the lock if this tenure, which is a lease with its token, still has it, and takes nothing
-- otherwise. It never shortens: an older command may come again after one that asked for longer.
--
-- keys   lock
-- text   retention, lease, token; the floor of later tokens, if there is one
-- common it lasts for the time to live that it asked for; there is no floor
-- reply  renewed, expiry (ms)
--        gone
--        taken
--> the expiry
local field = sub(op, RENEW_FIELD)
local value = run('HGET', key, field)
local kept = type(value) == 'string' and tonumber(sub(value, 1, EXPIRY_LENGTH))
if kept and kept >= now_ms and kept < expires then
  -- It is refused when memory is full.
  seen = run('HSET', key, field, expires_digits .. sub(value, VALUE_CLIENT)) ~= 0
  if kept < expires - expires % KEPT_STEP_MS then
    run('PEXPIRE', key, sub(op, OP_REST, RENEW_FIELD - 1) + KEPT_LONGER_MS, 'GT')
  end
else
  seen = value or true
end
