//! The consumer group and the source log: who owns which partition, and W.
//!
//! A member that was expelled is not told; it goes on in the belief that it owns its partitions
//! until it hears of it, and the broker takes no offset from it meanwhile.

use crate::rng::Rng;
use crate::swarm::PARTITIONS;

/// The number of a task's incarnation.
pub(crate) type RunId = u32;

/// The group, as its coordinator (a broker) sees it.
#[derive(Debug, Default)]
pub(crate) struct Group {
    members: Vec<(RunId, u32)>,
    target: [Option<RunId>; PARTITIONS],
    owner: [Option<RunId>; PARTITIONS],
    committed: [Option<i64>; PARTITIONS],
    generation: u32,
}

impl Group {
    /// Tells whether the group knows `run`.
    pub(crate) fn is_member(&self, run: RunId) -> bool {
        self.members.iter().any(|(known, _)| *known == run)
    }

    /// Tells whether there are no members, so that offsets may be altered.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// `run` joins: partitions will move.
    pub(crate) fn join(&mut self, run: RunId, partitions: usize, rng: &mut Rng) {
        self.members.push((run, 0));
        self.rebalance(partitions, rng);
    }

    /// `run` is gone, or taken for gone: its partitions are free.
    pub(crate) fn remove(&mut self, run: RunId, partitions: usize, rng: &mut Rng) {
        if !self.is_member(run) {
            return;
        }
        self.members.retain(|(known, _)| *known != run);
        for owner in &mut self.owner {
            owner.take_if(|owner| *owner == run);
        }
        self.rebalance(partitions, rng);
    }

    /// Deals the partitions anew.
    pub(crate) fn rebalance(&mut self, partitions: usize, rng: &mut Rng) {
        self.generation += 1;
        self.target = [None; PARTITIONS];
        if self.members.is_empty() {
            return;
        }
        let first = rng.index(self.members.len());
        for (index, target) in self.target.iter_mut().enumerate().take(partitions) {
            // Mostly even; a group with topics of other connectors is not.
            let member = match rng.chance(200) {
                true => rng.index(self.members.len()),
                false => (first + index) % self.members.len(),
            };
            *target = Some(self.members[member].0);
        }
    }

    /// Returns the partitions (one bit each) that `run`, which holds `held`, has to give up now.
    pub(crate) fn to_revoke(&self, run: RunId, held: u8, eager: bool) -> u8 {
        let Some((_, joined)) = self.members.iter().find(|(known, _)| *known == run) else {
            return 0;
        };
        if *joined == self.generation {
            return 0;
        }
        if eager {
            return held;
        }
        let stays = |partition: usize| self.target[partition] == Some(run);
        (0..PARTITIONS)
            .filter(|partition| held & (1 << partition) != 0 && !stays(*partition))
            .fold(0, |mask, partition| mask | 1 << partition)
    }

    /// `run` has given up `mask` and has joined the latest generation.
    pub(crate) fn revoked(&mut self, run: RunId, mask: u8) {
        for (partition, owner) in self.owner.iter_mut().enumerate() {
            if mask & (1 << partition) != 0 {
                owner.take_if(|owner| *owner == run);
            }
        }
        let generation = self.generation;
        for (known, joined) in &mut self.members {
            if *known == run {
                *joined = generation;
            }
        }
    }

    /// Returns the partitions that `run` gets now, and makes it their owner.
    pub(crate) fn newly_assigned(&mut self, run: RunId, eager: bool) -> u8 {
        let ready = |joined: u32| joined == self.generation;
        let all_ready = self.members.iter().all(|(_, joined)| ready(*joined));
        let own_ready = self
            .members
            .iter()
            .any(|(known, joined)| *known == run && ready(*joined));
        if !own_ready || (eager && !all_ready) {
            return 0;
        }
        let mut mask = 0;
        for partition in 0..PARTITIONS {
            if self.target[partition] == Some(run) && self.owner[partition].is_none() {
                self.owner[partition] = Some(run);
                mask |= 1 << partition;
            }
        }
        mask
    }

    /// Returns where a member that gets `partition` begins to read; without an offset at the
    /// beginning, as Connect's consumers do.
    pub(crate) fn position(&self, partition: usize) -> i64 {
        self.committed[partition].unwrap_or(0)
    }

    /// `run` commits an offset. Returns W before and after when the broker took it.
    pub(crate) fn commit(
        &mut self,
        run: RunId,
        partition: usize,
        offset: i64,
    ) -> Option<(i64, i64)> {
        if self.owner[partition] != Some(run) {
            return None;
        }
        let before = self.position(partition);
        self.committed[partition] = Some(offset);
        Some((before, offset))
    }

    /// Sets an offset from outside. Only an empty group takes that.
    pub(crate) fn alter(&mut self, partition: usize, offset: Option<i64>) {
        self.committed[partition] = offset;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_one_owner_and_only_that_one_moves_its_offset() {
        let (mut group, mut rng) = (Group::default(), Rng::new(1));
        group.join(1, 1, &mut rng);
        group.revoked(1, 0);
        assert_eq!(group.newly_assigned(1, true), 1);
        assert_eq!(group.commit(1, 0, 5), Some((0, 5)));
        assert_eq!(group.commit(2, 0, 9), None);
        group.remove(1, 1, &mut rng);
        assert_eq!(
            group.commit(1, 0, 9),
            None,
            "an expelled member is not asked"
        );
        assert_eq!(group.position(0), 5);
    }

    #[test]
    fn an_eager_group_waits_for_all_its_members() {
        let (mut group, mut rng) = (Group::default(), Rng::new(1));
        group.join(1, 3, &mut rng);
        group.revoked(1, 0);
        let held = group.newly_assigned(1, true);
        assert_eq!(held, 0b111);
        group.join(2, 3, &mut rng);
        group.revoked(2, 0);
        assert_eq!(
            group.newly_assigned(2, true),
            0,
            "the first has not given up anything yet"
        );
        assert_eq!(group.to_revoke(1, held, true), held);
        group.revoked(1, held);
        assert_eq!(
            group.newly_assigned(1, true) | group.newly_assigned(2, true),
            0b111
        );
    }
}
