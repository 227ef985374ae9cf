-- Frees the lock if this lease has it, for the next in line; else the claim leaves the line.
--
-- keys   lock, token, queue, alive
-- args   claim
-- reply  released
--        gone
--        taken
local function release(k, a)
  local member = ARGV[a]
  local holder = holder_of(KEYS[k])
  if holder and holder.lease == string.sub(member, 1, 32) then
    free(k)
    return { 'released' }
  end
  leave(k, member)
  if holder then
    return { 'taken' }
  end
  free(k)
  return { 'gone' }
end
