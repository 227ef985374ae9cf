-- Changes the capacity of a shared name, and admits the waiters that fit now. Ends no permit: while more is held than
-- the new capacity, nobody is admitted, and slots from the new capacity on are not given out again.
--
-- keys   lock, line, holders
-- text   retention, kind, capacity
-- reply  resized, epoch of the capacity
local function resize(k, op)
  local key, wanted = KEYS[k], sub(op, RESIZE_CAPACITY)
  local state = share.read(k, sub(op, RESIZE_KIND, RESIZE_KIND) .. wanted .. wanted, 1)
  local epoch = tonumber(sub(state.record, RECORD_EPOCH))
  if state.is_new or state.capacity ~= tonumber(wanted) then
    local retention = tonumber(sub(op, OP_REST, RESIZE_KIND - 1))
    epoch = epoch + 1
    state.capacity = tonumber(wanted)
    state.record = state.kind .. wanted .. string.format('%0' .. UNITS_LENGTH .. '.0f', epoch)
    local last = string.format('%0' .. TOKEN_LENGTH .. '.0f', state.last or 0)
    share.store(key, state, last .. '+')
    lock.keep(key, retention, 0, state.is_new)
    -- Waiters whose weight is above the capacity now must hear of it, even if nothing is free.
    state.is_new, state.is_brief, state.is_resized = false, true, true
    pcall(share.serve, k, state)
  end
  return { 'resized', tostring(epoch) }
end
