//! Tests of the admission: who may vote when.

use super::*;

const LONGEST: Duration = Duration::from_secs(60);
const NOW: Timestamp = Timestamp::from_nanos(5_000_000_000);

fn of(members: usize) -> Admission {
    Admission::new(members, LONGEST, 2_000)
}

/// A member reports its incarnation with an age in seconds, and the incarnations that it knows.
fn say(admission: &mut Admission, at: usize, (id, age): (u128, u64), known: &[u128]) {
    watch(admission, (NOW, at), (id, age), (known, &[]));
}

/// A member reports at `now` as in [`say`], and also how many seconds it has watched others.
fn watch(
    admission: &mut Admission,
    (now, at): (Timestamp, usize),
    (id, age): (u128, u64),
    (known, watched): (&[u128], &[(u128, u64)]),
) {
    let turn = admission.next_turn();
    answer(admission, (now, at, turn), (id, age), (known, watched));
}

/// A member's reply to the request of a turn arrives.
fn answer(
    admission: &mut Admission,
    (now, at, turn): (Timestamp, usize, u64),
    (id, age): (u128, u64),
    (known, watched): (&[u128], &[(u128, u64)]),
) {
    let watched = watched.iter();
    let watched = watched.map(|(id, age)| (Incarnation(*id), Duration::from_secs(*age)));
    let entered = Entered {
        incarnation: Incarnation(id),
        age: Duration::from_secs(age),
        longest: LONGEST,
        known: known.iter().map(|id| Incarnation(*id)).collect(),
        watched: watched.collect(),
    };
    admission.saw(now, at, (entered, turn));
    admission.settle(now);
}

fn voting(admission: &Admission) -> Vec<usize> {
    let members = 0..admission.all.len();
    members.filter(|at| admission.votes(*at)).collect()
}

fn admitted(admission: &Admission) -> Vec<usize> {
    let members = 0..admission.all.len();
    members.filter(|at| admission.is_admitted(*at)).collect()
}

#[test]
fn a_majority_of_new_members_is_admitted_and_votes_once_they_know_each_other() {
    let mut new = of(3);
    say(&mut new, 0, (1, 0), &[]);
    assert!(
        admitted(&new).is_empty(),
        "one member of three decides nothing"
    );
    say(&mut new, 2, (3, 0), &[]);
    assert!(
        admitted(&new).is_empty(),
        "the first member may know others by now"
    );
    assert_eq!(
        [0, 1, 2].map(|at| new.is_to_be_heard(at)),
        [true, false, true]
    );
    say(&mut new, 0, (1, 0), &[]);
    say(&mut new, 2, (3, 0), &[]);
    assert_eq!((admitted(&new), voting(&new)), (vec![0, 2], vec![]));
    assert_eq!(new.to_tell(0), [Incarnation(1), Incarnation(3)]);
    say(&mut new, 0, (1, 0), &[1, 3]);
    assert_eq!(voting(&new), [0], "the other member does not know it");
    say(&mut new, 2, (3, 0), &[1, 3]);
    assert_eq!(voting(&new), [0, 2]);
    say(&mut new, 1, (2, 0), &[]);
    say(&mut new, 0, (1, 0), &[1, 3]);
    say(&mut new, 2, (3, 0), &[1, 3]);
    assert_eq!((admitted(&new), voting(&new)), (vec![0, 1, 2], vec![0, 2]));
    assert!((0..3).all(|at| new.to_tell(at).contains(&Incarnation(2))));
}

/// Catches a vote of a member that the others do not know, or that does not know the others: what one of
/// them forgets, nobody may miss.
#[test]
fn a_member_votes_once_it_and_the_voting_members_know_each_other() {
    for (by_others, by_it) in [(&[1, 2][..], &[1, 2, 9][..]), (&[1, 2, 9], &[9])] {
        let mut used = of(3);
        say(&mut used, 0, (1, 900), &[1, 2]);
        say(&mut used, 1, (2, 900), &[1, 2]);
        say(&mut used, 2, (9, 0), &[]);
        say(&mut used, 0, (1, 900), by_others);
        say(&mut used, 1, (2, 900), by_others);
        say(&mut used, 2, (9, 0), by_it);
        assert_eq!(
            (admitted(&used), voting(&used)),
            (vec![0, 1, 2], vec![0, 1])
        );
        assert!(!used.are_acquainted(2, 0) && !used.are_acquainted(0, 2));
        say(&mut used, 0, (1, 900), &[1, 2, 9]);
        say(&mut used, 1, (2, 900), &[1, 2, 9]);
        say(&mut used, 2, (9, 0), &[1, 2, 9]);
        assert_eq!(voting(&used), [0, 1, 2]);
        assert!(used.are_acquainted(2, 0) && used.are_acquainted(0, 2));
    }
}

