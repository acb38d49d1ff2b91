//! The order of steps.

use std::collections::{BTreeSet, HashMap};

use super::error::GraphError;
use super::step::Step;

/// Returns the steps in an order that satisfies all dependencies: deterministic, and that of the graph where they allow it.
pub(super) fn order(steps: &[Step]) -> Result<Vec<usize>, GraphError> {
    let before = dependencies(steps);
    let mut behind = vec![Vec::new(); steps.len()];
    let mut waiting: Vec<usize> = before.iter().map(BTreeSet::len).collect();
    for (step, before) in before.iter().enumerate() {
        before.iter().for_each(|other| behind[*other].push(step));
    }
    let mut ready: BTreeSet<usize> = (0..steps.len()).filter(|step| waiting[*step] == 0).collect();
    let mut order = Vec::with_capacity(steps.len());
    while let Some(step) = ready.pop_first() {
        order.push(step);
        for next in &behind[step] {
            waiting[*next] -= 1;
            if waiting[*next] == 0 {
                ready.insert(*next);
            }
        }
    }
    match waiting.iter().position(|count| *count != 0) {
        None => Ok(order),
        Some(stuck) => {
            let steps: Vec<String> = cycle(stuck, &before, &waiting).iter().map(usize::to_string).collect();
            Err(GraphError::general(format!("cyclic order of steps {}", steps.join(", "))))
        }
    }
}

/// Returns the steps that each step must follow: those it names, and those that use its buffers.
fn dependencies(steps: &[Step]) -> Vec<BTreeSet<usize>> {
    #[derive(Default)]
    struct Use {
        written: Option<usize>,
        read: Vec<usize>,
    }
    let mut uses: HashMap<&str, Use> = HashMap::new();
    let mut before = Vec::with_capacity(steps.len());
    for (number, step) in steps.iter().enumerate() {
        let mut needs: BTreeSet<usize> = step.after.iter().copied().collect();
        if let Some(name) = step.input.as_deref() {
            let used = uses.entry(name).or_default();
            needs.extend(used.written);
            used.read.push(number);
        }
        if let Some(name) = step.output.as_deref() {
            let used = uses.entry(name).or_default();
            needs.extend(used.written.replace(number));
            // A step in place is its own reader.
            needs.extend(used.read.drain(..).filter(|reader| *reader != number));
        }
        before.push(needs);
    }
    before
}

/// Returns a cycle of the steps before `stuck`, which never gets ready.
fn cycle(stuck: usize, before: &[BTreeSet<usize>], waiting: &[usize]) -> Vec<usize> {
    let mut path = vec![stuck];
    loop {
        let last = path[path.len() - 1];
        let Some(next) = before[last].iter().copied().find(|step| waiting[*step] != 0) else { return path };
        if let Some(start) = path.iter().position(|step| *step == next) {
            let mut steps = path.split_off(start);
            steps.reverse();
            return steps;
        }
        path.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Collective, Request};

    fn step(input: &str, output: &str, after: &[usize]) -> Step {
        let request = Request::new(Collective::Sendrecv, vec![0, 1], 64);
        Step { after: after.to_vec(), ..Step::new(request).input(input).output(output) }
    }

    #[test]
    fn readers_and_writers_of_a_buffer_keep_their_order() {
        // 1 reads what 0 wrote; 2 writes what 1 reads; 3 writes over what 2 wrote; 4 has nothing to do with them.
        let steps =
            [step("a", "b", &[]), step("b", "c", &[]), step("d", "b", &[]), step("d", "b", &[]), step("e", "f", &[])];
        let before: Vec<Vec<usize>> =
            dependencies(&steps).into_iter().map(|needs| needs.into_iter().collect()).collect();
        assert_eq!(before, [vec![], vec![0], vec![0, 1], vec![2], vec![]]);
        assert_eq!(order(&steps), Ok(vec![0, 1, 2, 3, 4]));
    }

    #[test]
    fn a_step_can_be_put_behind_a_later_one() {
        let steps = [step("a", "b", &[2]), step("c", "d", &[]), step("e", "f", &[])];
        assert_eq!(order(&steps), Ok(vec![1, 2, 0]));
    }

    #[test]
    fn a_cycle_is_named() {
        // 0 writes what 2 reads, so 2 follows 0; 0 is to follow 3, which follows 2.
        let steps = [step("a", "b", &[3]), step("x", "y", &[]), step("b", "c", &[]), step("c", "d", &[])];
        assert_eq!(order(&steps).unwrap_err().to_string(), "cyclic order of steps 2, 3, 0");
        assert_eq!(order(&[step("a", "b", &[0])]).unwrap_err().to_string(), "cyclic order of steps 0");
    }
}
