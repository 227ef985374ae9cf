//! A client that gives up waiting leaves the line (I6) at any moment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::Locker;
use leasehold_tests::{Admin, Random, RedisServer, eventually};

use crate::{LIMIT, connect, millis};

/// Far below the 2.4 s and more after which dead waiters are forgotten.
const SOON: Duration = Duration::from_secs(2);

/// A name that tasks contend for, and what they saw.
#[derive(Default)]
struct Room {
    occupied: AtomicBool,
    tokens: Mutex<Vec<u64>>,
    gave_up: AtomicU64,
}

impl Room {
    /// Returns true if there were enough visits to prove something.
    fn is_busy(&self) -> bool {
        let visits = self.tokens.lock().expect("not poisoned").len();
        visits > 50 && self.gave_up.load(Ordering::Relaxed) > 50
    }

    async fn visit(&self, locker: &Locker, name: &str, seed: u64) {
        let lock = locker.lock(name).expect("a valid name").ttl(millis(4_000));
        let patience = Duration::from_micros(Random::new(seed).below(30_000));
        let lease = match Random::new(seed + 1).below(3) {
            0 => tokio::time::timeout(patience, lock.acquire()).await.ok(),
            1 => lock.acquire_within(patience).await.transpose(),
            // Waiters that wait to the end prove that the line goes on.
            _ => Some(lock.acquire().await),
        };
        let Some(lease) = lease else {
            self.gave_up.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let lease = match lease {
            Ok(lease) => lease,
            // There was no time left for an attempt.
            Err(error) if error.is_timeout() => return,
            Err(error) => panic!("{error}"),
        };
        assert!(!self.occupied.swap(true, Ordering::SeqCst), "two in {name}");
        let token = lease.token().get();
        self.tokens.lock().expect("not poisoned").push(token);
        tokio::time::sleep(Duration::from_micros(Random::new(seed + 2).below(2_000))).await;
        assert!(lease.is_valid());
        self.occupied.store(false, Ordering::SeqCst);
        match Random::new(seed + 3).below(2) {
            0 => drop(lease),
            _ => lease.release().await.expect("a held lock"),
        }
    }
}

/// Catches claims that stay in line, locks without a holder, and a line that stops.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_come_and_go_at_random_leave_nothing() {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let rooms: Arc<[Room; 3]> = Arc::default();
    let (until, at_most) = (Instant::now() + millis(4_000), Instant::now() + LIMIT * 3);
    let mut tasks = Vec::new();
    for task in 0..30_u64 {
        let (locker, rooms) = (connect(&server).await, rooms.clone());
        tasks.push(tokio::spawn(async move {
            let mut seed = task << 32;
            let too_few = || !rooms.iter().all(Room::is_busy) && Instant::now() < at_most;
            while Instant::now() < until || too_few() {
                let room = usize::try_from(Random::new(seed + 9).below(3)).expect("one of three");
                rooms[room].visit(&locker, NAMES[room], seed).await;
                seed += 10;
            }
            locker
        }));
    }
    let mut lockers = Vec::new();
    for task in tasks {
        let task = tokio::time::timeout(LIMIT * 6, task).await;
        lockers.push(task.expect("the line goes on").expect("no panic"));
    }
    let empty = async || admin.in_use().await.is_empty();
    eventually(SOON, "no lock and no place in line are left", empty).await;
    for (name, room) in NAMES.iter().zip(rooms.iter()) {
        let tokens = room.tokens.lock().expect("not poisoned");
        let gave_up = room.gave_up.load(Ordering::Relaxed);
        println!("{name}: {} visits, {gave_up} gave up", tokens.len());
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(
            tokens.len() > 50 && gave_up > 50,
            "too few visits to prove anything"
        );
    }
}
