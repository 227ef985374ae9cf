-- What release.lua leaves to here: the lock is not this lease's.
local function release(k, claim)
  local is_held = holder_of(KEYS[k])
  leave_line(k, claim)
  if is_held then
    return { 'taken' }
  end
  free(k)
  return { 'gone' }
end
