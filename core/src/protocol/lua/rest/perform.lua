-- One operation, by its letter. Returns the fields of its reply, and how many keys it has; nothing if
-- there is none of that letter.
local function perform(letter, k, op, seen)
  local operation, keys
  --> operation, keys of each letter
  if not operation then
    return nil
  end
  local done, fields = pcall(operation, k, op, seen)
  if not done then
    fields = failure(KEYS[k], fields)
  end
  return fields, keys
end

return perform