#[test]
fn a_known_member_votes_whatever_its_age() {
    let mut used = of(3);
    say(&mut used, 1, (2, 0), &[1, 2, 3]);
    assert_eq!((admitted(&used), voting(&used)), (vec![1], vec![1]));
    say(&mut used, 0, (1, 0), &[1, 2, 3]);
    assert_eq!(voting(&used), [0, 1]);
}

/// Catches a member that may have forgotten a lock: others know of an incarnation that no member is in.
#[test]
fn a_member_that_may_have_forgotten_waits_as_long_as_a_lease_lives() {
    let mut used = of(3);
    say(&mut used, 0, (1, 900), &[1, 2, 3]);
    say(&mut used, 1, (2, 900), &[1, 2, 3]);
    say(&mut used, 2, (9, 20), &[]);
    assert_eq!(admitted(&used), [0, 1]);
    assert_eq!(
        used.ripe_at(2),
        Timestamp::NEVER,
        "only the member itself reports its age"
    );
    let remaining = used.remaining(NOW, 2).as_secs();
    assert!((60..61).contains(&remaining), "{remaining}");
    let later = NOW + Duration::from_secs(5);
    assert_eq!(used.age(later, 2), Duration::from_secs(25));
    assert_eq!([0, 1].map(|at| used.to_watch(at)), [[Incarnation(9)]; 2]);
    watch(&mut used, (NOW, 0), (1, 900), (&[1, 2, 3], &[(9, 18)]));
    assert_eq!(used.to_watch(0), []);
    let ripe = used.ripe_at(2);
    // The drift margin counts twice: 0.4 % of the remaining time.
    assert_eq!(ripe, NOW + Duration::from_millis(42_168));
    used.settle(ripe);
    assert_eq!(admitted(&used), [0, 1, 2]);
    assert_eq!(used.to_watch(1), []);
}

/// Catches a report that counts although it was requested just before a member turned out to be new: the request
/// that was sent last when the new member's reply arrived.
#[test]
fn the_last_request_before_a_member_was_new_does_not_admit_it() {
    let mut new = of(3);
    let [first, second] = [0, 2].map(|at| (NOW, at, new.next_turn()));
    answer(&mut new, first, (1, 0), (&[], &[]));
    answer(&mut new, second, (3, 0), (&[], &[]));
    say(&mut new, 0, (1, 0), &[]);
    assert!(
        admitted(&new).is_empty(),
        "the third was asked before the first was new"
    );
    say(&mut new, 2, (3, 0), &[]);
    assert_eq!(admitted(&new), [0, 2]);

    let mut used = of(3);
    say(&mut used, 0, (1, 900), &[1, 2, 3]);
    say(&mut used, 1, (2, 900), &[1, 2, 3]);
    used.lost(2);
    // Both have said that the third incarnation is over.
    say(&mut used, 0, (1, 900), &[1, 2]);
    say(&mut used, 1, (2, 900), &[1, 2]);
    let [third, second] = [2, 1].map(|at| (NOW, at, used.next_turn()));
    answer(&mut used, third, (9, 0), (&[], &[]));
    answer(&mut used, second, (2, 900), (&[1, 2], &[]));
    say(&mut used, 0, (1, 900), &[1, 2]);
    assert_eq!(
        admitted(&used),
        [0, 1],
        "the second was asked before the third was new"
    );
    say(&mut used, 1, (2, 900), &[1, 2]);
    assert_eq!(admitted(&used), [0, 1, 2]);
}

