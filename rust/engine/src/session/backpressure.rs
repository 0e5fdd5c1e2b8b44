//! Pauses the consumer while a task holds more bytes than it may, or takes nothing in.

/// The state of one task's back-pressure.
#[derive(Debug)]
pub(crate) struct BackPressure {
    bytes_max: u64,
    full: bool,
    held: bool,
    resumed: bool,
}

impl BackPressure {
    /// Allows `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        BackPressure {
            bytes_max,
            full: false,
            held: false,
            resumed: false,
        }
    }

    /// Looks at the bytes held now. Returns `true` while memory has to be given back.
    pub(crate) fn observe(&mut self, bytes: u64) -> bool {
        let full = match self.full {
            true => bytes > self.bytes_max / 2,
            false => bytes > self.bytes_max,
        };
        self.change(full, self.held);
        self.full
    }

    /// Pauses the consumer for as long as `held`, whatever the bytes.
    pub(crate) fn hold(&mut self, held: bool) {
        self.change(self.full, held);
    }

    fn change(&mut self, full: bool, held: bool) {
        let was_paused = self.is_paused();
        (self.full, self.held) = (full, held);
        if was_paused != self.is_paused() {
            self.resumed = was_paused;
        }
    }

    /// Tells whether the consumer has to be paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.full || self.held
    }

    /// Tells, once, that the consumer may go on.
    pub(crate) fn take_resumed(&mut self) -> bool {
        std::mem::take(&mut self.resumed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_above_the_budget_and_resumes_below_half_of_it() {
        let mut pressure = BackPressure::new(100);
        assert!(!pressure.observe(100));
        assert!(pressure.observe(101));
        assert!(pressure.observe(60), "still above half");
        assert!(!pressure.take_resumed());
        assert!(!pressure.observe(50));
        assert!(pressure.take_resumed());
        assert!(!pressure.take_resumed(), "said once");
    }

    #[test]
    fn resumes_when_neither_bytes_nor_a_wait_pause() {
        let mut pressure = BackPressure::new(100);
        assert!(pressure.observe(101));
        pressure.hold(true);
        assert!(!pressure.observe(10), "no bytes have to be given back");
        assert!(pressure.is_paused(), "the task waits");
        assert!(!pressure.take_resumed());
        pressure.hold(false);
        assert!(!pressure.is_paused());
        assert!(pressure.take_resumed());
    }
}
