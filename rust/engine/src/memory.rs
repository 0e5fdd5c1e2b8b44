//! The native memory of the process: one pool that everything draws from.
//!
//! [`frazil_core::memory`] decides; here are the lock around it and what counts by itself:
//!
//! - an [`Account`] is a task's place in the pool, and is given up when it is dropped;
//! - a [`Draw`] is memory of one size, such as a merge of manifests, and is given back when it is
//!   dropped; it may be a task's ([`Account::draw`]) or nobody's ([`Memory::draw`]; what can be done in
//!   smaller steps looks at [`Memory::room`] first);
//! - a [`Meter`] counts what comes and goes on other threads, such as uploads.
//!
//! All of them may outlive the task: what it still holds counts until it is gone.

mod allocator;
mod limit;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use frazil_core::config::{ConfigProblem, SinkConfig};
use frazil_core::memory::{
    Answer, Joining, Limit, MemberId, Pool, PoolSize, TASK_GUARANTEE, Use, configured_size,
    pool_size, too_small,
};
use frazil_core::{Result, SinkError};
use once_cell::sync::Lazy;

/// The least peak that is logged at once.
const NEWS_MIN: u64 = 16 << 20;
/// The time after which any higher peak is logged.
const NEWS_AFTER: Duration = Duration::from_secs(30);
const KEY: &str = "frazil.memory.max.bytes";

static PROCESS: Lazy<Arc<Memory>> = Lazy::new(|| Memory::new(limit::find(Path::new("/"))));

/// The memory of a process. A test makes its own.
#[derive(Debug)]
pub struct Memory {
    pool: Mutex<Pool>,
    /// The peak that was logged last, and when.
    said: Mutex<(u64, Instant)>,
    /// What the process may use; `None` when nothing says it.
    limit: Option<Limit>,
}

/// The pool as a whole, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Its size.
    pub capacity: u64,
    /// What is held.
    pub held: u64,
    /// The most that was ever held.
    pub peak: u64,
    /// What is held, by use.
    pub uses: String,
}

impl Memory {
    /// Returns the pool of this process, which all tasks of all its connectors share.
    pub fn of_process() -> Arc<Memory> {
        Arc::clone(&PROCESS)
    }

    /// Makes a pool of a process that may use as much as `limit`, whose allocator from now on keeps little of what
    /// is freed.
    pub fn new(limit: Option<Limit>) -> Arc<Memory> {
        allocator::settle();
        Arc::new(Memory {
            pool: Mutex::default(),
            said: Mutex::new((0, Instant::now())),
            limit,
        })
    }

    /// Takes in the task that `config` describes.
    ///
    /// # Errors
    ///
    /// `MEMORY_TOO_SMALL` when the pool has not the guarantee for it, `MEMORY_UNKNOWN` when neither
    /// the configuration nor the system says how much memory there is.
    pub fn join(self: &Arc<Self>, config: &SinkConfig) -> Result<Account> {
        let configured = config.memory.pool_bytes;
        let default = match (self.default_size(config), configured) {
            (Ok(default), _) => Some(default),
            (Err(_), Some(_)) => None,
            (Err(error), None) => return Err(error),
        };
        let member = self.lock().join(Joining {
            connector: config.connector.clone(),
            task: config.task,
            configured,
            default,
        })?;
        Ok(Account {
            memory: Arc::clone(self),
            member,
        })
    }

