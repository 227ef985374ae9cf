-- Frees the lock if this lease has it.
--
-- keys   lock
-- args   lease
-- reply  released
--        gone
--        taken
local function release(k, a)
  local lock = KEYS[k]
  local holder = holder_of(lock)
  if not holder then
    return { 'gone' }
  end
  if holder.lease ~= ARGV[a] then
    return { 'taken' }
  end
  call('DEL', lock)
  return { 'released' }
end
