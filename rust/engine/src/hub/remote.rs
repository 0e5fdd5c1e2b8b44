//! A hub's end of the control topic: carries out what the [`Channel`] of the process decides, and
//! checks what other processes ask for before the coordinators see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use frazil_core::control::channel::{Channel, ChannelSettings, Event, RemoteSegment};
use frazil_core::control::message::{Answer, Ignored, TableName};
use frazil_core::control::segment::Segment;
use uuid::Uuid;

use super::table::{Offer, TableHub};
use super::{Hub, lock};
use crate::commit::{Resealed, Sight, Unsealed, read_sealed};

/// Tries to read the manifests of a segment, which comes again anyway.
const TRIES: u32 = 3;
const TRY_PAUSE: Duration = Duration::from_secs(1);
/// How often the counts of ignored records are said again.
const IGNORED_PAUSE: Duration = Duration::from_secs(600);

type SegmentKey = (Uuid, TableName, u64);

/// A hub's end of the control topic.
#[derive(Debug)]
pub(super) struct Link {
    hub: Weak<Hub>,
    wid: String,
    channel: Mutex<Channel>,
    /// Held while events are carried out, so that they are in their order.
    dispatching: Mutex<()>,
    /// Segments whose manifests are read.
    checking: Mutex<BTreeSet<SegmentKey>>,
    said: Mutex<Said>,
}

/// What was said of ignored records.
#[derive(Debug, Default)]
struct Said {
    counts: BTreeMap<Ignored, u64>,
    at: Option<Instant>,
}

impl Link {
    pub(super) fn new(hub: Weak<Hub>, settings: ChannelSettings) -> Self {
        Link {
            hub,
            wid: settings.wid.clone(),
            channel: Mutex::new(Channel::new(settings)),
            dispatching: Mutex::default(),
            checking: Mutex::default(),
            said: Mutex::default(),
        }
    }

    /// Runs `work` on the channel. Events that come of it wait for [`dispatch`](Self::dispatch).
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Channel) -> T) -> T {
        work(&mut lock(&self.channel))
    }

    /// Carries out what the channel has decided.
    pub(super) fn dispatch(self: &Arc<Self>) {
        let _turn = lock(&self.dispatching);
        let Some(hub) = self.hub.upgrade() else {
            return;
        };
        loop {
            let event = lock(&self.channel).next_event();
            match event {
                Some(event) => self.carry_out(&hub, event),
                None => return,
            }
        }
    }

    fn carry_out(self: &Arc<Self>, hub: &Arc<Hub>, event: Event) {
        match event {
            Event::Promoted => {
                tracing::info!(connector = %hub.config.connector, hub = %hub.id,
                    "this process commits for all workers from now on");
                hub.elected();
                hub.all_tables()
                    .for_each(|table| table.committer().begin_term());
            }
            Event::Demoted => {
                tracing::info!(connector = %hub.config.connector, hub = %hub.id,
                    "another process commits from now on");
                hub.all_tables().for_each(|table| table.step_down());
            }
            Event::Offer {
                segment,
                urgent,
                expires_in_ms,
            } => {
                let name = TableName::new(&segment.table, segment.branch.clone());
                let (session, seq) = (segment.session, segment.seq);
                let Some(table) = hub.table_named(&name) else {
                    return;
                };
                let segment = Arc::unwrap_or_clone(segment);
                let offer = table.offer(segment, urgent, expires_in_ms);
                if let Some(answer) = table.answer_to(offer) {
                    self.with(|channel| channel.answer(session, name, seq, answer));
                }
            }
            Event::Remote(remote) => self.receive(hub, *remote),
            Event::Drain { session } => {
                hub.all_tables().for_each(|table| table.drain_here(session))
            }
            Event::Leave { session } => {
                hub.all_tables().for_each(|table| table.leave_here(session))
            }
            Event::Told {
                session,
                table,
                seq,
                answer,
            } => {
                if let Some(table) = hub.table_named(&table) {
                    table.answer(session, seq, answer);
                }
            }
        }
    }

    /// Begins to check a segment of another process, unless it is known.
    fn receive(self: &Arc<Self>, hub: &Arc<Hub>, remote: RemoteSegment) {
        let message = &remote.message;
        let Some(table) = hub.table_named(&message.table) else {
            return self.with(|channel| channel.ignore(Ignored::UnknownTable));
        };
        if let Some(known) = table.known(remote.session, message.seq, message.urgent) {
            if let Some(answer) = table.answer_to(known) {
                let name = message.table.clone();
                self.with(|channel| channel.answer(remote.session, name, message.seq, answer));
            }
            return;
        }
        let key = (remote.session, message.table.clone(), message.seq);
        if !lock(&self.checking).insert(key.clone()) {
            return;
        }
        let check = Check {
            link: Arc::clone(self),
            key,
        };
        hub.runtime.handle().spawn(check.run(table, remote));
    }

    /// Says how many records were ignored and why: at once when a reason is new, and then again
    /// every now and then.
    pub(super) fn say_ignored(&self) {
        let counts = self.with(|channel| channel.ignored().clone());
        let mut said = lock(&self.said);
        // Other connectors may share the topic, and their messages are nothing to worry about.
        let worth = |reason: &Ignored| !matches!(reason, Ignored::Foreign | Ignored::BeforeHello);
        let is_new = |reason: &Ignored| !said.counts.contains_key(reason);
        let fresh = counts.keys().any(|reason| worth(reason) && is_new(reason));
        let again = said.at.is_none_or(|at| at.elapsed() >= IGNORED_PAUSE);
        if fresh || (again && said.counts != counts) {
            for (reason, count) in counts.iter().filter(|(reason, _)| worth(reason)) {
                tracing::warn!(
                    reason = reason.name(),
                    count,
                    "records of the control topic were not obeyed"
                );
            }
            *said = Said {
                counts,
                at: Some(Instant::now()),
            };
        }
    }
}

