//! A guard of an object store.
