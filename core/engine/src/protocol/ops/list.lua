-- Lists some of the held locks: one step of a SCAN. Reads the keys that it finds.
--
-- keys   none
-- text   cursor (0 to begin), pattern of the lock keys
-- reply  listed, next cursor (0 at the end), lock keys…
local function list(_, op)
  local cursor = string.match(sub(op, OP_REST, OP_REST + CURSOR_LENGTH - 1), '^0*(%d+)$')
  local pattern = sub(op, OP_REST + CURSOR_LENGTH)
  local scan = run('SCAN', cursor, 'MATCH', pattern, 'COUNT', 'MOST_SCANNED', 'TYPE', 'hash')
  local step = checked(scan, '')
  local fields = { 'listed', step[1] }
  for _, key in ipairs(step[2]) do
    -- Most keys only remember a token, and some hashes may not be locks.
    local is_shared, is_held = pcall(share.is_held, key)
    local is_lock, state = pcall(lock.read, key)
    if is_shared and is_held or is_lock and state.is_held then
      fields[#fields + 1] = key
    end
  end
  return fields
end
