//! The highest that a number was.

/// In pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    pub ever: u64,
    /// Since somebody asked last for a new start.
    pub recent: u64,
}

impl Peak {
    pub fn note(&mut self, now: u64) {
        self.recent = self.recent.max(now);
        self.ever = self.ever.max(now);
    }

    /// Starts anew; gives what `recent` was.
    pub fn restart(&mut self, now: u64) -> u64 {
        std::mem::replace(&mut self.recent, now)
    }
}

/// Which number of an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeakOf {
    /// What is here (`memory.peak`).
    Here,
    /// What is in the swap's store (`memory.swap.peak`).
    Stored,
}

#[cfg(test)]
mod tests {
    use super::Peak;

    #[test]
    fn a_new_start_forgets_what_is_recent() {
        let mut p = Peak::default();
        p.note(5);
        p.note(2);
        assert_eq!((p.restart(2), p.ever, p.recent), (5, 5, 2));
        p.note(3);
        assert_eq!((p.ever, p.recent), (5, 3));
    }
}