/// Catches a server that votes as soon as its clock is set forward right after it started: for a locker
/// that has watched it, and for one that comes later.
#[test]
fn a_clock_that_is_set_forward_does_not_end_a_quarantine() {
    let all = &[1, 2, 3];
    let mut watches = of(3);
    watch(&mut watches, (NOW, 0), (1, 900), (all, &[]));
    watch(&mut watches, (NOW, 2), (9, 0), (&[], &[]));
    watch(&mut watches, (NOW, 0), (1, 900), (all, &[(9, 0)]));
    let mut later = of(3);
    let soon = NOW + Duration::from_secs(5);
    for admission in [&mut watches, &mut later] {
        watch(admission, (soon, 0), (1, 905), (all, &[(9, 5)]));
        watch(admission, (soon, 2), (9, 3_605), (&[], &[]));
        assert!(!admission.is_admitted(2));
    }
    // The other members' clocks may be set forward, too, while the locker watches.
    for at in [0, 1] {
        watch(&mut watches, (soon, at), (1, 4_000), (all, &[(9, 4_000)]));
    }
    assert!(!watches.is_admitted(2));
    let ripe = NOW + LONGEST;
    for admission in [&mut watches, &mut later] {
        admission.settle(ripe - Duration::from_secs(1));
        assert!(!admission.is_admitted(2));
        admission.settle(ripe + Duration::from_secs(1));
        assert!(admission.is_admitted(2));
    }
}

/// Catches a minority that admits a member that may have voted with the members that are not heard.
#[test]
fn a_member_that_is_new_to_fewer_than_a_majority_waits() {
    let mut used = of(5);
    say(&mut used, 0, (1, 900), &[1, 2]);
    say(&mut used, 1, (2, 900), &[1, 2]);
    say(&mut used, 4, (5, 0), &[]);
    assert_eq!(admitted(&used), [0, 1]);
    say(&mut used, 2, (3, 900), &[1, 2, 3]);
    for (at, id) in [(0, 1), (1, 2)] {
        assert_eq!(admitted(&used), [0, 1, 2]);
        say(&mut used, at, (id, 900), &[1, 2, 3]);
    }
    assert_eq!(admitted(&used), [0, 1, 2, 4]);
}

/// Catches two holders: the second of three members voted for a lease together with a member that the
/// first did not know when it was asked. That member then forgets the lease.
#[test]
fn reports_from_before_a_member_was_new_do_not_admit_it() {
    let mut used = of(3);
    say(&mut used, 0, (1, 900), &[1, 2]);
    say(&mut used, 1, (2, 900), &[1, 2]);
    say(&mut used, 2, (9, 0), &[]);
    assert_eq!(admitted(&used), [0, 1]);
    assert!((0..3).all(|at| used.is_to_be_heard(at)));
    say(&mut used, 0, (1, 900), &[1, 2, 3]);
    say(&mut used, 1, (2, 900), &[1, 2]);
    assert_eq!(admitted(&used), [0, 1]);
    assert!(!used.is_to_be_heard(2), "the new member must wait");
}

/// Catches two holders when members seem to be new together, although one has voted since it reported.
#[test]
fn a_member_that_was_new_long_ago_may_have_voted_since() {
    let mut used = of(3);
    say(&mut used, 1, (2, 0), &[]);
    say(&mut used, 2, (9, 0), &[]);
    assert!(admitted(&used).is_empty());
    say(&mut used, 1, (2, 1), &[1, 2, 3]);
    say(&mut used, 2, (9, 0), &[]);
    assert_eq!(admitted(&used), [1]);
}

/// Catches an incarnation that is dropped although a member may be in it, because it is newer than that
/// member's last report.
#[test]
fn ended_incarnations_are_dropped_once_all_were_asked_again() {
    let all = [1, 2, 3, 9];
    let mut used = of(3);
    for at in 0..3 {
        let id = u128::try_from(at + 1).expect("the ID is small");
        say(&mut used, at, (id, 900), &all);
    }
    assert_eq!(used.to_forget(0), []);
    let again = (0..3).filter(|at| used.is_to_be_asked(*at));
    assert_eq!(
        again.collect::<Vec<_>>(),
        [0],
        "the others were asked after it was found"
    );
    say(&mut used, 0, (1, 900), &all);
    assert!((0..3).all(|at| used.to_forget(at) == [Incarnation(9)]));
    let mut newer = of(3);
    for at in 0..3 {
        let id = u128::try_from(at + 1).expect("the ID is small");
        say(&mut newer, at, (id, 900), &all);
    }
    // The first member is in it by now.
    say(&mut newer, 0, (9, 0), &all);
    assert!((0..3).all(|at| !newer.to_forget(at).contains(&Incarnation(9))));
}
