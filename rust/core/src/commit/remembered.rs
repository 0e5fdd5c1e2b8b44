//! When a commit begins with the table as the process remembers it, and when with a load.
//!
//! Where one process alone changes a table, what it remembers is the newest, and a load tells it
//! nothing. Where others do too, a commit that is built on the past is a request in vain. So a table
//! that was found changed is loaded for a while, the longer the more often that happens.

use super::attempt::Remembered;

/// Commits that load the table after it was found changed again and again.
const LOADS_MAX: u32 = 64;

/// Decides for one table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    loads_left: u32,
    /// Loads after the last time that what was remembered was of the past.
    loads_last: u32,
}

impl Trust {
    /// Tells whether the next commit begins with what is remembered. To be asked once for each.
    pub fn begins_with_it(&mut self) -> bool {
        let trusts = self.loads_left == 0;
        self.loads_left = self.loads_left.saturating_sub(1);
        trusts
    }

    /// Takes in what the remembered table turned out to be.
    pub fn learn(&mut self, was: Option<Remembered>) {
        match was {
            Some(Remembered::Current) => self.loads_last = 0,
            Some(Remembered::Stale) => {
                self.loads_last = self.loads_last.saturating_mul(4).clamp(1, LOADS_MAX);
                self.loads_left = self.loads_last;
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests in vain of `commits` commits, when `stale` tells which find the table changed.
    fn in_vain(commits: u32, stale: impl Fn(u32) -> bool) -> (u32, u32) {
        let mut trust = Trust::default();
        let (mut in_vain, mut loads) = (0, 0);
        for commit in 0..commits {
            match (trust.begins_with_it(), stale(commit)) {
                (false, _) => loads += 1,
                (true, true) => {
                    in_vain += 1;
                    loads += 1;
                    trust.learn(Some(Remembered::Stale));
                }
                (true, false) => trust.learn(Some(Remembered::Current)),
            }
        }
        (in_vain, loads)
    }

    #[test]
    fn a_table_of_one_process_is_never_loaded() {
        assert_eq!(in_vain(1_000, |_| false), (0, 0));
    }

    #[test]
    fn a_change_every_now_and_then_costs_one_request_and_two_loads() {
        assert_eq!(in_vain(1_000, |commit| commit % 100 == 50), (10, 20));
    }

    #[test]
    fn a_table_that_always_changes_is_loaded_almost_always() {
        let (in_vain, loads) = in_vain(1_000, |_| true);
        assert!(in_vain <= 20, "{in_vain}");
        assert_eq!(loads, 1_000);
    }

    #[test]
    fn what_showed_nothing_changes_nothing() {
        let mut trust = Trust::default();
        trust.learn(Some(Remembered::Stale));
        let before = trust.clone();
        trust.learn(None);
        assert_eq!(trust, before);
    }
}
