-- The cases of a release that release.lua does not cover: somebody may wait, or this tenure does not have the
-- lock.
local function release(k, op, deleted)
  local key = KEYS[k]
  checked(deleted, key)
  local state = lock.read(key)
  -- Three deleted fields are the tenure and both flags.
  if deleted == 3 or lock.lease(state) == sub(op, RELEASE_FIELD, RELEASE_TOKEN - 1) then
    local client = sub(op, RELEASE_CLIENT, RELEASE_CLIENT + CLIENT_LENGTH - 1)
    return line.serve(k, state, client) or { 'released' }
  end
  if deleted == 2 then
    lock.flag(key, state)
  end
  line.leave(KEYS[k + 1], sub(op, OP_TTL, RELEASE_TOKEN - 1) .. sub(op, RELEASE_CLIENT))
  if state.is_held then
    return { 'taken' }
  end
  line.serve(k, state)
  return { 'gone' }
end
