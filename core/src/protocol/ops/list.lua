-- One step of a walk over the locks that are held.
--
-- keys   none
-- args   cursor (0 to begin), pattern of the lock keys
-- reply  listed, next cursor (0 at the end), lock keys…
local function list(_, a)
  local cursor, pattern = ARGV[a], ARGV[a + 1]
  local step = redis.pcall('SCAN', cursor, 'MATCH', pattern, 'COUNT', MOST_SCANNED)
  if step.err then
    fail(step.err, '')
  end
  local reply = { 'listed', step[1] }
  for _, lock in ipairs(step[2]) do
    reply[#reply + 1] = lock
  end
  return reply
end
