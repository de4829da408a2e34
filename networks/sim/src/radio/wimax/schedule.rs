//! Round-robin allocation of a frame's slots.

use std::collections::VecDeque;

/// A station's part of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SlotAllocation {
    pub(super) station: u32,
    pub(super) slots: u32,
    /// Slots for its whole demand.
    pub(super) requested: u32,
}

/// Takes the first `bursts` stations from the round and divides `slots` equally among them. Slots left over go to
/// stations that need more, in order. `need` returns a station's demand and its useful minimum.
pub(super) fn divide_slots(
    round: &mut VecDeque<u32>,
    bursts: u32,
    mut slots: u32,
    need: impl Fn(u32) -> (u32, u32),
    shares: &mut Vec<SlotAllocation>,
) {
    shares.clear();
    let bursts = bursts.min(round.len() as u32);
    let part = slots.checked_div(bursts).unwrap_or(0);
    for _ in 0..bursts {
        let Some(&station) = round.front() else { break };
        let (wanted, least) = need(station);
        let given = wanted.min(part.max(least));
        if given > slots {
            break;
        }
        round.pop_front();
        slots -= given;
        shares.push(SlotAllocation { station, slots: given, requested: wanted });
    }
    for share in shares {
        let more = (share.requested - share.slots).min(slots);
        share.slots += more;
        slots -= more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divide_among(wants: &[u32], bursts: u32, slots: u32) -> (Vec<u32>, usize) {
        let mut round: VecDeque<u32> = (0..wants.len() as u32).collect();
        let mut shares = Vec::new();
        divide_slots(&mut round, bursts, slots, |s| (wants[s as usize], 3), &mut shares);
        assert!(shares.iter().zip(0..).all(|(share, i)| share.station == i));
        (shares.iter().map(|s| s.slots).collect(), round.len())
    }

    #[test]
    fn parts_are_equal_and_leavings_go_round() {
        assert_eq!(divide_among(&[10, 10, 10], 3, 100), (vec![10, 10, 10], 0));
        assert_eq!(divide_among(&[5, 50, 50], 3, 60), (vec![5, 35, 20], 0));
        assert_eq!(divide_among(&[90, 90], 2, 60), (vec![30, 30], 0));
        assert_eq!(divide_among(&[90, 90], 1, 60), (vec![60], 1));
        assert_eq!(divide_among(&[], 4, 60), (vec![], 0));
    }

    #[test]
    fn nobody_gets_less_than_is_of_use() {
        assert_eq!(divide_among(&[9; 10], 10, 10), (vec![4, 3, 3], 7));
        assert_eq!(divide_among(&[9; 10], 10, 2), (vec![], 10));
    }
}
