-- One operation, by its letter. Returns the fields of its reply, and how many keys it has; nothing if
-- there is none of that letter. An error that ends it names the key, or is of its first.
function rest(letter, k, op, seen)
  local operation, keys
  --> operation, keys of each letter
  if not operation then
    return nil
  end
  local done, fields = pcall(operation, k, op, seen)
  if not done then
    local why = fields
    if type(why) ~= 'table' then
      why = { text = tostring(why) }
    end
    fields = { 'error', why.text or why.err, why.key or KEYS[k] or '' }
  end
  return fields, keys
end
