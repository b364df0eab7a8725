//! Where the rows of a claim stand inside of this process: waiting, handed out, finished.

/// Where a row stands inside of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Waiting,
    Started,
    Finished,
}

/// The steps of all rows of a claim.
pub(super) struct Steps {
    steps: Vec<Step>,
    /// No row before this one is waiting.
    next: usize,
}

impl Steps {
    /// All rows waiting.
    pub(super) fn new(rows: usize) -> Self {
        Steps { steps: vec![Step::Waiting; rows], next: 0 }
    }

    pub(super) fn is_finished(&self, index: usize) -> bool {
        self.steps.get(index) == Some(&Step::Finished)
    }

    pub(super) fn indexes(&self, is_wanted: impl Fn(Step) -> bool) -> Vec<usize> {
        self.steps.iter().enumerate().filter(|(_, step)| is_wanted(**step)).map(|(index, _)| index).collect()
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.steps.iter().skip(self.next).any(|step| *step == Step::Waiting)
    }

    /// Marks the first waiting row as started.
    pub(super) fn start_next(&mut self) -> Option<usize> {
        let (index, step) = self.steps.iter_mut().enumerate().skip(self.next).find(|(_, step)| **step == Step::Waiting)?;
        *step = Step::Started;
        self.next = index + 1;
        Some(index)
    }

    /// Takes back that a row was started, unless another thread has finished it meanwhile.
    pub(super) fn unstart(&mut self, index: usize) {
        if self.steps.get(index) == Some(&Step::Started) {
            self.set(&[index], Step::Waiting);
        }
    }

    /// Sets rows to a step; how many were in another one.
    pub(super) fn set(&mut self, indexes: &[usize], to: Step) -> usize {
        let mut changed = 0;
        for index in indexes {
            if let Some(step) = self.steps.get_mut(*index).filter(|step| **step != to) {
                *step = to;
                changed += 1;
            }
        }
        if to == Step::Waiting {
            self.next = indexes.iter().copied().min().unwrap_or(self.next).min(self.next);
        }
        changed
    }
}
