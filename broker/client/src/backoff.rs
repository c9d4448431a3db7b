//! How long to wait before the next try: doubling, with a bound.

use std::time::Duration;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(3);

/// The pauses between tries of one call: from 50 ms on, doubled up to 3 s.
#[derive(Debug)]
pub struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Backoff {
    /// The pause before the next try; longer each time, and never shorter than the server asks for.
    pub fn next_pause(&mut self, asked: Option<Duration>) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(PAUSE_MAX);
        pause.max(asked.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, FIRST_PAUSE, PAUSE_MAX};
    use std::time::Duration;

    #[test]
    fn pauses_double_up_to_their_bound_and_obey_the_server() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next_pause(None), FIRST_PAUSE);
        assert_eq!(backoff.next_pause(None), FIRST_PAUSE * 2);
        let last = (0..20).map(|_| backoff.next_pause(None)).last();
        assert_eq!(last, Some(PAUSE_MAX));
        assert_eq!(backoff.next_pause(Some(Duration::from_secs(9))), Duration::from_secs(9));
    }
}
