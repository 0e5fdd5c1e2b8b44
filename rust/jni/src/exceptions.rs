//! Turns an error or a panic into the Connect exception of its kind.
//!
//! The kind alone picks the class; the text is [`SinkError::report`].

use std::any::Any;
use std::cell::RefCell;
use std::sync::OnceLock;

use frazil_core::error::{ErrorKind, SinkError};
use frazil_core::panics::panic_error;
use jni::Env;
use jni::errors::{Error as JniError, ErrorPolicy, Result as JniResult};
use jni::jni_str;
use jni::objects::JClass;
use jni::refs::Global;
use jni::strings::{JNIStr, JNIString};

/// The exception classes of the framework, found once.
struct ExceptionClasses {
    retriable: Global<JClass<'static>>,
    data: Global<JClass<'static>>,
    config: Global<JClass<'static>>,
    connect: Global<JClass<'static>>,
}

static CLASSES: OnceLock<ExceptionClasses> = OnceLock::new();

thread_local! {
    /// Where this thread panicked last, as `file:line`.
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// An error on its way to Java: ours, or one of the JNI calls themselves.
pub(crate) struct Failure(SinkError);

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Self {
        Failure(error)
    }
}

impl From<JniError> for Failure {
    fn from(error: JniError) -> Self {
        // If a Java exception is pending it wins, and this text is not seen.
        Failure(SinkError::internal(format!("a JNI call failed: {error}")))
    }
}

/// Resolves the exception classes. Call once, from `JNI_OnLoad`: only there does `FindClass` use
/// the loader of the class that loaded us, whatever thread and context loader are current.
pub(crate) fn resolve(env: &mut Env) -> JniResult<()> {
    let mut find = |name: &JNIStr| -> JniResult<Global<JClass<'static>>> {
        let class = env.find_class(name)?;
        env.new_global_ref(class)
    };
    let classes = ExceptionClasses {
        retriable: find(jni_str!(
            "org/apache/kafka/connect/errors/RetriableException"
        ))?,
        data: find(jni_str!("org/apache/kafka/connect/errors/DataException"))?,
        config: find(jni_str!("org/apache/kafka/common/config/ConfigException"))?,
        connect: find(jni_str!("org/apache/kafka/connect/errors/ConnectException"))?,
    };
    // The JVM loads a library once, so there is nothing to lose when it is set already.
    let _ = CLASSES.set(classes);
    Ok(())
}

/// Replaces the default panic hook, which prints messages and backtraces to the worker's stderr,
/// by one that only remembers where the thread panicked. The hook is this library's own.
pub(crate) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let place = info
            .location()
            .map(|location| format!("{}:{}", location.file(), location.line()));
        // `try_with`: a thread that is ending may have dropped its slot already.
        let _ = PANICKED_AT.try_with(|slot| slot.replace(place));
    }));
}

/// Throws a [`SinkError`] as the Connect exception of its kind, and a panic as a fatal one.
pub(crate) struct ThrowConnectException;

impl<T: Default> ErrorPolicy<T, Failure> for ThrowConnectException {
    type Captures<'local: 'native, 'native> = ();

    fn on_error<'local: 'native, 'native>(
        env: &mut Env<'local>,
        _: &mut (),
        Failure(error): Failure,
    ) -> JniResult<T> {
        throw(env, error.kind(), &error.report())
    }

    fn on_panic<'local: 'native, 'native>(
        env: &mut Env<'local>,
        _: &mut (),
        payload: Box<dyn Any + Send>,
    ) -> JniResult<T> {
        let place = PANICKED_AT.with(RefCell::take);
        let error = panic_error(&*payload, place.as_deref());
        throw(env, error.kind(), &error.report())
    }
}

fn throw<T: Default>(env: &mut Env, kind: ErrorKind, message: &str) -> JniResult<T> {
    let pending = env.exception_check(); // a Java exception on its way up wins
    if let (false, Some(classes)) = (pending, CLASSES.get()) {
        let class = match kind {
            ErrorKind::Retriable => &classes.retriable,
            ErrorKind::Data => &classes.data,
            ErrorKind::Config => &classes.config,
            ErrorKind::Fatal => &classes.connect,
        };
        match env.throw_new(class, JNIString::new(message)) {
            Ok(()) | Err(JniError::JavaException) => {} // 0.22 reports a successful throw as `Err`
            Err(error) => return Err(error),
        }
    }
    Ok(T::default())
}
