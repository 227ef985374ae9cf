-- Frees the lock if this lease has it, for the next in line; else the claim leaves the line.
--
-- keys   lock, token, queue, alive
-- args   claim
-- reply  released
--        gone
--        taken
local function release(k, a)
  local lock, claim = KEYS[k], ARGV[a]
  local value = redis.call('GET', lock)
  if not value or string.sub(value, 1, 33) ~= string.sub(claim, 1, 33) then
    return rest().leave(k, claim)
  elseif redis.call('EXISTS', KEYS[k + 2]) == 0 then
    -- Nobody waits.
    redis.call('DEL', lock)
  else
    rest().free(k)
  end
  return { 'released' }
end
