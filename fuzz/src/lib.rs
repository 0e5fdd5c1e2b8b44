//! What the programs of this folder have in common: a bound on memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that reading one input may hold at a time. The largest that is meant is a block whose
/// lists have as many values as `BLOCK_SLOTS_MAX`, in columns and once more in Arrow arrays.
const HELD_MAX: usize = 384 << 20;

static HELD: AtomicUsize = AtomicUsize::new(0);
static HELD_BEFORE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The system's allocator, which counts.
pub struct Counting;

fn take(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
    let before = HELD_BEFORE.load(Ordering::Relaxed);
    if before != usize::MAX && held.saturating_sub(before) > HELD_MAX {
        HELD_BEFORE.store(usize::MAX, Ordering::Relaxed);
        eprintln!("one input holds more than {HELD_MAX} bytes of memory");
        std::process::abort();
    }
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(size);
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Lets `read` read an input and keeps an eye on what it holds.
pub fn bounded(read: impl FnOnce()) {
    HELD_BEFORE.store(HELD.load(Ordering::Relaxed), Ordering::Relaxed);
    read();
    HELD_BEFORE.store(usize::MAX, Ordering::Relaxed);
}

/// Makes the program of one target.
#[macro_export]
macro_rules! target {
    ($target:ident) => {
        #[global_allocator]
        static ALLOCATOR: $crate::Counting = $crate::Counting;

        libfuzzer_sys::fuzz_target!(|input: &[u8]| {
            $crate::bounded(|| frazil_core::fuzz::Target::$target.run(input));
        });
    };
}
