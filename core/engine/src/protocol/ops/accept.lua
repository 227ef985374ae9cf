-- Gives the lock to a claim if a tenure (a lease with its token) has it, which its holder passed on. The claim goes ahead
-- of the line. If it already has the lock, only the expiry changes, which never gets shorter: so a retry is harmless.
-- Nobody is notified, because the former holder ended the tenure before.
--
-- keys   lock, line
-- text   the lease and the token of the tenure, the claim without its time to live
-- reply  held, token, expiry (ms)
--        gone
--        taken
local function accept(k, op)
  local key, state = KEYS[k], lock.read(KEYS[k])
  local member = sub(op, OP_TTL, OP_REST - 1) .. sub(op, ACCEPT_CLAIM)
  local milliseconds = tonumber(sub(member, 1, CLAIM_WINDOW - 1))
  if state.done then
    fail('WRONGTYPE the name is used for a job, not for a lock', key)
  elseif not state.is_held then
    return { 'gone' }
  elseif lock.lease(state) == sub(member, CLAIM_LEASE, CLAIM_CLIENT - 1) then
    local retention = tonumber(sub(member, CLAIM_RETENTION, CLAIM_LEASE - 1))
    return { 'held', sub(state.field, FIELD_TOKEN), lock.extend(key, state, milliseconds, retention) }
  elseif state.field ~= sub(op, OP_REST, ACCEPT_CLAIM - 1) then
    return { 'taken' }
  end
  local token, expires = lock.take(key, state, member, milliseconds)
  -- The lock is taken, and the reply must say so even if the line's key holds something else.
  pcall(line.leave, KEYS[k + 1], member)
  return { 'held', token, expires }
end
