/**
 * The kinds of tasks that an engine gives its host. The names and numbers are those of `task` in
 * `bindings/wasm/src/engine/output.rs`.
 */
export const enum Task {
  Send = 1,
  Acquired = 2,
  Done = 3,
  Busy = 4,
  Answer = 5,
  Failed = 6,
  Deadline = 7,
  Lost = 8,
  Released = 9,
  Subscribe = 10,
  Wake = 11,
  Silent = 12,
  Demoted = 13,
  Watch = 14,
  Admitted = 15,
}
