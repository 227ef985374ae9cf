token = sub(op, ACQUIRE_RECLAIMS, ACQUIRE_CLAIM - 1)
local ahead = token - now
if ahead >= MOST_APART_US or ahead <= -MOST_APART_US then
  token = now_digits
end
