//! The JNI boundary: bytes in, bytes out, four kinds of failure.
//!
//! Every native of `io.frazil.connect.NativeSink` is in [`METHODS`] and takes and returns numbers,
//! `byte[]` or one direct buffer. Rust never calls Java and no thread of Rust attaches to the JVM.
//! A session is a number in a registry ([`sessions`]), so a late call meets a typed error and not
//! freed memory. A panic is unwound, poisons its session and becomes a `ConnectException`.
//!
//! This crate does not interpret frames, requests or effects: that is `frazil_core::wire`.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used))]
#![cfg_attr(not(test), deny(clippy::panic, clippy::indexing_slicing))]

mod bytes;
mod exceptions;
mod sessions;

use std::ffi::c_void;

use frazil_core::wire::decode_string_map;
use jni::errors::Result as JniResult;
use jni::objects::{JByteArray, JByteBuffer, JClass};
use jni::sys::{JNI_ERR, JNI_VERSION_1_8, jint, jlong};
use jni::{Env, JavaVM, NativeMethod, jni_str, native_method};

use exceptions::{Failure, ThrowConnectException};

/// Every native method of `NativeSink`; nothing else is exported.
const METHODS: &[NativeMethod] = &[
    native_method! {
        error_policy = ThrowConnectException,
        static fn version() -> jbyte[],
    },
    native_method! {
        error_policy = ThrowConnectException,
        static fn validate(config: jbyte[]) -> jbyte[],
    },
    native_method! {
        error_policy = ThrowConnectException,
        static fn open(config: jbyte[]) -> jlong,
    },
    native_method! {
        error_policy = ThrowConnectException,
        static fn register_schema(session: jlong, schema: jbyte[]) -> jint,
    },
    native_method! {
        error_policy = ThrowConnectException,
        static fn put(session: jlong, frame: java.nio.ByteBuffer, length: jint) -> jbyte[],
    },
    native_method! {
        error_policy = ThrowConnectException,
        static fn control(session: jlong, request: jbyte[]) -> jbyte[],
    },
    native_method! {
        error_policy = ThrowConnectException,
        static fn close(session: jlong),
    },
];

/// Registers the natives when the JVM loads the library.
///
/// # Safety
///
/// Only the JVM may call this, once, when it loads the library.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn JNI_OnLoad(vm: *mut jni::sys::JavaVM, _: *mut c_void) -> jint {
    // SAFETY: the JVM passes a valid pointer to the only VM of this process.
    let vm = unsafe { JavaVM::from_raw(vm) };
    exceptions::install_panic_hook();
    let loaded = std::panic::catch_unwind(|| {
        vm.attach_current_thread(|env| -> JniResult<()> {
            exceptions::resolve(env)?;
            let class = env.find_class(jni_str!("io/frazil/connect/NativeSink"))?;
            // SAFETY: `native_method!` checked each function against its signature.
            unsafe { env.register_native_methods(class, METHODS) }
        })
    });
    // The JVM reports a failure here as `unsupported JNI version`, so the cause is printed first.
    match loaded {
        Ok(Ok(())) => JNI_VERSION_1_8,
        Ok(Err(error)) => {
            eprintln!("libfrazil cannot register its natives: {error}");
            JNI_ERR
        }
        Err(_) => {
            eprintln!("libfrazil cannot register its natives: it panicked");
            JNI_ERR
        }
    }
}

fn version<'local>(
    env: &mut Env<'local>,
    _: JClass<'local>,
) -> Result<JByteArray<'local>, Failure> {
    Ok(env.byte_array_from_slice(env!("CARGO_PKG_VERSION").as_bytes())?)
}

fn validate<'local>(
    env: &mut Env<'local>,
    _: JClass<'local>,
    config: JByteArray<'local>,
) -> Result<JByteArray<'local>, Failure> {
    let config = decode_string_map(&env.convert_byte_array(&config)?)?;
    Ok(env.byte_array_from_slice(&frazil_engine::validate(&config))?)
}

fn open<'local>(
    env: &mut Env<'local>,
    _: JClass<'local>,
    config: JByteArray<'local>,
) -> Result<jlong, Failure> {
    let config = decode_string_map(&env.convert_byte_array(&config)?)?;
    Ok(sessions::open(config)?)
}

fn register_schema<'local>(
    env: &mut Env<'local>,
    _: JClass<'local>,
    session: jlong,
    schema: JByteArray<'local>,
) -> Result<jint, Failure> {
    let entry = sessions::get(session)?;
    let schema = env.convert_byte_array(&schema)?;
    let id = entry.call(|session| session.register_schema(&schema))?;
    Ok(jint::try_from(id).map_err(|_| bytes::too_large("schema id"))?)
}

fn put<'local>(
    env: &mut Env<'local>,
    _: JClass<'local>,
    session: jlong,
    frame: JByteBuffer<'local>,
    length: jint,
) -> Result<JByteArray<'local>, Failure> {
    let entry = sessions::get(session)?; // an `Arc`: a concurrent `close` cannot free it
    let (frame, capacity) = bytes::direct(env, &frame, length)?;
    let effects = entry.call(|session| session.put(frame, capacity))?; // copies what it keeps
    Ok(env.byte_array_from_slice(&effects)?)
}

fn control<'local>(
    env: &mut Env<'local>,
    _: JClass<'local>,
    session: jlong,
    request: JByteArray<'local>,
) -> Result<JByteArray<'local>, Failure> {
    let entry = sessions::get(session)?;
    let request = env.convert_byte_array(&request)?;
    let effects = sessions::control(&entry, &request)?;
    Ok(env.byte_array_from_slice(&effects)?)
}

fn close<'local>(_: &mut Env<'local>, _: JClass<'local>, session: jlong) -> Result<(), Failure> {
    sessions::close(session);
    Ok(())
}
