//! Who held when: pure, from what the holders wrote down themselves.

/// From the first to the last moment at which a holder surely held, in microseconds on the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub fence: i64,
    pub since: i64,
    pub until: i64,
}

/// The most holders of one name at the same moment. Two that touch are not at once.
pub fn most_at_once(intervals: &[Interval]) -> usize {
    let mut edges: Vec<(i64, i32)> = Vec::new();
    for interval in intervals {
        // One that was seen at one moment only is there at that moment.
        let until = interval.until.max(interval.since + 1);
        edges.extend([(interval.since, 1), (until, -1)]);
    }
    // At the same moment the end comes first.
    edges.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, step) in edges {
        now += step;
        most = most.max(now);
    }
    usize::try_from(most).unwrap_or(0)
}

/// Pairs in which the larger fence held before the smaller one.
pub fn out_of_order(intervals: &[Interval]) -> usize {
    let mut by_fence = intervals.to_vec();
    by_fence.sort_unstable_by_key(|interval| interval.fence);
    by_fence.windows(2).filter(|pair| matches!(pair, [earlier, later] if later.since < earlier.since)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(intervals: &[(i64, i64, i64)]) -> Vec<Interval> {
        intervals.iter().map(|&(fence, since, until)| Interval { fence, since, until }).collect()
    }

    #[test]
    fn holders_that_follow_each_other_are_one_at_a_time() {
        assert_eq!(most_at_once(&of(&[(1, 0, 10), (2, 10, 20), (3, 25, 25)])), 1);
        assert_eq!(most_at_once(&[]), 0);
    }

    #[test]
    fn an_overlap_is_found_wherever_it_is() {
        assert_eq!(most_at_once(&of(&[(1, 0, 10), (2, 9, 20)])), 2);
        assert_eq!(most_at_once(&of(&[(1, 0, 100), (2, 50, 50)])), 2);
        assert_eq!(most_at_once(&of(&[(1, 7, 7), (2, 7, 7)])), 2);
        assert_eq!(most_at_once(&of(&[(1, 0, 100), (2, 1, 2), (3, 90, 99), (4, 98, 120)])), 3);
    }

    #[test]
    fn fences_grow_with_the_time() {
        assert_eq!(out_of_order(&of(&[(2, 10, 20), (1, 0, 10)])), 0);
        assert_eq!(out_of_order(&of(&[(2, 0, 10), (1, 10, 20)])), 1);
    }
}
