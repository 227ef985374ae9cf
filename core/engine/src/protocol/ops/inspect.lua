-- Returns the holder of the lock, its waiters and the ticks of a job. Changes nothing.
--
-- keys   lock, line, holders
-- text   how many places of the line to read
-- reply  held, token, expiry (ms), kind, label, waiting…
--        free, last token (0 if none is remembered), waiting…
--        job, the last completed tick with its token, its time (ms) and its runner's label (or 0 alone), the tick of the
--          last turn unless it was completed or given back (or 0), and then as before
--        shared, kind, capacity, epoch of the capacity, token of the last writer (or 0), units in use, number of holders,
--          number of holders that are named, and for each of them: token, expiry (ms), weight, its slots in one text,
--          label; and then as for a free lock
--        Of a lock whose holder is asked to yield, these follow: the end of the request's time (ms), label.
--        waiting… is the number of live waiters, the number of waiters that are named, and for each named
--        waiter, in order: kind, label, arrival (microseconds)
local function inspect(k, op)
  local queue, places = KEYS[k + 1], tonumber(sub(op, OP_REST))
  local record, fields = call('HGET', KEYS[k], 's'), {}
  local state = record and { last = lock.last(call('HGET', KEYS[k], 't') or '0', KEYS[k]) } or lock.read(KEYS[k])
  local function add(...)
    for _, field in ipairs({ ... }) do
      fields[#fields + 1] = field
    end
  end
  if record then
    share.describe(k, record, places, add)
  end
  if state.done then
    local done = state.done
    add('job', sub(done, DONE_TICK, DONE_TIME - 1))
    if tonumber(fields[2]) > 0 then
      add(sub(done, 1, TOKEN_LENGTH), sub(done, DONE_TIME, DONE_LABEL - 1), sub(done, DONE_LABEL))
    end
    add(state.tick or '0')
  end
  if state.is_held then
    local kind, label = sub(state.value, VALUE_KIND, VALUE_KIND), sub(state.value, VALUE_LABEL)
    add('held', sub(state.field, FIELD_TOKEN), tostring(state.expires), kind, label)
  else
    add('free', string.format('%.0f', state.last or 0))
  end
  fields[#fields + 1] = tostring(call('ZCOUNT', queue, tostring(now_ms), '(LEAST_ARRIVAL'))
  local count = #fields + 1
  fields[count] = 0
  local claims = call(
    'ZRANGEBYSCORE', queue, 'LEAST_ARRIVAL', '+inf', 'WITHSCORES', 'LIMIT', '0', tostring(places)
  )
  for i = 1, #claims, 2 do
    local live_until = call('ZSCORE', queue, 'a' .. claims[i])
    if tonumber(live_until or 0) >= now_ms then
      line.parse(claims[i], queue)
      fields[count] = fields[count] + 1
      fields[#fields + 1] = sub(claims[i], CLAIM_KIND, CLAIM_KIND)
      fields[#fields + 1] = sub(claims[i], CLAIM_LABEL)
      fields[#fields + 1] = string.format('%.0f', tonumber(claims[i + 1]))
    end
  end
  fields[count] = tostring(fields[count])
  if state.is_held and lock.wanted_until(state) then
    fields[#fields + 1] = sub(state.request, 1, EXPIRY_LENGTH)
    fields[#fields + 1] = sub(state.request, REQUEST_LABEL)
  end
  return fields
end
