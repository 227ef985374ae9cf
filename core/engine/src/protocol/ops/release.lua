-- Frees the lock, for the next in line, if this lease has it; otherwise the claim leaves the line. To
-- know the token only makes it faster.
--
-- keys   lock, line
-- text   the claim, with the token behind its lease (all 0 if it is not known)
-- common it was this lease's. It is free, or was handed to another client's lease; or, with a reply of
--        its own, to one of this client's
-- reply  released
--        handed_over, lease, token, expiry (ms): freed, and another lease of the same client has it
--        gone
--        taken
seen = run('HDEL', key, sub(op, RELEASE_FIELD, RELEASE_CLIENT - 1), 'w', 'x')
if seen == 1 then
  -- The tenure alone: nobody waits.
  seen = nil
elseif seen == 3 then
  -- And the two that say that somebody may wait.
  --> serving
end
