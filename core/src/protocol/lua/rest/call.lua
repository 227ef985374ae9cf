-- Commands and their errors. A failing command ends its own operation and not the batch.

local function fail(text, key)
  error({ text = text, key = key })
end

local function call(command, key, ...)
  local result = redis.pcall(command, key, ...)
  if type(result) == 'table' and result.err then
    fail(result.err, key)
  end
  return result
end

-- The reply of an operation whose first key this is, and what ended it.
local function failure(key, why)
  if type(why) ~= 'table' then
    why = { text = tostring(why) }
  end
  return { 'error', why.text or why.err, why.key or key or '' }
end
