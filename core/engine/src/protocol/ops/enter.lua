-- Asks whether this server has forgotten nothing: says in which incarnation it is, the stretch of time in
-- which it kept all that it was told. A new one begins where the mark of it is missing, or was written by
-- another process: that may have begun with data that is old. Or only checks that it is still a certain
-- one; then nothing that stands behind it in the batch is done if it is not.
--
-- Only lockers on several servers have such a mark, in the key of the empty name, which no lock has. It is
-- a hash. id: the incarnation, run: the process that wrote it, since: when it began, longest: the longest
-- time to live that anybody may ask for; a k with an incarnation behind it: that one may vote, at any
-- server of the quorum, and a locker last said so at this time; a w with one: that one may not vote yet, and a
-- locker said so first at this time. saved: when this process last saved its data, as far as was looked; a
-- process that begins says it anew, so this tells at less cost than the process's own id whether it is the same.
--
-- Until the server may vote itself, longest is what the last locker said. From then on it stays, and a locker
-- that says something else only reads it: nothing of what it says is noted.
--
-- keys   lock
-- text   the incarnation that it is to be; to enter it is that to begin if there is none, its time to live
--        the longest of the locker, and then incarnations: each that may vote with a + before it, each that is
--        over with a -, and each that may not vote yet with a ?
-- common it is to be checked, and it is still that
-- reply  entered, incarnation, for how long it has been (ms), longest (ms), incarnations in any order: those
--        that may vote, and those that may not yet, with for how long that is known (ms) behind them
--        And if it is not that the reply to the whole batch is the time and forgot
local saved, is_same = run('LASTSAVE'), run('HGET', key, 'id') == sub(op, OP_REST)
if is_same and (type(saved) ~= 'number' or run('HGET', key, 'saved') ~= tostring(saved)) then
  local info = run('INFO', 'server')
  is_same = type(info) == 'string' and (string.match(info, 'run_id:(%x+)') or '') == run('HGET', key, 'run')
  -- Another process that begins within this second would say the same.
  if is_same and type(saved) == 'number' and saved < now / 1000000 - 1 then
    run('HSET', key, 'saved', tostring(saved))
  end
end
if not is_same then
  return { now_digits, 'forgot' }
end
