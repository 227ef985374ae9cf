//! A guard of an HTTP service.
