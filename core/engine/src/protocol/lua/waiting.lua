-- Takes a place in line, or confirms it. Handles only a line in which every claim counts as alive and arrived
-- before now. Otherwise `place` is nil, which leaves the operation to the rest.
local queue, member = KEYS[k + 1], sub(op, OP_TTL, OP_REST - 1) .. sub(op, ACQUIRE_CLAIM)
local members, alive = run('ZCARD', queue), 0
if members ~= 0 then
  alive = run('ZCOUNT', queue, now_short, '(LEAST_ARRIVAL')
end
place = nil
if members == 0 or type(alive) == 'number' and members == 2 * alive and alive < MAX_WAITERS
  and run('ZCOUNT', queue, now_digits, '+inf') == 0 then
  local window = tonumber(sub(op, ACQUIRE_CLAIM, ACQUIRE_RETENTION - 1))
  if window > LONGEST_WINDOW_MS then
    window = LONGEST_WINDOW_MS
  end
  local mark, live_until = 'a' .. member, now_ms + window
  local added = run('ZADD', queue, 'NX', now_digits, member, live_until, mark)
  if added == 2 then
    place = alive + 1
  elseif added == 0 then
    run('ZADD', queue, 'XX', live_until, mark)
    place = run('ZCOUNT', queue, 'LEAST_ARRIVAL', '(' .. run('ZSCORE', queue, member)) + 1
  end
  if place then
    run('PEXPIREAT', queue, now_ms + window + LINGER_MS)
    if flags < 2 then
      run('HSET', key, 'w', '', 'x', '')
    end
    place = place < 10 and sub('123456789', place, place) or tostring(place)
  end
end
