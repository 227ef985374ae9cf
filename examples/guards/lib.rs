//! What the examples of the guards share.
