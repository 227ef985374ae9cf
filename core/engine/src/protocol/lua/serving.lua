-- Hands the lock, whose tenure was just deleted, to the first waiter, as `line.serve` does in the rest.
-- Leaves a waiter to the rest if it is dead, or if its token or key needs more than the common case.
local queue = KEYS[k + 1]
local first = run('ZRANGEBYSCORE', queue, 'LEAST_ARRIVAL', '+inf', 'LIMIT', '0', '1')
local member = first[1]
local retention = member and tonumber(sub(member, CLAIM_RETENTION, CLAIM_LEASE - 1))
local milliseconds = member and tonumber(sub(member, 1, CLAIM_WINDOW - 1))
if not member then
  seen = first.err and seen
elseif retention and milliseconds and #member >= CLAIM_LABEL
  and retention >= LEAST_PLAIN_RETENTION_MS and milliseconds <= MOST_PLAIN_TTL_MS then
  if not now then
    --> the time
  end
  step = step or sub(now_digits, 1, KEPT_STEP_DIGITS)
  local mark = 'a' .. member
  local last, live_until = run('HGET', key, 't'), run('ZSCORE', queue, mark)
  if last and #last == TOKEN_LENGTH and last < now_digits
    and sub(last, 1, KEPT_STEP_DIGITS) == step
    and live_until and #live_until == EXPIRY_LENGTH and live_until >= sub(now_digits, 1, EXPIRY_LENGTH) then
    local client, lease = sub(member, CLAIM_CLIENT, CLAIM_KIND - 1), sub(member, CLAIM_LEASE, CLAIM_CLIENT - 1)
    local is_own = client == sub(op, RELEASE_CLIENT, RELEASE_CLIENT + CLIENT_LENGTH - 1)
    if not is_own then
      milliseconds = tonumber(sub(member, CLAIM_WINDOW, CLAIM_RETENTION - 1))
      if milliseconds > LONGEST_WINDOW_MS then
        milliseconds = LONGEST_WINDOW_MS
      end
    end
    local held_until, rest_of_value = tostring(now_ms + milliseconds), sub(member, CLAIM_CLIENT)
    local field = lease .. now_digits
    run('HSET', key, 't', now_digits, field, held_until .. rest_of_value, 'w', '', 'x', '')
    run('ZREM', queue, member, mark)
    seen = nil
    if is_own then
      other = { now_digits, i == 2 and '1' or tostring(i - 1), '4', 'handed_over', lease, now_digits, held_until }
    else
      local promised = tostring(now_ms + (milliseconds - milliseconds % 2) / 2)
      local news = 'granted:' .. sub(lease, 1, HALF_LENGTH) .. ':' .. now_digits .. ':' .. promised .. ':' .. now_digits
      news = news .. ':' .. redis.sha1hex(lease .. ':' .. news)
      local channel = 'leasehold:' .. string.match(key, '^{([^:]*):') .. ':' .. client
      local heard = client >= 'FIRST_AT_SHARDS' and run('SPUBLISH', channel .. ':' .. key, news)
      if type(heard) ~= 'number' or heard == 0 then
        heard = run('PUBLISH', channel, news)
      end
      if type(heard) ~= 'number' or heard == 0 then
        run('HSET', key, field, promised .. rest_of_value)
      end
    end
  end
end
