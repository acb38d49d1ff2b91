//! Two steps of work on each chunk of data, the first of them one chunk ahead on a thread of its own.

use std::sync::mpsc;
use std::thread;

use crate::exit::{Failure, Result};

/// Calls `prepare`, then `take`, for each of `items` and its length in bytes. `prepare` fills a buffer of that length, and
/// `take` uses it while the next one is filled. The first failure of either ends both.
pub(crate) fn one_ahead<I: Send>(
    items: Vec<(I, usize)>,
    mut prepare: impl FnMut(&I, &mut [u8]) -> Result<()> + Send,
    mut take: impl FnMut(&I, &[u8]) -> Result<()>,
) -> Result<()> {
    let longest = items.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    if items.len() < 2 {
        // Nothing follows that could be prepared meanwhile.
        let mut buffer = vec![0; longest];
        return items.iter().try_for_each(|(item, _)| {
            prepare(item, &mut buffer)?;
            take(item, &buffer)
        });
    }
    thread::scope(|scope| {
        // Two buffers go round: one that is used, and one that is filled.
        let (give, taken) = mpsc::channel();
        let (send, prepared) = mpsc::channel();
        (0..2).for_each(|_| drop(give.send(vec![0; longest])));
        let prepares = move || {
            for (item, bytes) in items {
                // A closed channel means that `take` has failed.
                let Ok(mut buffer) = taken.recv() else { return };
                let outcome = prepare(&item, &mut buffer[..bytes]).map(|()| (item, buffer, bytes));
                let has_failed = outcome.is_err();
                if send.send(outcome).is_err() || has_failed {
                    return;
                }
            }
        };
        thread::Builder::new().spawn_scoped(scope, prepares).map_err(Failure::no_thread)?;
        for outcome in prepared {
            let (item, buffer, bytes) = outcome?;
            take(&item, &buffer[..bytes])?;
            // Nobody waits for it after the last item.
            drop(give.send(buffer));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(count: usize) -> Vec<(u8, usize)> {
        (0..count).map(|number| (number as u8, number % 7 + 1)).collect()
    }

    #[test]
    fn each_item_is_taken_once_in_order_with_its_own_bytes() {
        for count in [0, 1, 2, 3, 100] {
            let mut seen = Vec::new();
            let fill = |item: &u8, data: &mut [u8]| {
                data.fill(*item);
                Ok(())
            };
            one_ahead(items(count), fill, |item, data| {
                seen.push((*item, data.len()));
                assert!(data.iter().all(|byte| byte == item));
                Ok(())
            })
            .unwrap();
            assert_eq!(seen, items(count));
        }
    }

    #[test]
    fn a_failure_of_either_ends_both() {
        for failing in [0, 1, 5, 9] {
            let fails = |item: &u8| if *item == failing { Err(Failure::refused("at its item")) } else { Ok(()) };
            let mut taken = 0;
            let outcome = one_ahead(
                items(10),
                |item, _| fails(item),
                |_, _| {
                    taken += 1;
                    Ok(())
                },
            );
            assert!(outcome.is_err());
            assert_eq!(taken, failing);
            let mut prepared = 0;
            let prepare = |_: &u8, _: &mut [u8]| {
                prepared += 1;
                Ok(())
            };
            assert!(one_ahead(items(10), prepare, |item, _| fails(item)).is_err());
            assert!(prepared > failing && prepared <= failing + 2, "{prepared} prepared, item {failing} not taken");
        }
    }
}
