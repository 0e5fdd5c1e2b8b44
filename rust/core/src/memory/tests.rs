use super::*;
use crate::error::ErrorKind;

use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const G: u64 = TASK_GUARANTEE;

fn limit(mib: u64) -> Limit {
    Limit {
        bytes: mib * MIB,
        kind: LimitKind::Container,
    }
}

fn joining(task: usize, configured: Option<u64>) -> Joining {
    Joining {
        connector: "orders".to_owned(),
        task,
        configured,
        default: Some(pool_size(limit(1_536), 512 * MIB)),
    }
}

/// A pool of `bytes` with `tasks`.
fn pool(bytes: u64, tasks: usize) -> (Pool, Vec<MemberId>) {
    let mut pool = Pool::default();
    let ids = (0..tasks).map(|task| pool.join(joining(task, Some(bytes))).unwrap());
    let ids = ids.collect();
    (pool, ids)
}

#[test]
fn the_default_is_half_of_what_heap_and_reserve_leave() {
    let size = pool_size(limit(1_536), 512 * MIB);
    assert_eq!(size.bytes, 384 * MIB, "a heap and 1 GiB beside it");
    assert_eq!(
        size.to_string(),
        "50 % of (1536 MiB limit of the container - 512 MiB largest heap - 256 MiB) is 402653184 \
         bytes"
    );
    assert_eq!(pool_size(limit(700), 512 * MIB).bytes, 0, "never negative");
}

// Promise: a task that would have less than 32 MiB of native memory does not start, and is told the
// arithmetic
#[test]
fn a_task_without_its_guarantee_is_refused_with_the_arithmetic() {
    let mut pool = Pool::default();
    for task in 0..12 {
        pool.join(joining(task, None)).expect("12 x 32 = 384");
    }
    let error = pool.join(joining(12, None)).expect_err("no room");
    assert_eq!(
        (error.code(), error.kind()),
        ("MEMORY_TOO_SMALL", ErrorKind::Config)
    );
    for part in [
        "13 tasks in this process need 13 x 33554432 = 436207616 bytes",
        "50 % of (1536 MiB limit of the container - 512 MiB largest heap - 256 MiB)",
        "is 402653184 bytes",
        "`frazil.memory.max.bytes`",
    ] {
        assert!(error.message().contains(part), "{}", error.message());
    }
    assert_eq!(pool.tasks(), 12, "the refused one took no place");
    let configured = pool.join(joining(12, Some(12 * G))).expect_err("no room");
    let said = "`frazil.memory.max.bytes` is 402653184 bytes";
    assert!(configured.message().contains(said), "{configured:?}");
}

#[test]
fn the_largest_configured_size_counts_and_a_default_only_without_any() {
    let mut pool = Pool::default();
    let default = pool.join(joining(0, None)).unwrap();
    assert_eq!(pool.capacity(), 384 * MIB);
    let small = pool.join(joining(1, Some(3 * G))).unwrap();
    assert_eq!(
        pool.capacity(),
        3 * G,
        "what is configured wins over a default"
    );
    let large = pool.join(joining(2, Some(6 * G))).unwrap();
    assert_eq!(pool.capacity(), 6 * G);
    pool.leave(large);
    assert_eq!(pool.capacity(), 3 * G);
    pool.leave(small);
    assert_eq!(pool.capacity(), 384 * MIB);
    pool.leave(default);
    assert_eq!((pool.capacity(), pool.tasks()), (0, 0));
}

#[test]
fn a_guarantee_that_was_given_outlives_the_size_that_allowed_it() {
    let mut pool = Pool::default();
    let large = pool.join(joining(0, Some(3 * G))).unwrap();
    let rest = [1, 2].map(|task| pool.join(joining(task, Some(G))).unwrap());
    pool.leave(large);
    assert_eq!(pool.capacity(), 2 * G);
    rest.iter()
        .for_each(|id| pool.set(*id, Use::Builders, G / 2));
    assert_eq!(rest.map(|id| pool.ask(id, MIB)), [Answer::Granted; 2]);
}

#[test]
fn a_task_alone_has_all_of_the_pool() {
    let (mut pool, ids) = pool(4 * G, 1);
    pool.set(ids[0], Use::Gathered, 4 * G - MIB);
    assert_eq!(pool.ask(ids[0], MIB), Answer::Granted);
    assert_eq!(pool.ask(ids[0], MIB + 1), Answer::GiveBack);
    assert_eq!(pool.low_water(ids[0]), 3 * G);
}

#[test]
fn a_frame_that_is_larger_than_the_pool_is_taken_when_little_is_held() {
    let (mut pool, ids) = pool(G, 1);
    pool.set(ids[0], Use::Builders, G / 2);
    assert_eq!(pool.ask(ids[0], 2 * G), Answer::Granted);
    pool.set(ids[0], Use::Builders, G);
    assert_eq!(pool.ask(ids[0], 2 * G), Answer::GiveBack);
}

