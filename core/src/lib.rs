//! A distributed lock that tells the truth.
