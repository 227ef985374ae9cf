-- Frees the lock for the next waiter if this lease has it. Otherwise removes the claim from the line. Knowing
-- the token only makes it faster, except that a repeated completion is known by it.
--
-- keys   lock, line
-- text   the claim without its time to live, with the token after the lease ID (all 0 if it is not known)
-- common this lease had the lock, which is now free or handed to another client's lease. A handover to a lease of the
--        same client is also inlined here, with a reply of its own
-- reply  released
--        handed_over, lease, token, expiry (ms): freed, and another lease of the same client has it
--        completed: another turn has completed this tick or a later one
--        gone
--        taken
seen = run('HDEL', key, sub(op, RELEASE_FIELD, RELEASE_CLIENT - 1), 'w', 'x')
if seen == 1 then
  -- Only the tenure was deleted: nobody waits.
  seen = nil
elseif seen == 3 then
  -- The tenure and both flags were deleted: somebody may wait.
  --> serving
end
