if not now then
  --> the time
end

-- The functions of what is rare, by what they are about. They stand in tables, because Redis makes
-- them anew in each call that needs them, and Lua takes the longer for it the more locals they use.
local lock, line = {}, {}

-- Commands and their errors. A command that fails ends its own operation, not the batch.

local function fail(text, key)
  error({ text = text, key = key })
end

-- What a command on this key returned, unless that is an error.
local function checked(result, key)
  if type(result) == 'table' and result.err then
    fail(result.err, key)
  end
  return result
end

local function call(command, key, ...)
  return checked(run(command, key, ...), key)
end
