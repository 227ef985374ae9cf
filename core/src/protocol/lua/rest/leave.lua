-- As ../release.lua, of a lock that is not this lease's.
local function leave(k, member)
  local is_held = holder_of(KEYS[k])
  leave_line(k, member)
  if is_held then
    return { 'taken' }
  end
  free(k)
  return { 'gone' }
end
