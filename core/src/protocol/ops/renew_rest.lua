-- What renew.lua leaves to here: the tenure is over, lasts longer anyway, or its key is not kept as is
-- common.
local function renew(k, op, seen)
  local key = KEYS[k]
  checked(seen, key)
  local state = lock.read(key)
  if not state.is_held then
    return { 'gone' }
  elseif state.field ~= sub(op, RENEW_FIELD) then
    return { 'taken' }
  end
  local retention = tonumber(sub(op, OP_REST, RENEW_FIELD - 1))
  return { 'renewed', lock.extend(key, state, tonumber(sub(op, OP_TTL, OP_REST - 1)), retention) }
end
