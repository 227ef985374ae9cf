-- Frees the lock, for the next in line, if this tenure has it, whoever that is; the holder gets a push.
--
-- keys   lock, token, queue, alive
-- args   token
-- reply  released
--        gone
--        taken
local function force_release(k, a)
  local lock, token = KEYS[k], ARGV[a]
  local holder = holder_of(lock)
  if not holder then
    free(k)
    return { 'gone' }
  elseif holder.token ~= token then
    return { 'taken' }
  end
  free(k)
  publish(k, holder.client, 'revoked', holder.lease, holder.token)
  return { 'released' }
end
