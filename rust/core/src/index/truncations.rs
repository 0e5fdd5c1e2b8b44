//! Which truncations can be applied.
//!
//! The source's table was emptied: what it had before goes. A truncation comes in one partition of its
//! topic, and what came before it there is known by the offsets. Of the rows of other partitions that is
//! not known: where the rows of a table came from is kept nowhere, and their orders only for a while. So a
//! table with changes of several partitions is not emptied, and neither is one whose commit has changes of
//! another partition, unless these have a place in the order of the truncation.

use super::changed::SegmentChanges;
use crate::change::Order;
use crate::change::keyrun::{Effect, RunChange};
use crate::change::window::KnownOrders;
use crate::offsets::TopicPartition;
use crate::rules::{Rule, enforced};

/// A truncation of which nobody knows what came before it.
#[derive(Debug, PartialEq, Eq)]
pub struct Unsure {
    /// The place of its segment in the commit.
    pub segment: usize,
    /// The partition that it came in.
    pub partition: TopicPartition,
    /// Another one with changes.
    pub other: TopicPartition,
}

/// A truncation: the place of its segment, its partition and its order.
#[derive(Debug)]
struct Truncation {
    segment: usize,
    partition: TopicPartition,
    order: Option<Box<[u8]>>,
}

/// The truncations of a commit, whose changes come piece by piece.
#[derive(Debug)]
pub struct Truncations(Vec<Truncation>);

impl Truncations {
    /// Finds them in the first piece of the changes `parts` of a commit's segments.
    ///
    /// # Errors
    ///
    /// One that cannot be applied to a table with changes of the partitions `of_table`.
    pub fn begin(
        parts: &[SegmentChanges<'_>],
        known: &KnownOrders,
        mut of_table: impl Iterator<Item = TopicPartition>,
    ) -> Result<Self, Unsure> {
        let all = truncations(parts, known);
        let first = all.first().filter(|_| enforced(Rule::TruncationSure));
        let Some(first) = first else {
            return Ok(Truncations(all));
        };
        if let Some(other) = of_table.find(|partition| *partition != first.partition) {
            return Err(first.unsure(&other));
        }
        match all.iter().find(|one| one.partition != first.partition) {
            Some(other) => Err(other.unsure(&first.partition)),
            None => Ok(Truncations(all)),
        }
    }

    /// Checks a piece of the changes.
    ///
    /// # Errors
    ///
    /// A truncation that cannot be applied with these changes.
    pub fn check(&self, parts: &[SegmentChanges<'_>]) -> Result<(), Unsure> {
        for one in &self.0 {
            let order = one.order.as_deref().map(Order::of);
            let other = parts.iter().find_map(|part| {
                part.run.changes().iter().find_map(|change| {
                    let from = partition_of(part, change)?;
                    let is_unsure =
                        || *from != one.partition && !is_placed(part.run.order(change), order);
                    is_unsure().then_some(from)
                })
            });
            if let Some(other) = other {
                return Err(one.unsure(other));
            }
        }
        Ok(())
    }
}

impl Truncation {
    fn unsure(&self, other: &TopicPartition) -> Unsure {
        Unsure {
            segment: self.segment,
            partition: self.partition.clone(),
            other: other.clone(),
        }
    }
}

/// Finds the truncations that are not known: they have no key, and so stand before the changes of the
/// first.
fn truncations(parts: &[SegmentChanges<'_>], known: &KnownOrders) -> Vec<Truncation> {
    let mut found = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let changes = part.run.changes().iter();
        let keyless = changes.take_while(|change| change.key.0 == 0);
        for change in keyless.filter(|change| change.effect == Effect::Truncate) {
            let order = part.run.order(change);
            let is_known = order.is_some_and(|order| known.knows_truncation(order));
            if let (false, Some(partition)) = (is_known, partition_of(part, change)) {
                found.push(Truncation {
                    segment: place,
                    partition: partition.clone(),
                    order: order.map(|order| Box::from(order.bytes())),
                });
            }
        }
    }
    found
}

fn is_placed(change: Option<Order<'_>>, truncation: Option<Order<'_>>) -> bool {
    let both = change.zip(truncation);
    both.is_some_and(|(change, truncation)| change.compare(&truncation).is_some())
}

fn partition_of<'p>(
    part: &'p SegmentChanges<'_>,
    change: &RunChange,
) -> Option<&'p TopicPartition> {
    let range = part.ranges.get(change.partition as usize)?;
    Some(&range.partition)
}