#[test]
fn memory_that_nobody_wants_is_there_for_who_does() {
    let (mut pool, ids) = pool(8 * G, 4);
    assert_eq!(pool.share(), 2 * G);
    pool.set(ids[0], Use::Gathered, 5 * G - MIB);
    assert_eq!(pool.ask(ids[0], MIB), Answer::Granted, "three keep G each");
    pool.set(ids[0], Use::Gathered, 5 * G);
    assert_eq!(pool.ask(ids[0], MIB), Answer::GiveBack);
    let low = pool.low_water(ids[0]);
    assert_eq!(
        low,
        5 * G * 3 / 4,
        "nobody waits: it is not its share that counts"
    );
    pool.set(ids[1], Use::Gathered, G);
    assert_eq!(pool.ask(ids[1], MIB), Answer::Wait);
    assert_eq!(pool.low_water(ids[0]), 2 * G * 3 / 4);
}

// Promise: when memory is used up, the tasks above their share give back first, and a task below its
// guarantee waits for nobody
#[test]
fn who_is_above_its_share_gives_back_and_who_is_below_its_guarantee_goes_on() {
    let (mut pool, ids) = pool(8 * G, 4);
    pool.set(ids[0], Use::Gathered, 5 * G);
    pool.set(ids[1], Use::Gathered, G / 2);
    assert_eq!(pool.ask(ids[1], G / 4), Answer::Granted);
    pool.set(ids[1], Use::Gathered, G);
    assert_eq!(pool.ask(ids[1], MIB), Answer::Wait, "it has a right to 2 G");
    // Less than all, but somebody waits for it.
    pool.set(ids[0], Use::Gathered, 5 * G - 2 * MIB);
    assert_eq!(pool.ask(ids[0], MIB), Answer::GiveBack);
    pool.set(ids[0], Use::Gathered, pool.low_water(ids[0]));
    assert_eq!(pool.ask(ids[1], MIB), Answer::Granted);
    assert_eq!(pool.ask(ids[0], MIB), Answer::Granted, "nobody waits");
}

#[test]
fn one_that_waited_and_left_holds_nobody_up() {
    let (mut pool, ids) = pool(8 * G, 4);
    pool.set(ids[0], Use::Gathered, 5 * G);
    pool.set(ids[1], Use::Gathered, G);
    assert_eq!(pool.ask(ids[1], MIB), Answer::Wait);
    pool.leave(ids[1]);
    pool.set(ids[0], Use::Gathered, 4 * G);
    assert_eq!(pool.ask(ids[0], MIB), Answer::Granted);
}

#[test]
fn what_a_task_leaves_behind_counts_until_it_is_given_back() {
    let (mut pool, ids) = pool(4 * G, 2);
    pool.set(ids[1], Use::Uploads, G);
    pool.leave(ids[1]);
    assert_eq!(pool.held(), G);
    pool.set(ids[0], Use::Gathered, 3 * G);
    assert_eq!(
        pool.ask(ids[0], MIB),
        Answer::Wait,
        "its share is all of it"
    );
    pool.give_back(ids[1], Use::Uploads, G);
    assert_eq!(pool.ask(ids[0], MIB), Answer::Granted);
    assert_eq!((pool.held(), pool.peak()), (3 * G, 4 * G));
    assert_eq!(pool.held_by(ids[1]), None);
}

#[test]
fn a_task_that_comes_again_takes_the_place_of_the_one_that_hangs() {
    let (mut pool, ids) = pool(2 * G, 2);
    pool.set(ids[0], Use::Builders, MIB);
    let again = pool.join(joining(0, Some(2 * G))).expect("its own place");
    assert_eq!((pool.tasks(), pool.held()), (2, MIB));
    assert_eq!(pool.ask(ids[0], MIB), Answer::Granted, "a little goes");
    pool.leave(ids[0]);
    pool.set(again, Use::Builders, MIB);
    assert_eq!(pool.held(), 2 * MIB);
    assert_eq!(pool.uses().to_string(), format!("builders={}", 2 * MIB));
}

#[test]
fn work_of_the_process_counts_against_the_common_part() {
    let (mut pool, ids) = pool(2 * G, 1);
    let work = pool.work();
    pool.draw(work, Use::Commits, G);
    pool.set(ids[0], Use::Builders, G - MIB);
    assert_eq!(pool.ask(ids[0], MIB), Answer::Granted, "the guarantee");
    pool.set(ids[0], Use::Builders, G);
    assert_ne!(pool.ask(ids[0], MIB), Answer::Granted);
    pool.give_back(work, Use::Commits, G);
    assert_eq!(pool.ask(ids[0], MIB), Answer::Granted);
}

