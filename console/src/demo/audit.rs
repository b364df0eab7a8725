//! Which doubles are explained. Pure: the provider's records in, counts out.
//!
//! A message went out twice by design in two cases only. Its worker was killed or stopped between the provider's
//! acceptance and the commit: that can be the one send it was inside of, the last before its accident. Or its worker lost
//! patience with a provider that had accepted after all. Every other double is the engine's fault.

use super::provider::Delivery;
use std::collections::{HashMap, HashSet};

/// A worker that had an accident.
#[derive(Clone, Debug)]
pub struct Victim {
    pub worker: String,
    /// Deliveries, of all workers, noted before its accident.
    pub deliveries_before: usize,
}

/// Deliveries beyond the first to each recipient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubles {
    pub by_accident: u64,
    pub by_timeout: u64,
    pub unexplained: u64,
}

impl Doubles {
    pub fn total(&self) -> u64 {
        self.by_accident + self.by_timeout + self.unexplained
    }
}

/// Traces each double to the delivery before it. `gave_up` holds worker, recipient and attempt.
pub fn doubles(deliveries: &[Delivery], victims: &[Victim], gave_up: &HashSet<(String, usize, u32)>) -> Doubles {
    let mut in_flight: HashSet<usize> = victims.iter().filter_map(|victim| last_before(deliveries, victim)).collect();
    let mut excused = gave_up.clone();
    let mut previous: HashMap<usize, usize> = HashMap::new();
    let mut doubles = Doubles::default();
    for (position, delivery) in deliveries.iter().enumerate() {
        let Some(earlier) = previous.insert(delivery.recipient, position) else { continue };
        let Some(first) = deliveries.get(earlier) else { continue };
        // Each excuse counts once.
        if in_flight.remove(&earlier) {
            doubles.by_accident += 1;
        } else if excused.remove(&(first.worker.clone(), first.recipient, first.attempt)) {
            doubles.by_timeout += 1;
        } else {
            doubles.unexplained += 1;
        }
    }
    doubles
}

/// The delivery a victim was inside of.
fn last_before(deliveries: &[Delivery], victim: &Victim) -> Option<usize> {
    deliveries.iter().take(victim.deliveries_before).rposition(|delivery| delivery.worker == victim.worker)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(by: &[(&str, usize)]) -> Vec<Delivery> {
        by.iter()
            .map(|(worker, recipient)| Delivery { recipient: *recipient, worker: (*worker).to_owned(), attempt: 1 })
            .collect()
    }

    fn victim(worker: &str, deliveries_before: usize) -> Victim {
        Victim { worker: worker.to_owned(), deliveries_before }
    }

    #[test]
    fn the_send_a_killed_worker_was_inside_of_may_go_out_again() {
        let deliveries = sent(&[("a", 1), ("b", 2), ("a", 3), ("b", 3)]);
        let found = doubles(&deliveries, &[victim("a", 3)], &HashSet::new());
        assert_eq!(found, Doubles { by_accident: 1, ..Doubles::default() });
    }

    #[test]
    fn an_earlier_send_of_a_killed_worker_is_no_excuse() {
        let deliveries = sent(&[("a", 1), ("b", 2), ("a", 3), ("b", 1)]);
        let found = doubles(&deliveries, &[victim("a", 3)], &HashSet::new());
        assert_eq!(found, Doubles { unexplained: 1, ..Doubles::default() });
    }

    #[test]
    fn a_send_after_the_accident_is_no_excuse() {
        let deliveries = sent(&[("a", 1), ("b", 2), ("a", 3), ("b", 3)]);
        let found = doubles(&deliveries, &[victim("a", 2)], &HashSet::new());
        assert_eq!(found, Doubles { unexplained: 1, ..Doubles::default() });
    }

    #[test]
    fn an_accident_explains_one_double_and_not_two() {
        let deliveries = sent(&[("a", 1), ("b", 1), ("c", 1)]);
        let found = doubles(&deliveries, &[victim("a", 1)], &HashSet::new());
        assert_eq!(found, Doubles { by_accident: 1, unexplained: 1, ..Doubles::default() });
    }

    #[test]
    fn lost_patience_explains_that_attempt_only() {
        let deliveries = sent(&[("a", 1), ("b", 1), ("a", 2), ("b", 2)]);
        let gave_up = HashSet::from([("a".to_owned(), 1, 1), ("a".to_owned(), 2, 7)]);
        let found = doubles(&deliveries, &[], &gave_up);
        assert_eq!(found, Doubles { by_timeout: 1, unexplained: 1, ..Doubles::default() });
        assert_eq!(found.total(), 2);
    }
}
