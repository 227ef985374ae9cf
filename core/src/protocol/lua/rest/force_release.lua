-- Frees the lock for the next in line if this tenure has it, whoever that is, and tells the holder.
--
-- keys   lock, token, queue, alive
-- args   token
-- reply  released
--        gone
--        taken
local function force_release(k, a)
  local holder = holder_of(KEYS[k])
  if not holder then
    free(k)
    return { 'gone' }
  elseif holder.token ~= ARGV[a] then
    return { 'taken' }
  end
  free(k)
  publish(k, holder.client, 'revoked', holder.lease, holder.token)
  return { 'released' }
end
