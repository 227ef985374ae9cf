-- Ends the permit of a lease, or removes its claim from the line, and admits the waiters that fit now.
--
-- keys   lock, line, holders
-- text   as that of a release
-- reply  released
--        handed_over, lease, and the fields after `admitted` in the reply of admit.lua: released, and another lease of the
--          same client has a permit
--        gone
local function vacate(k, op)
  local lease = sub(op, RELEASE_FIELD, RELEASE_TOKEN - 1)
  local state = share.read(k, op, RELEASE_OWNER)
  local is_held = share.drop(k, state, lease)
  if is_held then
    state.client = sub(op, RELEASE_CLIENT, RELEASE_OWNER - 1)
  else
    line.leave(KEYS[k + 1], sub(op, OP_TTL, RELEASE_TOKEN - 1) .. sub(op, RELEASE_CLIENT))
  end
  -- A departure does not say what capacity a name without data has. Its waiters learn that when they ask.
  if not state.is_new then
    -- An error in the line affects only waiters, and must not keep the permit from ending.
    pcall(share.serve, k, state)
  end
  return state.handed or { is_held and 'released' or 'gone' }
end
