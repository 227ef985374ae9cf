//! A guard of keys of a Redis server.
