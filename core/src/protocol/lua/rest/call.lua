-- Commands and their errors. A command that fails ends its own operation, not the batch.

local function fail(text, key)
  error({ text = text, key = key })
end

local function call(command, key, ...)
  local result = run(command, key, ...)
  if type(result) == 'table' and result.err then
    fail(result.err, key)
  end
  return result
end

-- The reply of an operation that an error ended; the key is the operation's first.
local function failure(key, why)
  if type(why) ~= 'table' then
    why = { text = tostring(why) }
  end
  return { 'error', why.text or why.err, why.key or key or '' }
end

-- Lua would print large numbers with an exponent.
local function digits(number)
  return string.format('%.0f', number)
end
