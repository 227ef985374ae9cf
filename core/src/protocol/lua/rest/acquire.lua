-- As ../acquire.lua, of a lock that is held or waited for.
local function acquire(k, a)
  local lock, member, ttl = KEYS[k], ARGV[a], tonumber(ARGV[a + 1])
  local claim, holder = parse_claim(member, KEYS[k]), holder_of(lock)
  local takes, first = false, nil
  if holder and holder.lease == claim.lease then
    return { 'held', holder.token, extend(lock, digits(now_ms + ttl)) }
  elseif holder then
    local same_owner = claim.kind == 'r' and holder.kind == 'r' and holder.label == claim.label
    if same_owner and holder.client ~= claim.client then
      if ARGV[a + 3] == '?' then
        return { 'reclaimable', holder.token }
      end
      takes = ARGV[a + 3] == holder.token
    end
  else
    first = first_in_line(k)
    if first == false then
      -- Somebody behind the dead may be alive, and is not overtaken: the lock stays free.
      return { 'busy', digits(now_ms), '0' }
    end
    takes = not first or first == member
    if first then
      -- Nothing is there, but what follows is then also done when memory is full: see `free`.
      call('DEL', lock)
    end
  end
  if takes then
    local token, expires = take(k, member, ttl)
    if holder then
      publish(k, holder.client, 'superseded', holder.lease, holder.token)
    end
    if holder or first then
      -- What was taken is told, whatever is in the line's keys.
      pcall(leave_line, k, member)
    end
    return { 'held', token, expires }
  end
  if first then
    grant(k, first)
  end
  local place = 0
  if ARGV[a + 2] == '1' then
    place = wait_in_line(k, member, claim.window)
    if not place then
      return { 'full', tostring(MAX_WAITERS) }
    end
  end
  return { 'busy', expiry_of(lock), tostring(place) }
end
