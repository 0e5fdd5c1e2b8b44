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
type Truncation<'a> = (usize, &'a TopicPartition, Option<Order<'a>>);

/// Finds a truncation among the changes `parts` of a commit's segments that cannot be applied to a table with
/// changes of the partitions `of_table`.
pub fn find_unsure(
    parts: &[SegmentChanges<'_>],
    known: &KnownOrders,
    mut of_table: impl Iterator<Item = TopicPartition>,
) -> Option<Unsure> {
    if !enforced(Rule::TruncationSure) {
        return None;
    }
    let truncations = truncations(parts, known);
    let (first, own, _) = *truncations.first()?;
    let unsure = |segment, partition: &TopicPartition, other: &TopicPartition| Unsure {
        segment,
        partition: partition.clone(),
        other: other.clone(),
    };
    if let Some(other) = of_table.find(|partition| partition != own) {
        return Some(unsure(first, own, &other));
    }
    truncations.iter().find_map(|(place, partition, order)| {
        if *partition != own {
            return Some(unsure(*place, partition, own));
        }
        let other = parts.iter().find_map(|part| {
            part.run.changes().iter().find_map(|change| {
                let from = partition_of(part, change)?;
                let theirs = || part.run.order(change);
                (from != own && !is_placed(theirs(), *order)).then_some(from)
            })
        });
        Some(unsure(*place, partition, other?))
    })
}

/// Finds the truncations that are not known: they have no key, and so stand before the changes of the
/// first.
fn truncations<'a>(parts: &'a [SegmentChanges<'a>], known: &KnownOrders) -> Vec<Truncation<'a>> {
    let mut found = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let changes = part.run.changes().iter();
        let keyless = changes.take_while(|change| change.key.0 == 0);
        for change in keyless.filter(|change| change.effect == Effect::Truncate) {
            let order = part.run.order(change);
            let is_known = order.is_some_and(|order| known.knows_truncation(order));
            if let (false, Some(partition)) = (is_known, partition_of(part, change)) {
                found.push((place, partition, order));
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
