//! The search: breadth-first, so the first violation is a shortest one.

use std::collections::HashSet;
use std::fmt::{self, Debug, Write};
use std::hash::{DefaultHasher, Hasher};

use crate::checks::Violation;
use crate::world::{Action, Plan, World};

/// The result of a search.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The number of states, each of which is different from all others.
    pub(crate) states: usize,
    /// The greatest number of actions to a state.
    pub(crate) depth: usize,
    /// True if the last states allow no action that leads to another state.
    pub(crate) complete: bool,
    pub(crate) violation: Option<(Violation, Vec<String>)>,
}

/// A state, known by the action that led to it from an earlier one.
struct Node {
    from: usize,
    action: Option<Action>,
    depth: usize,
}

/// Searches all states of a world up to its depth, or until a promise is broken.
///
/// An engine cannot be copied, so each state is reached by its actions from the first one.
pub(crate) fn search(plan: Plan) -> Found {
    let first = World::new(plan, false);
    let mut seen = HashSet::from([first.fingerprint()]);
    let mut nodes = vec![Node {
        from: 0,
        action: None,
        depth: 0,
    }];
    let mut found = Found {
        complete: true,
        ..Found::default()
    };
    let mut next = 0;
    while next < nodes.len() {
        let (depth, path) = (nodes[next].depth + 1, path(&nodes, next));
        let mut start = Some(replay(plan, &path, false));
        let actions = start.as_ref().map(World::actions).unwrap_or_default();
        for action in actions {
            if depth > plan.depth {
                found.complete = false;
                break;
            }
            let mut world = start.take().unwrap_or_else(|| replay(plan, &path, false));
            let mut result = world.apply(action);
            if result.is_ok() {
                if !seen.insert(world.fingerprint()) {
                    continue;
                }
                nodes.push(Node {
                    from: next,
                    action: Some(action),
                    depth,
                });
                found.depth = depth;
                result = world.ends_quietly().0;
            }
            if let Err(violation) = result {
                (found.states, found.depth) = (nodes.len(), depth);
                found.violation = Some((violation, story(plan, &path, action)));
                return found;
            }
        }
        next += 1;
    }
    found.states = nodes.len();
    found
}

fn path(nodes: &[Node], mut at: usize) -> Vec<Action> {
    let mut path = Vec::with_capacity(nodes[at].depth);
    while let Some(action) = nodes[at].action {
        path.push(action);
        at = nodes[at].from;
    }
    path.reverse();
    path
}

fn replay(plan: Plan, path: &[Action], tells: bool) -> World {
    let mut world = World::new(plan, tells);
    for action in path {
        let done = world.apply(*action);
        done.expect("the state was reached before without a violation");
    }
    world
}

/// Tells what happens on a path and at the action after it.
fn story(plan: Plan, path: &[Action], last: Action) -> Vec<String> {
    let mut world = replay(plan, path, true);
    if world.apply(last).is_err() {
        return world.story.unwrap_or_default();
    }
    world.ends_quietly().1
}

impl World {
    /// Returns a hash of all that decides what can happen next.
    fn fingerprint(&self) -> u64 {
        let mut all = Text::default();
        for locker in &self.host.lockers {
            all.add(&(&locker.engine, locker.wake));
        }
        all.add(&(&self.host.servers, self.host.now, &self.host.ahead));
        all.add(&(&self.clients, &self.checks, &self.forged, self.left));
        // Messages have no order: any may be the next one.
        let requests = self.requests.iter().map(|one| hash(&one));
        let replies = self.replies.iter().map(|one| hash(&one));
        let pushes = self.pushes.iter().map(|one| hash(&one));
        let sum = |hashes: &mut dyn Iterator<Item = u64>| hashes.fold(0, u64::wrapping_add);
        for mut messages in [
            Box::new(requests) as Box<dyn Iterator<Item = u64>>,
            Box::new(replies),
            Box::new(pushes),
        ] {
            all.hasher.write_u64(sum(&mut messages));
        }
        all.hasher.finish()
    }
}

pub(crate) fn hash(value: &impl Debug) -> u64 {
    let mut text = Text::default();
    text.add(value);
    text.hasher.finish()
}

/// Hashes what is written to it, except an engine's counts, on which no decision hangs.
#[derive(Default)]
struct Text {
    hasher: DefaultHasher,
    /// The depth of brackets within the counts.
    skips: Option<usize>,
}

impl Text {
    fn add(&mut self, value: &impl Debug) {
        write!(self, "{value:?}").expect("a hash takes any text");
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let Some(open) = &mut self.skips else {
            self.hasher.write(text.as_bytes());
            if text == "counts" {
                self.skips = Some(0);
            }
            return Ok(());
        };
        let is_in = *open > 0;
        for byte in text.bytes() {
            match byte {
                b'{' | b'[' | b'(' => *open += 1,
                b'}' | b']' | b')' => *open = open.saturating_sub(1),
                _ => {}
            }
        }
        if is_in && *open == 0 {
            self.skips = None;
        }
        Ok(())
    }
}
