local clock = redis.call('TIME')
now_digits = clock[1] .. clock[2]
if #now_digits < TOKEN_LENGTH then
  now_digits = string.format('%010d%06d', clock[1], clock[2])
end
now = tonumber(now_digits)
now_ms = (now - now % 1000) / 1000
