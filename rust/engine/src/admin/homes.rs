//! A start of a connector with many tables that records have named.
//!
//! All that it needs of them is the newest reset. Homes (`frazil_core::commit::home`) know that, and
//! a start that finds one loads no more than the few tables before it; only without one it loads all.

use std::sync::atomic::Ordering;

use frazil_core::Result;
use frazil_core::commit::anchor::Anchor;
use frazil_core::commit::home::{epoch_at_home, home_key, home_value};
use frazil_core::commit::location::Keep;
use frazil_core::config::TableConfig;
use frazil_core::route::RoutePlan;
use iceberg::{TableIdent, TableUpdate};
use sha2::{Digest, Sha256};

use super::{Admin, Known, TABLES_AT_ONCE, request};
use crate::catalog::CommitOutcome;

/// From so many tables on there are homes. With fewer, all are loaded: that costs little.
const TABLES_MANY: usize = 32;
/// Tables that become homes.
const HOMES: usize = 4;
/// Tables that a start loads in search of a home before it loads all.
const LOOKED_AT_MAX: usize = 256;

/// Returns what stands for the places where the tables of `plan` are looked for: a table elsewhere is
/// none that a home answers for.
fn scope_of(plan: &RoutePlan) -> String {
    let allowed = plan.names().and_then(|rules| rules.allowed.as_ref());
    let digest = Sha256::digest(format!("{:?} {allowed:?}", plan.namespaces()));
    digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns where a table stands in the order in which a start looks at tables: a hash, so that tables
/// that come later push homes back as seldom as can be.
fn rank(ident: &TableIdent) -> u64 {
    let parts = ident.namespace().as_ref().iter().map(String::as_str);
    let texts = parts.chain([ident.name()]);
    let bytes = texts.flat_map(|text| text.bytes().chain([0]));
    // FNV-1a: any hash that every version has would do.
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Brings tables into the order in which a start looks at them.
pub(super) fn in_order(tables: &mut [TableConfig]) {
    tables.sort_by_cached_key(|table| rank(&table.ident));
}

/// What came of looking for a home.
#[derive(Default)]
pub(super) struct Looked {
    /// The epoch that a home knows, when all that was looked at agrees with it.
    pub(super) epoch: Option<u64>,
    /// How many tables were looked at.
    pub(super) tables: usize,
    /// Those of them that are the connector's.
    pub(super) known: Vec<Known>,
}

impl Admin {
    fn scope(&self) -> Option<String> {
        let dynamic = self.config.dynamic.as_ref()?;
        Some(scope_of(dynamic.plan()))
    }

    /// Looks at the first of `named` until there is a home among them.
    pub(super) async fn look_for_a_home(&self, named: &[TableConfig]) -> Result<Looked> {
        let mut looked = Looked::default();
        let Some(scope) = self.scope().filter(|_| named.len() > TABLES_MANY) else {
            return Ok(looked);
        };
        let mut at_home = None;
        let first = named.get(..LOOKED_AT_MAX).unwrap_or(named);
        for some in first.chunks(TABLES_AT_ONCE) {
            let found = self.each(some.to_vec(), |table, loaded| {
                let known = self.know(table, loaded)?;
                let epoch =
                    epoch_at_home(&loaded.metadata, &self.config.wid, &scope, &known.anchor);
                Ok((known, epoch))
            });
            for (known, epoch) in found.await? {
                at_home = at_home.max(epoch);
                looked.known.push(known);
            }
            looked.tables += some.len();
            if at_home.is_some() {
                break;
            }
        }
        // A table that knows more than the home did not learn it from a reset that was completed.
        let newest = |known: &Known| known.anchor.epoch().max(known.epoch);
        let newest = looked.known.iter().map(newest).max();
        looked.epoch = at_home.filter(|epoch| newest <= Some(*epoch));
        // Tables that came since push homes back.
        let is_near = looked.known.iter().take(HOMES).any(|known| known.is_home);
        if let Some(epoch) = looked.epoch
            && !is_near
        {
            self.settle_homes(&looked.known, epoch).await;
        }
        Ok(looked)
    }

    /// Makes homes, when the resets up to `epoch` have reached `known`, which are the connector's of all
    /// `tables` that there are.
    pub(super) async fn settle_homes_of_all(&self, tables: usize, known: &[Known], epoch: u64) {
        // A table that could not be read may be one that the reset did not reach.
        if tables > TABLES_MANY && self.unread.load(Ordering::Relaxed) == 0 {
            self.settle_homes(known, epoch).await;
        }
    }

    async fn settle_homes(&self, known: &[Known], epoch: u64) {
        let Some(scope) = self.scope() else {
            return;
        };
        let fit = known.iter().filter(|known| known.anchor.epoch() == epoch);
        for known in fit.take(HOMES) {
            // Nothing depends on it: the next start looks at more tables.
            if let Err(error) = self.settle(&known.table, epoch, &scope).await {
                tracing::info!(table = %known.table.name, code = error.code(),
                    "the table was not marked as one that a start may ask in place of all");
            }
        }
    }

    async fn settle(&self, table: &TableConfig, epoch: u64, scope: &str) -> Result<()> {
        let wid = &self.config.wid;
        let loaded = self.catalog.load_table(&table.ident).await?;
        let anchor = Anchor::of(&loaded.metadata, wid)?;
        let is_home = epoch_at_home(&loaded.metadata, wid, scope, &anchor) == Some(epoch);
        // A catalog that takes no properties has no homes.
        if is_home || anchor.epoch() != epoch || self.keep(table, &loaded) == Keep::Summary {
            return Ok(());
        }
        let value = home_value(epoch, loaded.metadata.uuid(), scope)?;
        let update = TableUpdate::SetProperties {
            updates: [(home_key(wid), value)].into(),
        };
        match self.catalog.commit(&loaded, request(&loaded, update)).await {
            CommitOutcome::Committed(_) => Ok(()),
            CommitOutcome::Conflict(error)
            | CommitOutcome::Unknown(error)
            | CommitOutcome::Refused(error)
            | CommitOutcome::Unauthorized(error) => Err(error),
        }
    }

    /// Takes every home away, before a reset writes its first anchor.
    pub(super) async fn leave_homes(&self, known: &[Known]) -> Result<()> {
        for known in known.iter().filter(|known| known.is_home) {
            let left = self.leave(&known.table).await;
            left.map_err(|error| error.with("table", &known.table.name))?;
        }
        Ok(())
    }

    async fn leave(&self, table: &TableConfig) -> Result<()> {
        let key = home_key(&self.config.wid);
        for attempt in 1.. {
            let loaded = match self.catalog.load_table(&table.ident).await {
                Err(error) if error.code() == "TABLE_NOT_FOUND" => return Ok(()),
                loaded => loaded?,
            };
            if !loaded.metadata.properties().contains_key(&key) {
                return Ok(());
            }
            let update = TableUpdate::RemoveProperties {
                removals: vec![key.clone()],
            };
            match self.catalog.commit(&loaded, request(&loaded, update)).await {
                CommitOutcome::Committed(_) => return Ok(()),
                CommitOutcome::Refused(error) | CommitOutcome::Unauthorized(error) => {
                    return Err(error);
                }
                CommitOutcome::Conflict(_) | CommitOutcome::Unknown(_) => {
                    self.pause(attempt).await;
                }
            }
        }
        Ok(())
    }
}
