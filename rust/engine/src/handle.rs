//! What one native handle of the Java side serves.

use std::collections::BTreeMap;
use std::sync::Arc;

use frazil_core::config::Role;
use frazil_core::{Result, SinkError};

use crate::admin::Admin;
use crate::channel::ControlChannel;
use crate::session::Session;

/// A session of a task, a process's end of the control topic, or the connector's own access to its
/// tables.
#[derive(Debug, Clone)]
pub enum Handle {
    /// One task.
    Session(Arc<Session>),
    /// Offset resets and epochs.
    Admin(Arc<Admin>),
    /// The control topic, for all tasks of the connector in this process.
    Channel(Arc<ControlChannel>),
}

/// Opens what `frazil.internal.role` asks for.
///
/// # Errors
///
/// As [`Session::open`], [`ControlChannel::open`] and [`Admin::open`].
pub fn open(settings: BTreeMap<String, String>) -> Result<Handle> {
    match Role::of(&settings) {
        Role::Task => Session::open(settings).map(Handle::Session),
        Role::Channel => ControlChannel::open(&settings).map(Handle::Channel),
        Role::Admin => Admin::open(&settings).map(Handle::Admin),
    }
}

impl Handle {
    /// Registers a source schema; see [`Session::register_schema`].
    ///
    /// # Errors
    ///
    /// As [`Session::register_schema`]; `INTERNAL` when this is no task's handle.
    pub fn register_schema(&self, bytes: &[u8]) -> Result<u32> {
        self.session()?.register_schema(bytes)
    }

    /// Takes one frame of records in, from a buffer of `buffer_bytes`; see [`Session::put_from`].
    ///
    /// # Errors
    ///
    /// As [`Session::put_from`]; `INTERNAL` when this is no task's handle.
    pub fn put(&self, frame: &[u8], buffer_bytes: usize) -> Result<Vec<u8>> {
        self.session()?.put_from(frame, buffer_bytes)
    }

    /// Answers a control request with effects.
    ///
    /// # Errors
    ///
    /// As [`Session::control`], [`ControlChannel::control`] and [`Admin::control`].
    pub fn control(&self, request: &[u8]) -> Result<Vec<u8>> {
        match self {
            Handle::Session(session) => session.control(request),
            Handle::Channel(channel) => channel.control(request),
            Handle::Admin(admin) => admin.control(request),
        }
    }

    /// Ends what the handle serves.
    pub fn close(&self) {
        match self {
            Handle::Session(session) => session.close(),
            Handle::Admin(_) => {}
            Handle::Channel(channel) => channel.close(),
        }
    }

    fn session(&self) -> Result<&Session> {
        match self {
            Handle::Session(session) => Ok(session),
            Handle::Admin(_) | Handle::Channel(_) => Err(SinkError::internal(
                "records were handed to a handle that is no task's",
            )),
        }
    }
}
