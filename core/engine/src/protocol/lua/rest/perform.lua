-- Executes one operation, selected by its letter. Returns its part of the reply, after the time, and its
-- number of keys; nil if the letter is unknown. An error that ends the operation names the key it is about,
-- by default the operation's first key.
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
