//! Offset resets: the connector stops, its hook writes the anchor, Kafka alters the group (or
//! refuses), and tasks start again with the epoch that the anchor has. Tasks that did not hear of
//! the stop go on in the old epoch.

use frazil_core::commit::anchor::{Anchor, ResetOffsets};
use frazil_core::commit::view::TableView;

use crate::check::EPOCHS;
use crate::names::WID;
use crate::say;
use crate::swarm::{BRANCHES, PARTITIONS};
use crate::world::World;

/// A reset that waits for the tasks to stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reset {
    /// Through Connect, so that the connector knows; otherwise by somebody with admin tools.
    through_connect: bool,
}

/// The connector is stopped for a reset.
pub(crate) fn begin(w: &mut World, through_connect: bool) {
    if w.reset.is_some() || w.epoch as usize + 2 >= EPOCHS {
        return;
    }
    w.reset = Some(Reset { through_connect });
    for index in 0..w.runs.len() {
        let hangs = w.rng.chance(300);
        let Some(run) = &mut w.runs[index] else {
            continue;
        };
        run.stop = !hangs;
        if hangs {
            // Connect cancels it; its thread goes on.
            run.detached = true;
            let id = run.id;
            w.group.remove(id, w.active, &mut w.rng);
        }
    }
}

/// Does the reset once the group is empty.
pub(crate) fn go_on(w: &mut World) {
    let Some(reset) = w.reset else { return };
    for ghost in std::mem::take(&mut w.ghosts) {
        w.group.remove(ghost, w.active, &mut w.rng);
    }
    if !w.group.is_empty() || w.runs.iter().flatten().any(|run| !run.detached) {
        return;
    }
    let all_tables = (0..w.plan.tables.len()).all(|table| w.catalog.load(table).is_some());
    if reset.through_connect && !all_tables {
        return;
    }
    w.reset = None;
    let asked = draw(w);
    if !reset.through_connect {
        return alter_group(w, &asked, None);
    }
    if !hook(w, &asked) {
        return;
    }
    // Kafka refuses while the group has members that nobody saw.
    if w.rng.chance(768) {
        let epoch = w.epoch;
        alter_group(w, &asked, Some(epoch));
    }
}

/// `SinkConnector.start()`: copies the record of resets to tables that lack it, as those do that were
/// dropped and created again.
pub(crate) fn start_connector(w: &mut World) {
    for table in 0..w.plan.tables.len() {
        let lacks = |anchor: &Anchor| anchor.epoch() < w.anchor.epoch();
        let view = w.catalog.load(table);
        if view.is_some_and(|view| view.anchor().is_ok_and(|anchor| lacks(&anchor))) {
            let anchor = w.anchor.clone();
            // The anchor was read from a table, so it can be written to one.
            let at = (table, w.plan.tables[table].branch);
            let now_ms = w.wall_ms(0);
            let _ = w.catalog.set_anchor(at, &anchor, now_ms, &mut w.ledger);
        }
    }
}

fn draw(w: &mut World) -> Vec<(usize, Option<i64>)> {
    let everything = w.rng.chance(200);
    (0..w.active)
        .filter_map(|partition| {
            if everything {
                return Some((partition, None));
            }
            let end = w.ends[partition];
            let offset = w.rng.below(end as u64 + 1) as i64;
            let asked = if w.rng.chance(100) {
                None
            } else {
                Some(offset)
            };
            w.rng.chance(600).then_some((partition, asked))
        })
        .collect()
}

/// `alterOffsets`: writes the reset into every table.
fn hook(w: &mut World, asked: &[(usize, Option<i64>)]) -> bool {
    let mut newest = Anchor::default();
    // Of resets that only dropped tables knew, nobody does; the simulator does not go there.
    let mut seen = w.epoch;
    for table in 0..w.plan.tables.len() {
        let Some(view) = w.catalog.load(table) else {
            return false;
        };
        let branch = w.plan.tables[table].branch;
        let anchor = view.anchor().unwrap_or_default();
        if anchor.epoch() > newest.epoch() {
            newest = anchor;
        }
        let state = view.writer_state(WID, BRANCHES[branch]).ok().flatten();
        seen = state.map_or(seen, |state| state.epoch.max(seen));
    }
    let everything = asked.len() == w.active && asked.iter().all(|(_, to)| to.is_none());
    let named = asked
        .iter()
        .map(|(partition, to)| (w.names.partitions[*partition].clone(), *to));
    if asked.is_empty() {
        return false;
    }
    let offsets = match everything {
        true => ResetOffsets::new([]),
        false => ResetOffsets::new(named),
    };
    let Ok(offsets) = offsets else { return false };
    newest.append(offsets, w.wall_ms(0), seen);
    for table in 0..w.plan.tables.len() {
        let at = (table, w.plan.tables[table].branch);
        let now_ms = w.wall_ms(0);
        let set = w.catalog.set_anchor(at, &newest, now_ms, &mut w.ledger);
        if set.is_err() {
            return false;
        }
    }
    w.epoch = newest.epoch();
    w.anchor = newest;
    say!(w, "reset to {asked:?} in epoch {}", w.epoch);
    true
}

fn alter_group(w: &mut World, asked: &[(usize, Option<i64>)], epoch: Option<u64>) {
    for (partition, to) in asked {
        let from = w.group.position(*partition);
        let to_offset = to.unwrap_or(0);
        say!(
            w,
            "W of p{partition} is set from {from} to {to:?}, epoch {epoch:?}"
        );
        w.group.alter(*partition, *to);
        w.ledger.reset(*partition, epoch, from, to_offset);
    }
}

/// The masks of the partitions are one byte.
const _: () = assert!(PARTITIONS <= 8);