#[derive(Debug, Clone)]
enum Step {
    Join(usize, Option<u64>),
    Leave(usize),
    /// A frame comes: the task asks, and takes it when it may.
    Frame(usize, u64),
    /// The task gives back until its low water if it has to.
    Yield(usize),
    Flushed(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let task = 0..6_usize;
    prop_oneof![
        1 => (task.clone(), prop::option::of(1..16_u64)).prop_map(|(task, size)| {
            Step::Join(task, size.map(|size| size * G / 2))
        }),
        1 => task.clone().prop_map(Step::Leave),
        12 => (task.clone(), 1..9 * MIB).prop_map(|(task, bytes)| Step::Frame(task, bytes)),
        4 => task.clone().prop_map(Step::Yield),
        1 => task.prop_map(Step::Flushed),
    ]
}

proptest! {
    // Whatever tasks do: counters are true, the pool is kept, guarantees are kept, nobody starves.
    #[test]
    fn a_pool_keeps_its_size_and_its_guarantees(steps in prop::collection::vec(step(), 1..200)) {
        let mut pool = Pool::default();
        let mut tasks: BTreeMap<usize, MemberId> = BTreeMap::new();
        let mut shrunk = false;
        for step in steps {
            let capacity = pool.capacity();
            match step {
                Step::Join(task, size) => {
                    let joined = pool.join(joining(task, size));
                    // The one that was there under this name is given up either way.
                    tasks.remove(&task);
                    if let Ok(id) = joined {
                        tasks.insert(task, id);
                    }
                }
                Step::Leave(task) => {
                    if let Some(id) = tasks.remove(&task) {
                        pool.leave(id);
                    }
                }
                Step::Frame(task, bytes) => {
                    if let Some(id) = tasks.get(&task) {
                        let total = pool.total(*id);
                        let answer = pool.ask(*id, bytes);
                        if total + bytes.clamp(ROOM_WANTED, ASKED_MAX) <= TASK_GUARANTEE {
                            prop_assert_eq!(answer, Answer::Granted, "below its guarantee");
                        }
                        if answer == Answer::Granted {
                            pool.set(*id, Use::Builders, total + bytes.min(ASKED_MAX));
                        }
                    }
                }
                Step::Yield(task) => {
                    if let Some(id) = tasks.get(&task)
                        && pool.ask(*id, MIB) == Answer::GiveBack
                    {
                        prop_assert!(pool.total(*id) + MIB > pool.share());
                        pool.set(*id, Use::Builders, pool.low_water(*id));
                    }
                }
                Step::Flushed(task) => {
                    if let Some(id) = tasks.get(&task) {
                        pool.set(*id, Use::Builders, 0);
                    }
                }
            }
            shrunk |= pool.capacity() < capacity || pool.held() > pool.capacity();
            let members = pool.members.values();
            prop_assert_eq!(pool.held, members.clone().map(|one| one.total).sum::<u64>());
            prop_assert_eq!(
                pool.common_used,
                members.clone().map(Member::common).sum::<u64>()
            );
            prop_assert_eq!(pool.waiting, members.clone().filter(|one| one.waits).count());
            prop_assert_eq!(pool.tasks, members.filter(|one| one.task.is_some()).count() as u64);
            prop_assert!(pool.capacity() >= pool.tasks() * TASK_GUARANTEE);
            if !shrunk {
                prop_assert!(pool.held() <= pool.capacity());
            }
        }
        // As long as those above their share give back when they are asked to, nobody waits for ever.
        for _ in 0..3 {
            for id in tasks.values() {
                if pool.ask(*id, MIB) == Answer::GiveBack {
                    pool.set(*id, Use::Builders, pool.low_water(*id));
                }
            }
        }
        for member in pool.members.values_mut().filter(|one| one.task.is_none()) {
            prop_assert!(member.total > 0, "an empty one is forgotten");
        }
        let left: Vec<MemberId> = pool.members.keys().copied().collect();
        for id in left.into_iter().filter(|id| !tasks.values().any(|one| one == id)) {
            pool.set(id, Use::Builders, 0);
        }
        for id in tasks.values() {
            prop_assert_eq!(pool.ask(*id, MIB), Answer::Granted);
        }
    }
}

// Promise: a key index in memory lets tasks give back, and does not make them wait for it
#[test]
fn an_index_is_not_waited_for() {
    let (mut pool, ids) = pool(384 * MIB, 1);
    let work = pool.work();
    pool.set(work, Use::KeyIndex, 150 * MIB);
    pool.set(ids[0], Use::OpenFiles, 234 * MIB);
    assert_eq!(pool.share(), 234 * MIB);
    assert_eq!(pool.ask(ids[0], ROOM_WANTED), Answer::GiveBack);
    assert!(pool.low_water(ids[0]) < 234 * MIB);
    // A commit ends by itself.
    pool.set(work, Use::Commits, 150 * MIB);
    pool.set(work, Use::KeyIndex, 0);
    assert_eq!(pool.share(), 384 * MIB);
    assert_eq!(pool.ask(ids[0], ROOM_WANTED), Answer::Wait);
    // An index as large as the pool leaves the guarantees.
    pool.set(work, Use::KeyIndex, 500 * MIB);
    assert_eq!(pool.share(), G);
}