    /// Says what is wrong with the memory that the tasks of `config` would have in a process like
    /// this one.
    pub fn check(&self, config: &SinkConfig) -> Option<ConfigProblem> {
        let size = match config.memory.pool_bytes {
            // The key's own range has the guarantee of one task.
            Some(bytes) => Ok((bytes, configured_size(bytes))),
            None => self
                .default_size(config)
                .map(|size| (size.bytes, size.to_string())),
        };
        let (bytes, said) = match size {
            Ok(size) => size,
            Err(error) => return Some(ConfigProblem::error(KEY, error.report())),
        };
        let tasks = config.tasks_max as u64;
        let room = bytes / TASK_GUARANTEE;
        if room == 0 {
            return Some(ConfigProblem::error(KEY, too_small(1, &said).report()));
        }
        (room < tasks).then(|| {
            let message = format!(
                "a worker like this one has room for {room} of the {tasks} tasks, which need \
                 {TASK_GUARANTEE} bytes of native memory each: {said}. The others start only on \
                 other workers"
            );
            ConfigProblem::warning(KEY, message)
        })
    }

    /// Notes that `bytes` are held for what belongs to no task. They are never refused: whoever
    /// draws them has a limit of its own.
    pub fn draw(self: &Arc<Self>, what: Use, bytes: u64) -> Draw {
        let mut pool = self.lock();
        let member = pool.work();
        pool.draw(member, what, bytes);
        self.drawn(member, what, bytes, true)
    }

    /// Returns the bytes that nobody has and no task is sure of.
    pub fn room(&self) -> u64 {
        self.lock().room()
    }

    /// Returns the bytes that what lasts may have beside what lasts already, once tasks gave back what they
    /// have above their shares.
    pub fn lasting_room(&self) -> u64 {
        self.lock().lasting_room()
    }

    /// Returns the state of the whole pool.
    pub fn usage(&self) -> Usage {
        let pool = self.lock();
        Usage {
            capacity: pool.capacity(),
            held: pool.held(),
            peak: pool.peak(),
            uses: pool.uses().to_string(),
        }
    }

    /// Returns what a task may hold when all want memory.
    pub(crate) fn share(&self) -> u64 {
        self.lock().share()
    }

    /// Returns the bytes that all hold together for one use.
    pub(crate) fn held_for(&self, what: Use) -> u64 {
        self.lock().uses().of(what)
    }

    /// Returns the state of the pool when it should be logged: its peak rose by an eighth, or rose at
    /// all and nothing was said of it for a while.
    pub(crate) fn news(&self) -> Option<Usage> {
        let usage = self.usage();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let (peak, at) = *said;
        let rose = usage.peak > peak && at.elapsed() >= NEWS_AFTER;
        if rose || usage.peak > (peak + peak / 8).max(NEWS_MIN) {
            *said = (usage.peak, Instant::now());
            return Some(usage);
        }
        None
    }

    fn drawn(self: &Arc<Self>, member: MemberId, what: Use, bytes: u64, alone: bool) -> Draw {
        Draw {
            memory: Arc::clone(self),
            member,
            what,
            bytes,
            alone,
        }
    }

