-- Extends the lock if this tenure (a lease with its token) still has it; otherwise changes nothing. Never
-- shortens the lease, because an older command may be repeated after one that asked for more time.
--
-- keys   lock
-- text   retention, lease, token; a floor for later tokens, if there is one
-- common the lease lasts for its time to live, and there is no floor
-- reply  renewed, expiry (ms)
--        wanted, expiry (ms), and of a request to yield: the end of its time (ms), label
--        gone
--        taken
--> the expiry
local field = sub(op, RENEW_FIELD)
local value = run('HGET', key, field)
local kept = type(value) == 'string' and tonumber(sub(value, 1, EXPIRY_LENGTH))
if kept and kept >= now_ms and kept < expires then
  -- Redis refuses this when memory is full; then the rest extends the lease.
  seen = run('HSET', key, field, expires_digits .. sub(value, VALUE_CLIENT)) ~= 0
  if kept < expires - expires % KEPT_STEP_MS then
    run('PEXPIRE', key, sub(op, OP_REST, RENEW_FIELD - 1) + KEPT_LONGER_MS, 'GT')
  end
else
  seen = value or true
end
