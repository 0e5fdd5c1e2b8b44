//! What a registry said before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use frazil_core::decode::confluent::SchemaKey;
use frazil_core::decode::registered::RegistrySchema;
use frazil_core::limits::WRITER_SCHEMAS_MAX;
use frazil_core::{Result, SinkError};

/// Bytes of the schemas that are kept.
const BYTES_MAX: usize = 64 << 20;
/// Unknown ids that are kept.
const MISSES_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Cache {
    schemas: BTreeMap<SchemaKey, (Arc<RegistrySchema>, Option<Instant>)>,
    bytes: usize,
    misses: BTreeMap<SchemaKey, (SinkError, Instant)>,
}

impl Cache {
    /// Returns what is known of `key` and still counts.
    pub(super) fn get(
        &mut self,
        key: &SchemaKey,
        now: Instant,
    ) -> Option<Result<Arc<RegistrySchema>>> {
        if let Some((schema, until)) = self.schemas.get(key)
            && until.is_none_or(|until| now < until)
        {
            return Some(Ok(Arc::clone(schema)));
        }
        match self.misses.get(key) {
            Some((error, until)) if now < *until => Some(Err(error.again())),
            _ => None,
        }
    }

    pub(super) fn keep(
        &mut self,
        key: &SchemaKey,
        schema: Arc<RegistrySchema>,
        until: Option<Instant>,
    ) {
        self.misses.remove(key);
        if let Some((before, _)) = self.schemas.remove(key) {
            self.bytes = self.bytes.saturating_sub(size(&before));
        }
        let bytes = size(&schema);
        // What is left out is asked for again: that costs time, and no memory.
        if self.schemas.len() >= WRITER_SCHEMAS_MAX || self.bytes + bytes > BYTES_MAX {
            self.schemas.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.schemas.insert(key.clone(), (schema, until));
    }

    pub(super) fn miss(&mut self, key: &SchemaKey, error: &SinkError, until: Instant) {
        if self.misses.len() >= MISSES_MAX {
            self.misses.clear();
        }
        self.misses.insert(key.clone(), (error.again(), until));
    }
}

fn size(schema: &RegistrySchema) -> usize {
    let references = schema.references.iter();
    let references: usize = references.map(|(name, text)| name.len() + text.len()).sum();
    schema.text.len() + references
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn schema(bytes: usize) -> Arc<RegistrySchema> {
        Arc::new(RegistrySchema {
            id: SchemaKey::Id(1),
            kind: None,
            text: "x".repeat(bytes),
            references: Vec::new(),
        })
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut cache = Cache::default();
        let now = Instant::now();
        for id in 1..=u32::try_from(WRITER_SCHEMAS_MAX).unwrap() + 1 {
            cache.keep(&SchemaKey::Id(id), schema(1), None);
            cache.miss(&SchemaKey::Id(id), &SinkError::data("X", "x"), now);
        }
        assert_eq!(cache.schemas.len(), 1);
        assert!(cache.misses.len() <= MISSES_MAX);
        for id in 1..=5 {
            cache.keep(&SchemaKey::Id(id), schema(BYTES_MAX / 2 - 1), None);
        }
        assert!(cache.bytes <= BYTES_MAX);
    }

    #[test]
    fn what_may_change_counts_for_a_while() {
        let mut cache = Cache::default();
        let (now, soon) = (Instant::now(), Duration::from_secs(1));
        let subject = SchemaKey::Subject("t-value".into());
        cache.keep(&subject, schema(1), Some(now + soon));
        assert!(cache.get(&subject, now).is_some_and(|known| known.is_ok()));
        assert!(cache.get(&subject, now + soon).is_none());
        let id = SchemaKey::Id(7);
        cache.miss(&id, &SinkError::data("X", "x"), now + soon);
        assert!(cache.get(&id, now).is_some_and(|known| known.is_err()));
        assert!(cache.get(&id, now + soon).is_none());
        cache.keep(&id, schema(1), None);
        assert!(cache.get(&id, now).is_some_and(|known| known.is_ok()));
    }
}
