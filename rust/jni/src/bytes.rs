//! Borrows the caller's frame.
//!
//! Why the one `unsafe` here is sound: a direct buffer's memory lives as long as the Java object,
//! which the native's local reference keeps alive for the whole call; the slice borrows that
//! reference, so it cannot outlive it. It is read-only and of `u8`, so neither aliasing by Rust nor
//! alignment is a question. Java's only writer is the task thread, and that thread is in this call.
//!
//! Nothing here trusts a length that it has not compared with what is there.

use frazil_core::error::SinkError;
use jni::Env;
use jni::objects::JByteBuffer;
use jni::sys::jint;

use crate::exceptions::Failure;

/// Borrows the first `length` bytes of a direct buffer until `buffer` goes out of scope; returns the
/// buffer's capacity too.
pub(crate) fn direct<'a>(
    env: &Env,
    buffer: &'a JByteBuffer<'_>,
    length: jint,
) -> Result<(&'a [u8], usize), Failure> {
    let length = usize::try_from(length)
        .map_err(|_| SinkError::fatal("FRAME_LENGTH", "the frame's length is negative"))?;
    let (Ok(capacity), Ok(address)) = (
        env.get_direct_buffer_capacity(buffer),
        env.get_direct_buffer_address(buffer),
    ) else {
        return Err(SinkError::fatal("FRAME_BUFFER", "the frame is no direct buffer").into());
    };
    if length > capacity {
        return Err(SinkError::fatal(
            "FRAME_LENGTH",
            "the frame's length exceeds the buffer's capacity",
        )
        .with("length", length)
        .with("capacity", capacity)
        .into());
    }
    // SAFETY: `buffer` is a local reference of this call, so the JVM keeps its memory alive for
    // `'a`; `length <= capacity` was checked above; `u8` needs no alignment; and the Java caller
    // owns the only other reference and blocks in this call, so nobody writes meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(address, length) };
    Ok((bytes, capacity))
}

/// Returns the error of a number that Java's `int` cannot hold.
pub(crate) fn too_large(what: &str) -> SinkError {
    SinkError::internal(format!("{what} does not fit a Java int"))
}
