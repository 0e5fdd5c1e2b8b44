//! Pauses the consumer while a task may draw no memory, takes nothing in, or has too much that no commit
//! takes.

use std::time::{Duration, Instant};

use frazil_core::memory::Answer;

use crate::memory::Standing;

/// The time between two pauses that are logged.
const SAID_EVERY: Duration = Duration::from_secs(30);

/// The state of one task's back-pressure.
#[derive(Debug, Default)]
pub(crate) struct BackPressure {
    gives_back: bool,
    waits: bool,
    held: bool,
    stalls: bool,
    resumed: bool,
    said: Option<Instant>,
    is_said: bool,
}

impl BackPressure {
    /// Looks at how the task stands in the pool. Returns `true` while it has to give memory back: from
    /// the moment when it is asked to until it is down at its low water.
    pub(crate) fn observe(&mut self, standing: &Standing) -> bool {
        let gives_back = match self.gives_back {
            true => standing.held > standing.low_water,
            false => standing.answer == Answer::GiveBack,
        };
        let waits = standing.answer != Answer::Granted;
        self.change(|pressure| (pressure.gives_back, pressure.waits) = (gives_back, waits));
        self.gives_back
    }

    /// Pauses the consumer for as long as `held`, whatever the memory.
    pub(crate) fn hold(&mut self, held: bool) {
        self.change(|pressure| pressure.held = held);
    }

    /// Pauses the consumer for as long as too much waits for commits. Returns `true` when that is news.
    pub(crate) fn stall(&mut self, stalls: bool) -> bool {
        let was = self.stalls;
        self.change(|pressure| pressure.stalls = stalls);
        was != stalls
    }

    /// Returns what should be logged: `true` when a pause for memory begins, `false` when one ends that
    /// was logged. Of pauses that follow each other closely, only the first is.
    pub(crate) fn take_news(&mut self, now: Instant) -> Option<bool> {
        let for_memory = self.is_short();
        let is_rare = self.said.is_none_or(|said| now >= said + SAID_EVERY);
        match (for_memory, self.is_said) {
            (true, false) if is_rare => {
                (self.said, self.is_said) = (Some(now), true);
                Some(true)
            }
            (false, true) => {
                self.is_said = false;
                Some(false)
            }
            _ => None,
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let was_paused = self.is_paused();
        change(self);
        if was_paused != self.is_paused() {
            self.resumed = was_paused;
        }
    }

    /// Tells whether there is too little memory.
    pub(crate) fn is_short(&self) -> bool {
        self.gives_back || self.waits
    }

    /// Tells whether the consumer has to be paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_short() || self.held || self.stalls
    }

    /// Tells, once, that the consumer may go on.
    pub(crate) fn take_resumed(&mut self) -> bool {
        std::mem::take(&mut self.resumed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(answer: Answer, held: u64) -> Standing {
        Standing {
            answer,
            held,
            leaving: 0,
            share: 100,
            low_water: 50,
        }
    }

    #[test]
    fn pauses_when_it_has_to_give_back_and_resumes_at_its_low_water() {
        let mut pressure = BackPressure::default();
        assert!(!pressure.observe(&standing(Answer::Granted, 100)));
        assert!(pressure.observe(&standing(Answer::GiveBack, 100)));
        let above = standing(Answer::Granted, 60);
        assert!(pressure.observe(&above), "still above the low water");
        assert!(!pressure.take_resumed());
        assert!(!pressure.observe(&standing(Answer::Granted, 50)));
        assert!(pressure.take_resumed());
        assert!(!pressure.take_resumed(), "said once");
    }

    #[test]
    fn pauses_without_giving_back_while_others_have_to() {
        let mut pressure = BackPressure::default();
        assert!(!pressure.observe(&standing(Answer::Wait, 70)));
        assert!(pressure.is_paused());
        assert!(!pressure.observe(&standing(Answer::Granted, 70)));
        assert!(pressure.take_resumed());
    }

    #[test]
    fn says_that_it_pauses_and_goes_on_but_not_each_time() {
        let (mut pressure, now) = (BackPressure::default(), Instant::now());
        assert_eq!(pressure.take_news(now), None);
        for (wait, news) in [(0, Some(true)), (1, None), (60, Some(true))] {
            let now = now + Duration::from_secs(wait);
            pressure.observe(&standing(Answer::Wait, 70));
            assert_eq!(pressure.take_news(now), news);
            assert_eq!(pressure.take_news(now), None, "said once");
            pressure.observe(&standing(Answer::Granted, 70));
            assert_eq!(pressure.take_news(now), news.map(|_| false));
        }
    }

    #[test]
    fn resumes_when_neither_memory_nor_a_wait_pause() {
        let mut pressure = BackPressure::default();
        assert!(pressure.observe(&standing(Answer::GiveBack, 101)));
        pressure.hold(true);
        let low = standing(Answer::Granted, 10);
        assert!(!pressure.observe(&low), "no bytes have to be given back");
        assert!(pressure.is_paused(), "the task waits");
        assert!(!pressure.take_resumed());
        pressure.hold(false);
        assert!(!pressure.is_paused());
        assert!(pressure.take_resumed());
    }

    #[test]
    fn pauses_while_too_much_waits_for_commits() {
        let mut pressure = BackPressure::default();
        assert!(!pressure.stall(false));
        assert!(pressure.stall(true), "news");
        assert!(!pressure.stall(true), "said already");
        assert!(!pressure.observe(&standing(Answer::Granted, 10)));
        assert!(pressure.is_paused() && !pressure.take_resumed());
        assert!(pressure.stall(false));
        assert!(!pressure.is_paused() && pressure.take_resumed());
    }
}
