-- What acquire.lua leaves to here: the lock is held, or somebody waits for it.
local function acquire(k, a)
  local lock, member, ttl = KEYS[k], ARGV[a], tonumber(ARGV[a + 1])
  local waits, reclaims = ARGV[a + 2] == '1', ARGV[a + 3]
  local claim, holder = parse_claim(member, lock), holder_of(lock)
  local takes, first = false, nil
  if holder and holder.lease == claim.lease then
    return { 'held', holder.token, extend(lock, digits(now_ms + ttl)) }
  elseif holder then
    local same_owner = claim.kind == 'r' and holder.kind == 'r' and holder.label == claim.label
    if same_owner and holder.client ~= claim.client then
      if reclaims == '?' then
        return { 'reclaimable', holder.token }
      end
      takes = reclaims == holder.token
    end
  else
    first = first_in_line(k)
    if first == false then
      -- Somebody behind the dead may be alive and must not be overtaken: the lock stays free.
      return { 'busy', digits(now_ms), '0' }
    end
    takes = not first or first == member
    if first then
      -- There is nothing to delete, but after it Redis does the rest even when memory is full: see
      -- `free`.
      call('DEL', lock)
    end
  end
  if takes then
    local token, expires = take(k, member, ttl)
    if holder then
      publish(k, holder.client, 'superseded', holder.lease, holder.token)
    end
    if holder or first then
      -- The lock is taken, and the reply says so even if the line's keys hold something else.
      pcall(leave_line, k, member)
    end
    return { 'held', token, expires }
  end
  if first then
    grant(k, first)
  end
  local place = 0
  if waits then
    place = wait_in_line(k, member, claim.window)
    if not place then
      return { 'full', tostring(MAX_WAITERS) }
    end
  end
  return { 'busy', expiry_of(lock), tostring(place) }
end
