//! Who may hold how much of the native memory of a process.
//!
//! All tasks of a process draw from one [`Pool`]. Each has a *guarantee*, which nobody else can take
//! from it; what is left of the pool is *common* and is drawn first come, first served:
//!
//! ```text
//!  pool = guarantee × tasks + common          share of a task = guarantee + (common - lasting) / tasks
//! ```
//!
//! What lasts are key indexes: no task that waits would ever see them given back.
//!
//! While there is common memory to spare, a task may hold more than its share. When there is none,
//! tasks above their share give back, and those below it wait until they have. A task below its
//! guarantee waits for nobody. What belongs to no task, such as commits, counts against the common
//! part and is never refused: it is bounded by limits of its own.
//!
//! Invariant: as long as each task asks before it draws, what is held is never more than the pool
//! and one frame of each task.

mod size;

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{Result, SinkError};

pub use size::{Limit, LimitKind, PoolSize, pool_size};

/// Bytes of which every task may be sure.
pub const TASK_GUARANTEE: u64 = crate::limits::TASK_MEMORY_MIN;
/// The room that a task wants to see before it goes on: a frame as Java cuts them.
pub const ROOM_WANTED: u64 = 1 << 20;
/// The most that a task asks for at once. A frame may be larger: it is the one that may go beyond.
const ASKED_MAX: u64 = TASK_GUARANTEE / 4;

/// What memory is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// The buffer that Java hands records over in.
    Frames,
    /// What bytes of records were decoded into, for one frame.
    Decoding,
    /// Rows that are no batch yet.
    Builders,
    /// Batches that wait for their file.
    Gathered,
    /// Row groups and parts of files that are being written.
    OpenFiles,
    /// What is known of files that ended, until they are sealed.
    EndedFiles,
    /// Parts of files on their way to the storage.
    Uploads,
    /// Segments whose manifests are being written.
    Sealed,
    /// Commits: manifests that are read, merged and written.
    Commits,
    /// Where the rows of each key are.
    KeyIndex,
    /// Files that are written again.
    Rewrites,
}

impl Use {
    /// All uses, in the order in which data walks through them.
    pub const ALL: [Use; 11] = [
        Use::Frames,
        Use::Decoding,
        Use::Builders,
        Use::Gathered,
        Use::OpenFiles,
        Use::EndedFiles,
        Use::Uploads,
        Use::Sealed,
        Use::Commits,
        Use::KeyIndex,
        Use::Rewrites,
    ];

    /// Tells whether it is held from commit to commit, whatever tasks wait for.
    fn lasts(self) -> bool {
        matches!(self, Use::KeyIndex)
    }

    /// Returns the name in logs.
    pub fn name(self) -> &'static str {
        match self {
            Use::Frames => "frames",
            Use::Decoding => "decoding",
            Use::Builders => "builders",
            Use::Gathered => "gathered",
            Use::OpenFiles => "open-files",
            Use::EndedFiles => "ended-files",
            Use::Uploads => "uploads",
            Use::Sealed => "sealed",
            Use::Commits => "commits",
            Use::KeyIndex => "key-index",
            Use::Rewrites => "rewrites",
        }
    }
}

/// Bytes by what they are used for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held(BTreeMap<Use, u64>);

impl Held {
    /// Returns the bytes of one use.
    pub fn of(&self, what: Use) -> u64 {
        self.0.get(&what).copied().unwrap_or(0)
    }

    fn set(&mut self, what: Use, bytes: u64) {
        match bytes {
            0 => drop(self.0.remove(&what)),
            _ => drop(self.0.insert(what, bytes)),
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (what, bytes)) in self.0.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{}={bytes}", what.name())?;
        }
        Ok(())
    }
}

/// Names a member of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberId(u64);

/// A task as it asks to join a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joining {
    /// The connector's name.
    pub connector: String,
    /// The index of the task.
    pub task: usize,
    /// The size of the pool as its configuration has it.
    pub configured: Option<u64>,
    /// The size of the pool when no task has one configured; `None` when nothing says it.
    pub default: Option<PoolSize>,
}

/// What a task may do about memory now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It may draw what it asked for.
    Granted,
    /// It has to wait until others have given back: it holds no more than its share.
    Wait,
    /// It has to give back: it holds, or would, more than its share of a pool that is used up.
    GiveBack,
}

#[derive(Debug)]
struct Member {
    /// The connector and the task; `None` once it has left, and for what belongs to no task.
    task: Option<(String, usize)>,
    configured: Option<u64>,
    default: u64,
    held: Held,
    total: u64,
    waits: bool,
}

