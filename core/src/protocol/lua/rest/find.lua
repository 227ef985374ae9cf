-- An operation that is seldom asked for, and how many keys and arguments it has.
local function find(name)
  if name == 'force_release' then
    return force_release, 4, 1
  elseif name == 'inspect' then
    return inspect, 4, 1
  elseif name == 'list' then
    return list, 0, 2
  end
end

-- What `rest()` gives.
return {
  acquire = acquire,
  extend = extend,
  failure = failure,
  find = find,
  free = free,
  holder_of = holder_of,
  leave = leave,
  next_token = next_token,
}
