-- As ../release.lua, of a lock that is waited for or not this lease's.
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
