-- Before the script, where a batch is of several slots of a cluster that one node serves. A call may name keys of
-- one slot alone, by which it finds the node; but a script that does not begin with `#!` may use all that the
-- node serves. A command on a key that is elsewhere, or on its way there, fails, and its operation with it.
--
-- KEYS   the first key
-- ARGV   how many keys there are, all others of them, and then what the script says
local KEYS, ARGV = { KEYS[1], unpack(ARGV, 2, ARGV[1]) }, { unpack(ARGV, ARGV[1] + 1) }
