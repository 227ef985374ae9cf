-- Frees the lock, for the next in line, if this lease has it; otherwise the claim leaves the line.
--
-- keys   lock, token, queue, alive
-- args   claim
-- reply  released
--        gone
--        taken
local function release(k, a)
  local lock, claim = KEYS[k], ARGV[a]
  local value = redis.call('GET', lock)
  if not value or string.sub(value, 1, LEASE_LENGTH + 1) ~= string.sub(claim, 1, LEASE_LENGTH + 1) then
    return rest().release(k, claim)
  elseif redis.call('EXISTS', KEYS[k + 2]) == 0 then
    -- Nobody waits.
    redis.call('DEL', lock)
  else
    rest().free(k)
  end
  return { 'released' }
end