/// A segment of another process whose manifests are being read.
struct Check {
    link: Arc<Link>,
    key: SegmentKey,
}

impl Drop for Check {
    fn drop(&mut self) {
        lock(&self.link.checking).remove(&self.key);
    }
}

impl Check {
    async fn run(self, table: Arc<TableHub>, remote: RemoteSegment) {
        let begun = Instant::now();
        let bytes = remote.message.manifests.iter().map(|one| one.len).max();
        let mut tried = 0;
        let (sealed, read_at) = loop {
            let turn = table.committer().looks().turn(bytes.unwrap_or(0)).await;
            let read_at = Instant::now();
            let read = self.read(&table, &remote, tried > 0).await;
            drop(turn);
            match read {
                Err(Unsealed::Failed(error)) if tried + 1 < TRIES => {
                    tried += 1;
                    tracing::warn!(table = %table.key().ident.0, reason = %error.report(),
                        "the manifests of another worker's segment cannot be read yet");
                    tokio::time::sleep(TRY_PAUSE * tried).await;
                }
                sealed => break (sealed, read_at),
            }
        };
        let waited_ms = super::clock::milliseconds(begun.elapsed());
        let expires_in_ms = remote.expires_in_ms.saturating_sub(waited_ms);
        let (session, name, seq) = self.key.clone();
        let answer = match sealed {
            Ok(Resealed { segment, schema_id }) => {
                let sight = Sight {
                    at: read_at,
                    schema_id,
                };
                self.offer(
                    &table,
                    (segment, sight),
                    remote.message.urgent,
                    expires_in_ms,
                )
            }
            // It is sent again after a while.
            Err(Unsealed::Failed(_)) => None,
            Err(Unsealed::Lost(reason)) => Some(Answer::unseen(&reason)),
            Err(Unsealed::Forged(reason)) => {
                tracing::warn!(table = %table.key().ident.0, session = %session, reason,
                    "a segment of the control topic is not obeyed");
                self.link.with(|channel| channel.ignore(Ignored::Forged));
                None
            }
        };
        if let Some(answer) = answer {
            self.link
                .with(|channel| channel.answer(session, name, seq, answer));
            self.link.dispatch();
        }
    }

    async fn read(
        &self,
        table: &TableHub,
        remote: &RemoteSegment,
        fresh: bool,
    ) -> Result<Resealed, Unsealed> {
        let uuid = remote.message.uuid;
        let (wid, with_changes) = (&self.link.wid, table.committer().has_changes());
        let loaded = table.loaded(uuid, fresh).await.map_err(Unsealed::Failed)?;
        let sealed = read_sealed(&loaded, wid, remote, with_changes).await;
        if fresh || !matches!(sealed, Err(Unsealed::Lost(_))) {
            return sealed;
        }
        // The table may have moved since it was loaded.
        let loaded = table.loaded(uuid, true).await.map_err(Unsealed::Failed)?;
        read_sealed(&loaded, wid, remote, with_changes).await
    }

    fn offer(
        &self,
        table: &TableHub,
        (segment, sight): (Segment, Sight),
        urgent: bool,
        expires_in_ms: u64,
    ) -> Option<Answer> {
        // Leadership may have gone while the manifests were read.
        if !self.link.with(|channel| channel.is_leader()) {
            return None;
        }
        let session = segment.session;
        table.committer().saw(session, segment.seq, sight);
        let offer = table.offer(segment, urgent, expires_in_ms);
        match offer {
            Offer::Dead => table.committer().forget(session),
            Offer::Held { missing } => self.ask(missing),
            Offer::Full => self.link.with(|channel| channel.ignore(Ignored::NoRoom)),
            _ => {}
        }
        table.answer_to(offer)
    }

    /// Asks the session for the segment `missing`, unless it is on its way.
    fn ask(&self, missing: u64) {
        let (session, name, _) = &self.key;
        let on_its_way = lock(&self.link.checking).contains(&(*session, name.clone(), missing));
        if !on_its_way {
            self.link
                .with(|channel| channel.answer(*session, name.clone(), missing, Answer::Missing));
        }
    }
}
