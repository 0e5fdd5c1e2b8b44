//! Pauses the consumer while a task holds more bytes than it may.

/// The state of one task's back-pressure.
#[derive(Debug)]
pub(crate) struct BackPressure {
    bytes_max: u64,
    paused: bool,
    resumed: bool,
}

impl BackPressure {
    /// Allows `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        BackPressure {
            bytes_max,
            paused: false,
            resumed: false,
        }
    }

    /// Looks at the bytes held now. Returns `true` while memory has to be given back.
    pub(crate) fn observe(&mut self, bytes: u64) -> bool {
        if bytes > self.bytes_max {
            self.paused = true;
            self.resumed = false;
        } else if self.paused && bytes <= self.bytes_max / 2 {
            self.paused = false;
            self.resumed = true;
        }
        self.paused
    }

    /// Tells whether the consumer has to be paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
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
}
