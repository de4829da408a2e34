//! The handshakes of peers of whom nothing is known but an address: how many there may be, and whose step is next. One
//! step is done at a time, the networks take turns, and before each step the runtime looks at its sockets, so that whoever
//! opens many connections waits for them, and the driver does not.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use usher_core::ConnId;
use usher_core::address::host_of;
use usher_core::collections::HashMap;
use usher_core::fair::FairQueue;

/// Accepted connections of whose peers nothing is known.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    /// Those of each network, the oldest first: each has the number of its coming.
    networks: BTreeMap<IpAddr, BTreeMap<u64, ConnId>>,
    /// The networks by how many they have, and among those with as many, by who has had its oldest longest.
    shares: BTreeSet<(usize, Reverse<u64>, IpAddr)>,
    conns: HashMap<ConnId, (IpAddr, u64)>,
    came: u64,
}

impl Unfinished {
    /// One more from an address. Where that makes more than `most`, the one that is to make room: of the network that has
    /// most, the one that has been at it longest. Whoever means it is done soon.
    pub(crate) fn add(&mut self, conn: ConnId, from: IpAddr, most: usize) -> Option<ConnId> {
        self.came += 1;
        let (network, came) = (host_of(from), self.came);
        self.change(network, |own| {
            own.insert(came, conn);
        });
        self.conns.insert(conn, (network, came));
        if self.conns.len() <= most {
            return None;
        }
        let (_, Reverse(oldest), network) = *self.shares.last()?;
        let displaced = *self.networks.get(&network)?.get(&oldest)?;
        self.remove(displaced);
        Some(displaced)
    }
    /// One is complete, or over.
    pub(crate) fn remove(&mut self, conn: ConnId) {
        if let Some((network, came)) = self.conns.remove(&conn) {
            self.change(network, |own| {
                own.remove(&came);
            });
        }
    }
    fn change(&mut self, network: IpAddr, change: impl FnOnce(&mut BTreeMap<u64, ConnId>)) {
        let share = |own: &BTreeMap<u64, ConnId>| {
            own.first_key_value().map(|(oldest, _)| (own.len(), Reverse(*oldest), network))
        };
        let own = self.networks.entry(network).or_default();
        let before = share(own);
        change(own);
        let after = share(own);
        if after.is_none() {
            self.networks.remove(&network);
        }
        if let Some(before) = before {
            self.shares.remove(&before);
        }
        self.shares.extend(after);
    }
}

/// Who waits, and whether somebody has the turn.
#[derive(Default)]
struct State {
    taken: bool,
    waiting: FairQueue<IpAddr, oneshot::Sender<Turn>>,
}

/// The turns of one driver; clones are the same ones.
#[derive(Clone, Default)]
pub(crate) struct HandshakeTurns(Arc<Mutex<State>>);

impl HandshakeTurns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for this address's turn, which lasts until it is dropped.
    pub(crate) async fn turn(&self, address: IpAddr) -> Turn {
        let turn = match self.take_or_wait(address) {
            // Whoever has the turn gives it on, and so does whoever drops it unused.
            Err(waiting) => waiting.await.unwrap_or_else(|_| Turn(None)),
            Ok(turn) => turn,
        };
        tokio::task::yield_now().await;
        turn
    }

    fn take_or_wait(&self, address: IpAddr) -> Result<Turn, oneshot::Receiver<Turn>> {
        let mut state = self.state();
        if !std::mem::replace(&mut state.taken, true) {
            return Ok(Turn(Some(self.clone())));
        }
        let (sender, receiver) = oneshot::channel();
        // There are no more than there are connections, which are bounded.
        let _ = state.waiting.push(host_of(address), sender, usize::MAX);
        Err(receiver)
    }
}

/// The right to one step.
pub(crate) struct Turn(Option<HandshakeTurns>);

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.0.take() else { return };
        loop {
            let mut state = turns.state();
            let Some((_, next)) = state.waiting.pop() else {
                state.taken = false;
                return;
            };
            drop(state);
            match next.send(Turn(Some(turns.clone()))) {
                Ok(()) => return,
                // Its connection is gone: the turn is the next one's.
                Err(mut unused) => unused.0 = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn address(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn who_has_most_unfinished_handshakes_gives_up_the_oldest() {
        let mut all = Unfinished::default();
        let mut add = |n: u32, from: &str| {
            let displaced = all.add(ConnId::accepted(n), from.parse().unwrap(), 4);
            displaced.map(|conn| (0..20).find(|n| ConnId::accepted(*n) == conn).unwrap())
        };
        assert_eq!([0, 1, 2].map(|n| add(n, "192.0.2.1")), [None; 3]);
        assert_eq!((add(3, "192.0.2.2"), add(4, "192.0.2.2")), (None, Some(0)));
        // As many of one as of the other: whose have been there longest.
        assert_eq!((add(5, "192.0.2.3"), add(6, "192.0.2.4")), (Some(1), Some(3)));
        // One each: the oldest of all, so that a flood from everywhere leaves each who comes a while.
        assert_eq!([7, 8, 9].map(|n| add(n, &format!("192.0.2.{n}"))), [Some(2), Some(4), Some(5)]);
        // A network of IPv6 is one, and its flood its own affair.
        let from = |n: u32| format!("2001:db8:1:2::{n}");
        assert_eq!([10, 11, 12, 13].map(|n| add(n, &from(n))), [Some(6), Some(10), Some(11), Some(12)]);
        for n in [7, 8, 9, 13] {
            all.remove(ConnId::accepted(n));
        }
        assert!(all.conns.is_empty() && all.networks.is_empty() && all.shares.is_empty());
    }

    #[test]
    fn addresses_take_turns_one_at_a_time() {
        let turns = HandshakeTurns::default();
        let mut first = pin!(turns.turn(address(9)));
        assert!(poll(first.as_mut()).is_pending(), "sockets are looked at before a step");
        let Poll::Ready(first) = poll(first.as_mut()) else { panic!("nobody else has the turn") };
        let from = [1, 1, 1, 2, 3];
        let mut waiting: Vec<_> = from.iter().map(|n| (*n, Box::pin(turns.turn(address(*n))))).collect();
        for (_, turn) in &mut waiting {
            assert!(poll(turn.as_mut()).is_pending());
        }
        // One that is given up before its turn comes keeps nobody waiting.
        drop(waiting.remove(1));
        let (mut order, mut held) = (Vec::new(), first);
        while !waiting.is_empty() {
            drop(held);
            // Once to hear of the turn, once more after the sockets were looked at.
            let mut ready = None;
            for _ in 0..2 {
                for (i, (_, turn)) in waiting.iter_mut().enumerate() {
                    if ready.is_none()
                        && let Poll::Ready(turn) = poll(turn.as_mut())
                    {
                        ready = Some((i, turn));
                    }
                }
            }
            let (i, turn) = ready.expect("somebody has the turn");
            order.push(waiting.remove(i).0);
            held = turn;
        }
        drop(held);
        assert_eq!(order, [1, 2, 3, 1]);
        assert!(!turns.state().taken);
    }
}