impl Member {
    fn guarantee(&self) -> u64 {
        match self.task {
            Some(_) => TASK_GUARANTEE,
            None => 0,
        }
    }

    /// What it has of the common part.
    fn common(&self) -> u64 {
        self.total.saturating_sub(self.guarantee())
    }
}

/// The memory of a process, and who holds it.
#[derive(Debug, Default)]
pub struct Pool {
    members: BTreeMap<MemberId, Member>,
    next: u64,
    tasks: u64,
    capacity: u64,
    common_used: u64,
    lasting: u64,
    held: u64,
    peak: u64,
    waiting: usize,
}

impl Pool {
    /// Takes a task in. One that is still there under the same name has been given up by Connect: it
    /// loses its guarantee.
    ///
    /// # Errors
    ///
    /// `MEMORY_TOO_SMALL` when the pool has not the guarantee for it.
    pub fn join(&mut self, joining: Joining) -> Result<MemberId> {
        let name = Some((joining.connector.clone(), joining.task));
        let before = self.members.iter().find(|(_, one)| one.task == name);
        if let Some(before) = before.map(|(id, _)| *id) {
            self.leave(before);
        }
        let tasks = self.tasks + 1;
        let configured = self.configured().max(joining.configured);
        let default = joining.default.map_or(0, |size| size.bytes);
        if configured.unwrap_or(default) < tasks * TASK_GUARANTEE {
            let size = match (configured, joining.default) {
                (Some(bytes), _) => configured_size(bytes),
                (None, Some(size)) => size.to_string(),
                (None, None) => "nothing says how much there is".to_owned(),
            };
            return Err(too_small(tasks, &size));
        }
        let id = self.add(Member {
            task: name,
            configured: joining.configured,
            default,
            held: Held::default(),
            total: 0,
            waits: false,
        });
        self.tasks = tasks;
        self.resize();
        Ok(id)
    }

    /// Takes in what belongs to no task.
    pub fn work(&mut self) -> MemberId {
        self.add(Member {
            task: None,
            configured: None,
            default: 0,
            held: Held::default(),
            total: 0,
            waits: false,
        })
    }

    /// A member is gone. What it still holds counts until it is given back.
    pub fn leave(&mut self, id: MemberId) {
        self.settle(id, false);
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        if member.task.is_some() {
            let before = member.common();
            member.task = None;
            (member.configured, member.default) = (None, 0);
            let after = member.common();
            self.common_used = self.common_used + after - before;
            self.tasks -= 1;
            self.resize();
        }
        self.forget(id);
    }

