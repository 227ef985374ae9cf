-- One operation of the batch, by its letter. Returns its part of the reply behind the time, and how many
-- keys it has; nothing if there is none of that letter. An error that ends it names the key, or is of its
-- first.
function rest(number, letter, k, op, seen)
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
  local other = { now_digits, tostring(number), tostring(#fields) }
  for i = 1, #fields do
    other[i + 3] = fields[i]
  end
  return other, keys
end
