-- Asks a server of a quorum for its incarnation: the period since which it has lost no data. A new
-- incarnation begins if the server has no record of one, or if another process wrote the record, because a
-- new process may have started with old data. A check instead only verifies that the incarnation has not
-- changed; if it has, the rest of the batch is not executed.
--
-- Only quorum lockers write this record, in the key of the empty name, which no lock has. It is a hash:
--   id         the incarnation
--   run        the run ID of the process that wrote the record
--   since      when the incarnation began
--   longest    the longest time to live that a locker may ask for
--   k + ID     an incarnation, of any server of the quorum, that may vote; when a locker last reported it
--   w + ID     an incarnation in quarantine; when a locker first reported it
--   saved      when this process last saved its data (LASTSAVE), once that was read. A new process reports another
--              time, so this tells whether the process is the same, and costs less than reading the run ID
--
-- Until this server's own incarnation may vote, longest is what the last locker sent. From then on it is
-- fixed: a locker that sends another value gets a reply, and nothing that it reports is stored.
--
-- keys   lock
-- text   the incarnation to check, or the one to begin if there is none. To enter: the locker's longest time to live
--        as the time to live, and after the incarnation a list of others: + before one that may vote, - before one that
--        has ended, ? before one in quarantine
-- common this is a check, and the incarnation has not changed
-- reply  entered, incarnation, its age (ms), longest (ms), incarnations in any order: an ID that may vote, or an ID in
--        quarantine directly followed by the time since it was first reported (ms).
--        If a check fails, the reply to the whole batch is the time and forgot
local saved, is_same = run('LASTSAVE'), run('HGET', key, 'id') == sub(op, OP_REST)
if is_same and (type(saved) ~= 'number' or run('HGET', key, 'saved') ~= tostring(saved)) then
  local info = run('INFO', 'server')
  is_same = type(info) == 'string' and (string.match(info, 'run_id:(%x+)') or '') == run('HGET', key, 'run')
  -- A process that restarts within this second would report the same time.
  if is_same and type(saved) == 'number' and saved < now / 1000000 - 1 then
    run('HSET', key, 'saved', tostring(saved))
  end
end
if not is_same then
  return { now_digits, 'forgot' }
end
