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
  local is_held = value and string.sub(value, 1, 33) == string.sub(claim, 1, 33)
  -- Nobody waits: most release so.
  if is_held and redis.call('EXISTS', KEYS[k + 2]) == 0 then
    redis.call('DEL', lock)
    return { 'released' }
  end
  return rest().release(k, a)
end
