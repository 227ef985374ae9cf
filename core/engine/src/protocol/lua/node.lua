-- Precedes the script when a batch spans several cluster slots of one node. A call may name only keys of one
-- slot, which select the node. A script that does not begin with `#!` may still access every key that the
-- node serves. A command on a key that another node serves, or that is migrating, fails, and its operation
-- with it.
--
-- KEYS   the first key
-- ARGV   the number of keys, all other keys, and then the script's own ARGV
local KEYS, ARGV = { KEYS[1], unpack(ARGV, 2, ARGV[1]) }, { unpack(ARGV, ARGV[1] + 1) }
