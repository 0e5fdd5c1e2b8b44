use frazil_core::config::{Level, SinkConfig};
use frazil_core::memory::LimitKind;

use super::*;
use crate::test_config::sound_config;

const MIB: u64 = 1 << 20;

fn config(changes: &[(&str, &str)]) -> SinkConfig {
    let worker = [
        ("tasks.max", "8"),
        ("frazil.internal.heap-max-bytes", "536870912"),
    ];
    sound_config(&[&worker, changes].concat())
}

fn container(mib: u64) -> Arc<Memory> {
    Memory::new(Some(Limit {
        bytes: mib * MIB,
        kind: LimitKind::Container,
    }))
}

#[test]
fn validate_says_how_many_tasks_a_worker_has_room_for() {
    assert_eq!(container(1_536).check(&config(&[])), None, "8 of 12");
    let some = container(1_000).check(&config(&[])).expect("116 MiB");
    assert_eq!((some.key.as_str(), some.level), (KEY, Level::Warning));
    assert!(
        some.message.contains("room for 3 of the 8 tasks"),
        "{}",
        some.message
    );
    let none = container(800).check(&config(&[])).expect("16 MiB");
    assert_eq!(none.level, Level::Error);
    for part in [
        "MEMORY_TOO_SMALL",
        "800 MiB limit of the container - 512 MiB largest heap",
    ] {
        assert!(none.message.contains(part), "{}", none.message);
    }
    let configured = config(&[(KEY, "268435456")]);
    assert_eq!(container(800).check(&configured), None, "it says otherwise");
}

#[test]
fn a_system_that_does_not_say_its_memory_needs_the_key() {
    let memory = Memory::new(None);
    let error = memory.join(&config(&[])).expect_err("nothing is known");
    assert_eq!(error.code(), "MEMORY_UNKNOWN");
    let problem = memory.check(&config(&[])).expect("a problem");
    assert!(
        problem.message.contains("MEMORY_UNKNOWN"),
        "{}",
        problem.message
    );
    let account = memory
        .join(&config(&[(KEY, "67108864")]))
        .expect("it is said");
    assert_eq!(account.memory().usage().capacity, 64 * MIB);
}

#[test]
fn everything_is_given_back_by_itself() {
    let memory = container(1_536);
    let account = memory.join(&config(&[])).expect("room");
    account.note(&[(Use::Builders, MIB), (Use::Gathered, 2 * MIB)]);
    let meter = account.meter(Use::Uploads);
    let other = meter.another();
    meter.add(3 << 20);
    other.add(1 << 20);
    let sealed = account.draw(Use::Sealed, MIB);
    let commit = memory.draw(Use::Commits, MIB);
    assert_eq!((meter.get(), other.get()), (3 << 20, 1 << 20));
    assert_eq!(account.held(), 8 * MIB);
    assert_eq!(
        memory.usage().uses,
        "builders=1048576 gathered=2097152 uploads=4194304 sealed=1048576 commits=1048576"
    );
    account.note(&[(Use::Builders, 0), (Use::Gathered, 0)]);
    drop(account);
    assert_eq!(memory.usage().held, 6 * MIB, "it goes on without the task");
    meter.sub(3 << 20);
    other.sub(1 << 20);
    drop((sealed, commit));
    assert_eq!((memory.usage().held, memory.usage().peak), (0, 9 * MIB));
    assert_eq!(memory.usage().capacity, 0, "no task is left");
}

#[test]
fn room_is_what_nobody_has_and_no_task_is_sure_of() {
    let memory = Memory::new(None);
    assert_eq!(memory.room(), u64::MAX, "there is no task");
    let account = memory.join(&config(&[(KEY, "67108864")])).expect("room");
    assert_eq!(memory.room(), 32 * MIB, "without the guarantee");
    let drawn = memory.draw(Use::Commits, 20 * MIB);
    assert_eq!(memory.room(), 12 * MIB);
    account.note(&[(Use::Gathered, 40 * MIB)]);
    assert_eq!(memory.room(), 4 * MIB);
    drop(drawn);
    account.note(&[(Use::Gathered, 64 * MIB)]);
    assert_eq!(memory.room(), 0);
}

#[test]
fn what_goes_by_itself_need_not_be_given_back() {
    let memory = Memory::new(None);
    let account = memory.join(&config(&[(KEY, "33554432")])).expect("room");
    account.note(&[
        (Use::Frames, 4 * MIB),
        (Use::OpenFiles, 22 * MIB),
        (Use::Uploads, 4 * MIB),
    ]);
    let _sealed = account.draw(Use::Sealed, MIB);
    let standing = account.ask(MIB);
    assert_eq!((standing.held, standing.leaving), (31 * MIB, 5 * MIB));
    assert_eq!(standing.low_water, 24 * MIB);
    assert_eq!(standing.excess(), 2 * MIB, "frames count");
}

#[test]
fn a_higher_peak_is_said_once() {
    let memory = container(1_536);
    let account = memory.join(&config(&[])).expect("room");
    account.note(&[(Use::Builders, 20 * MIB)]);
    assert_eq!(memory.news().map(|usage| usage.peak), Some(20 * MIB));
    assert_eq!(memory.news(), None);
    account.note(&[(Use::Builders, 21 * MIB)]);
    assert_eq!(memory.news(), None, "hardly more");
    account.note(&[(Use::Builders, 24 * MIB)]);
    assert_eq!(memory.news().map(|usage| usage.peak), Some(24 * MIB));
}
