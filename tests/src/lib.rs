//! Servers, proxies and processes for the tests.
