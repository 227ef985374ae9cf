-- An operation that is not among the common ones, and how many keys and arguments it has.
local function find(name)
  local operation, keys, args
  --> operation, keys, args of the other operations
  return operation, keys, args
end

-- What `rest()` returns.
return {
  extend = extend,
  failure = failure,
  find = find,
  free = free,
  holder_of = holder_of,
  next_token = next_token,
  --> what the common operations leave to here
}
