//! Keeps the GNU C library from keeping what was freed.
//!
//! By itself it learns from what is freed: a block of some megabytes that goes raises the size up to which
//! blocks come from a thread's heap to its own, at most to 32 MiB, and what each heap may keep at its top to twice
//! that. Every task's thread has a heap. While tasks give memory back in turns, each heap keeps the most
//! that its task ever held, and the process comes to have far more than they hold together.
//!
//! Sizes that somebody set do not move. They hold for all of the process; the heap of Java and what Java
//! maps itself do not come from here.

use std::sync::Once;

/// Bytes from which a block is mapped alone, and unmapped when it is freed.
const MAPPED_FROM: i32 = 1 << 20;
/// Bytes that a heap keeps at its top.
const TOP_KEPT: i32 = 1 << 20;

static SETTLED: Once = Once::new();

/// Sets, once, what the allocator keeps; whoever starts the process may have said it before.
pub(super) fn settle() {
    SETTLED.call_once(|| {
        let is_set = |variable: &str, tunable: &str| {
            let tunables = std::env::var("GLIBC_TUNABLES").unwrap_or_default();
            std::env::var_os(variable).is_some() || tunables.contains(tunable)
        };
        if !is_set("MALLOC_MMAP_THRESHOLD_", "malloc.mmap_threshold") {
            set(Size::MappedFrom, MAPPED_FROM);
        }
        if !is_set("MALLOC_TRIM_THRESHOLD_", "malloc.trim_threshold") {
            set(Size::TopKept, TOP_KEPT);
        }
    });
}

/// A size of the allocator, with its number in `malloc.h`.
#[derive(Debug, Clone, Copy)]
enum Size {
    TopKept = -1,
    MappedFrom = -3,
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn set(size: Size, bytes: i32) {
    unsafe extern "C" {
        fn mallopt(parameter: i32, value: i32) -> i32;
    }
    // SAFETY: glibc has always had this function, with two integers; it takes the allocator's lock itself and
    // changes nothing of what is allocated.
    let done = unsafe { mallopt(size as i32, bytes) };
    if done == 0 {
        tracing::warn!(?size, bytes, "the allocator refuses a size");
    }
}

/// Other C libraries give back by themselves, or cannot be told.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn set(size: Size, bytes: i32) {
    tracing::debug!(?size, bytes, "this C library has no such size");
}