    /// Notes that a member holds `bytes` for `what`.
    pub fn set(&mut self, id: MemberId, what: Use, bytes: u64) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        let (before, common) = (member.held.of(what), member.common());
        if before == bytes {
            return;
        }
        member.held.set(what, bytes);
        member.total = member.total.saturating_sub(before) + bytes;
        self.held = self.held.saturating_sub(before) + bytes;
        if what.lasts() {
            self.lasting = self.lasting.saturating_sub(before) + bytes;
        }
        self.common_used = self.common_used.saturating_sub(common) + member.common();
        self.peak = self.peak.max(self.held);
        self.forget(id);
    }

    /// Notes that a member holds `bytes` more for `what`.
    pub fn draw(&mut self, id: MemberId, what: Use, bytes: u64) {
        let before = self.held_by(id).map_or(0, |held| held.of(what));
        self.set(id, what, before.saturating_add(bytes));
    }

    /// Notes that a member gave `bytes` back.
    pub fn give_back(&mut self, id: MemberId, what: Use, bytes: u64) {
        let before = self.held_by(id).map_or(0, |held| held.of(what));
        self.set(id, what, before.saturating_sub(bytes));
    }

    /// Says whether a task may draw `bytes`.
    pub fn ask(&mut self, id: MemberId, bytes: u64) -> Answer {
        let asked = bytes.clamp(ROOM_WANTED, ASKED_MAX);
        let Some(member) = self.members.get(&id) else {
            return Answer::Granted;
        };
        let wanted = member.total.saturating_add(asked);
        let more = wanted.saturating_sub(member.guarantee()) - member.common();
        let is_above = wanted > self.share();
        let others_wait = self.waiting > usize::from(member.waits);
        let fits = more <= self.common_free() && !(is_above && others_wait);
        // One whose place was given to another, too: it is about to end, and has a little to write.
        let answer = if wanted <= TASK_GUARANTEE || fits {
            Answer::Granted
        } else if is_above {
            Answer::GiveBack
        } else {
            Answer::Wait
        };
        self.settle(id, answer == Answer::Wait);
        answer
    }

    /// Returns the bytes that nobody has and no task is sure of: any number in a process without tasks.
    pub fn room(&self) -> u64 {
        match self.tasks {
            0 => u64::MAX,
            _ => self.common_free(),
        }
    }

    /// Returns the bytes that what lasts may have beside what lasts already: any number in a process without
    /// tasks.
    pub fn lasting_room(&self) -> u64 {
        match self.tasks {
            0 => u64::MAX,
            _ => self.common().saturating_sub(self.lasting),
        }
    }

    /// Returns what a task that gives back should come down to: three quarters of its share when others
    /// wait, else of what it may hold now. That leaves room for more than the next frame, and lets files
    /// that are not the largest go on growing.
    pub fn low_water(&self, id: MemberId) -> u64 {
        let member = self.members.get(&id);
        let others_wait = self.waiting > usize::from(member.is_some_and(|one| one.waits));
        let may_hold = match member {
            Some(member) if !others_wait => {
                member.guarantee() + member.common() + self.common_free()
            }
            _ => 0,
        };
        let most = self.share().max(may_hold);
        most - most / 4
    }

    /// Returns what each task may hold when all want memory.
    pub fn share(&self) -> u64 {
        match self.tasks {
            0 => self.capacity,
            tasks => TASK_GUARANTEE + self.common().saturating_sub(self.lasting) / tasks,
        }
    }

    /// Returns the size of the pool.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the number of tasks.
    pub fn tasks(&self) -> u64 {
        self.tasks
    }

    /// Returns what all members hold.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Returns the most that all members have ever held.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// Returns what one member holds, by use.
    pub fn held_by(&self, id: MemberId) -> Option<&Held> {
        self.members.get(&id).map(|member| &member.held)
    }

    /// Returns what one member holds.
    pub fn total(&self, id: MemberId) -> u64 {
        self.members.get(&id).map_or(0, |member| member.total)
    }

    /// Returns what all members hold, by use.
    pub fn uses(&self) -> Held {
        let mut all = Held::default();
        for what in Use::ALL {
            let members = self.members.values();
            all.set(what, members.map(|member| member.held.of(what)).sum());
        }
        all
    }

    fn common(&self) -> u64 {
        self.capacity.saturating_sub(self.tasks * TASK_GUARANTEE)
    }

    fn common_free(&self) -> u64 {
        self.common().saturating_sub(self.common_used)
    }

    /// The largest size that a task has configured.
    fn configured(&self) -> Option<u64> {
        self.members.values().map(|one| one.configured).max()?
    }

    fn add(&mut self, member: Member) -> MemberId {
        let id = MemberId(self.next);
        self.next += 1;
        self.members.insert(id, member);
        id
    }

    /// Takes the size that the members have configured; a guarantee that was given is kept.
    fn resize(&mut self) {
        let default = self.members.values().map(|one| one.default).max();
        let wanted = self.configured().or(default).unwrap_or(0);
        self.capacity = wanted.max(self.tasks * TASK_GUARANTEE);
    }

    fn settle(&mut self, id: MemberId, waits: bool) {
        if let Some(member) = self.members.get_mut(&id) {
            self.waiting = self.waiting - usize::from(member.waits) + usize::from(waits);
            member.waits = waits;
        }
    }

    /// Forgets a member that has left and holds nothing.
    fn forget(&mut self, id: MemberId) {
        let member = self.members.get(&id);
        if member.is_some_and(|one| one.task.is_none() && one.total == 0) {
            self.members.remove(&id);
        }
    }
}

/// Says how large the pool is by its configuration.
pub fn configured_size(bytes: u64) -> String {
    format!("`frazil.memory.max.bytes` is {bytes} bytes")
}

/// Refuses a start, with the arithmetic.
pub fn too_small(tasks: u64, size: &str) -> SinkError {
    let needed = tasks * TASK_GUARANTEE;
    SinkError::config(
        "MEMORY_TOO_SMALL",
        format!(
            "{tasks} tasks in this process need {tasks} x {TASK_GUARANTEE} = {needed} bytes of \
             native memory, and {size}: give the container more memory, the JVM less heap, or the \
             worker fewer tasks, or set `frazil.memory.max.bytes`"
        ),
    )
}

#[cfg(test)]
mod tests;