    fn default_size(&self, config: &SinkConfig) -> Result<PoolSize> {
        let limit = self.limit.ok_or_else(|| {
            SinkError::config(
                "MEMORY_UNKNOWN",
                format!("this system does not say how much memory it has; set `{KEY}`"),
            )
        })?;
        Ok(pool_size(limit, config.memory.heap_bytes))
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        // The pool is changed by calls that do not panic half-way.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task's place in the pool.
#[derive(Debug)]
pub struct Account {
    memory: Arc<Memory>,
    member: MemberId,
}

impl Account {
    /// Notes how many bytes the task holds, for each of some uses.
    pub fn note(&self, held: &[(Use, u64)]) {
        let mut pool = self.memory.lock();
        for (what, bytes) in held {
            pool.set(self.member, *what, *bytes);
        }
    }

    /// Asks whether the task may draw `bytes`.
    pub fn ask(&self, bytes: u64) -> Standing {
        let mut pool = self.memory.lock();
        let answer = pool.ask(self.member, bytes);
        let of = |what| pool.held_by(self.member).map_or(0, |held| held.of(what));
        Standing {
            answer,
            held: pool.total(self.member),
            leaving: of(Use::Uploads) + of(Use::Sealed),
            share: pool.share(),
            low_water: pool.low_water(self.member),
        }
    }

    /// Returns what the task holds.
    pub fn held(&self) -> u64 {
        self.memory.lock().total(self.member)
    }

    /// Returns what the task holds, by use.
    pub fn uses(&self) -> String {
        let pool = self.memory.lock();
        let held = pool.held_by(self.member);
        held.map(ToString::to_string).unwrap_or_default()
    }

    /// Notes that the task holds `bytes` for `what`, until they are dropped.
    pub fn draw(&self, what: Use, bytes: u64) -> Draw {
        self.memory.lock().draw(self.member, what, bytes);
        self.memory.drawn(self.member, what, bytes, false)
    }

    /// Returns what counts bytes of `what` by itself.
    pub fn meter(&self, what: Use) -> Meter {
        Meter(Arc::new(Counted {
            bytes: AtomicUsize::new(0),
            draws: Some((Arc::clone(&self.memory), self.member, what)),
        }))
    }

    /// Gives the place up; what is still on its way counts until it is gone.
    pub fn leave(&self) {
        self.memory.lock().leave(self.member);
    }

    /// Returns the pool.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.leave();
    }
}

/// What a task may do, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// What it may do.
    pub answer: Answer,
    /// What it holds.
    pub held: u64,
    /// The part of that which goes by itself: uploads, and segments whose manifests are written.
    pub leaving: u64,
    /// What it may hold when all tasks want memory.
    pub share: u64,
    /// What it comes down to when it has to give back.
    pub low_water: u64,
}

impl Standing {
    /// Returns what has to go, beside what goes by itself, for the task to be down at its low water.
    pub(crate) fn excess(&self) -> u64 {
        let stays = self.held.saturating_sub(self.leaving);
        stays.saturating_sub(self.low_water)
    }
}

/// Memory that is held until this is dropped.
#[derive(Debug)]
pub struct Draw {
    memory: Arc<Memory>,
    member: MemberId,
    what: Use,
    bytes: u64,
    /// Nothing else is drawn under this member.
    alone: bool,
}

impl Draw {
    /// Notes that it is another number of bytes now.
    pub fn resize(&mut self, bytes: u64) {
        let mut pool = self.memory.lock();
        match bytes > self.bytes {
            true => pool.draw(self.member, self.what, bytes - self.bytes),
            false => pool.give_back(self.member, self.what, self.bytes - bytes),
        }
        if bytes == 0 && self.alone {
            // The pool forgets a member that has nothing.
            pool.leave(self.member);
            self.member = pool.work();
        }
        self.bytes = bytes;
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Draw {
    fn drop(&mut self) {
        let mut pool = self.memory.lock();
        pool.give_back(self.member, self.what, self.bytes);
        if self.alone {
            pool.leave(self.member);
        }
    }
}

/// Counts bytes that come and go on any thread.
#[derive(Debug, Clone)]
pub struct Meter(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    bytes: AtomicUsize,
    draws: Option<(Arc<Memory>, MemberId, Use)>,
}

impl Meter {
    /// Makes one that draws from no pool.
    pub fn detached() -> Self {
        Meter(Arc::new(Counted {
            bytes: AtomicUsize::new(0),
            draws: None,
        }))
    }

    /// Returns one that counts apart and draws from the same pool.
    #[must_use]
    pub fn another(&self) -> Self {
        Meter(Arc::new(Counted {
            bytes: AtomicUsize::new(0),
            draws: self.0.draws.clone(),
        }))
    }

    /// Counts `bytes` more.
    pub fn add(&self, bytes: usize) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some((memory, member, what)) = &self.0.draws {
            memory.lock().draw(*member, *what, bytes as u64);
        }
    }

    /// Counts `bytes` less.
    pub fn sub(&self, bytes: usize) {
        self.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some((memory, member, what)) = &self.0.draws {
            memory.lock().give_back(*member, *what, bytes as u64);
        }
    }

    /// Returns the bytes counted.
    pub fn get(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
