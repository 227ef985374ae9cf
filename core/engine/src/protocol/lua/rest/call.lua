if not now then
  --> the time
end

-- Functions for rare cases, in tables by topic. Redis defines them again in each call that needs them, and
-- Lua takes longer for functions that capture more locals.
local lock, line, share = {}, {}, {}

-- Running commands. A command that fails ends its own operation, not the batch.

local function fail(text, key)
  error({ text = text, key = key })
end

-- Returns what a command on this key returned, unless that is an error.
local function checked(result, key)
  if type(result) == 'table' and result.err then
    fail(result.err, key)
  end
  return result
end

local function call(command, key, ...)
  return checked(run(command, key, ...), key)
end
