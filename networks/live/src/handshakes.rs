//! Turns for the handshakes of unproven peers. One step runs at a time, networks take turns, and the runtime
//! polls its sockets before each step. So a peer with many connections delays only itself.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use usher_core::address::host_of;
use usher_core::fair::FairQueue;

/// Waiting handshakes, and whether a step runs.
#[derive(Default)]
struct HandshakeSchedulerState {
    is_taken: bool,
    waiting: FairQueue<IpAddr, oneshot::Sender<HandshakePermit>>,
}

/// The turns of one driver; clones share them.
#[derive(Clone, Default)]
pub(crate) struct HandshakeScheduler(Arc<Mutex<HandshakeSchedulerState>>);

impl HandshakeScheduler {
    fn lock_state(&self) -> MutexGuard<'_, HandshakeSchedulerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn of this address, which lasts until the value is dropped.
    pub(crate) async fn wait_for_handshake_turn(&self, address: IpAddr) -> HandshakePermit {
        let turn = match self.take_or_queue_turn(address) {
            // A permit that is dropped passes the turn on, even if its holder made no step.
            Err(waiting) => waiting.await.unwrap_or_else(|_| HandshakePermit(None)),
            Ok(turn) => turn,
        };
        tokio::task::yield_now().await;
        turn
    }

    fn take_or_queue_turn(
        &self,
        address: IpAddr,
    ) -> Result<HandshakePermit, oneshot::Receiver<HandshakePermit>> {
        let mut state = self.lock_state();
        if !std::mem::replace(&mut state.is_taken, true) {
            return Ok(HandshakePermit(Some(self.clone())));
        }
        let (sender, receiver) = oneshot::channel();
        // The queue needs no limit of its own: each entry belongs to a connection, and connections are bounded.
        let _ = state.waiting.push(host_of(address), sender, usize::MAX);
        Err(receiver)
    }
}

/// The right to one handshake step.
pub(crate) struct HandshakePermit(Option<HandshakeScheduler>);

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        let Some(turns) = self.0.take() else { return };
        loop {
            let mut state = turns.lock_state();
            let Some((_, next)) = state.waiting.pop() else {
                state.is_taken = false;
                return;
            };
            drop(state);
            match next.send(HandshakePermit(Some(turns.clone()))) {
                Ok(()) => return,
                // The waiting connection is gone, so pass the turn to the next one.
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

    fn test_address(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn addresses_take_turns_one_at_a_time() {
        let turns = HandshakeScheduler::default();
        let mut first = pin!(turns.wait_for_handshake_turn(test_address(9)));
        assert!(poll_once(first.as_mut()).is_pending(), "sockets are looked at before a step");
        let Poll::Ready(first) = poll_once(first.as_mut()) else { panic!("nobody else has the turn") };
        let from = [1, 1, 1, 2, 3];
        let mut waiting: Vec<_> =
            from.iter().map(|n| (*n, Box::pin(turns.wait_for_handshake_turn(test_address(*n))))).collect();
        for (_, turn) in &mut waiting {
            assert!(poll_once(turn.as_mut()).is_pending());
        }
        // A cancelled wait delays no other.
        drop(waiting.remove(1));
        let (mut order, mut held) = (Vec::new(), first);
        while !waiting.is_empty() {
            drop(held);
            // Once for the turn, once after the runtime polled its sockets.
            let mut ready = None;
            for _ in 0..2 {
                for (i, (_, turn)) in waiting.iter_mut().enumerate() {
                    if ready.is_none()
                        && let Poll::Ready(turn) = poll_once(turn.as_mut())
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
        assert!(!turns.lock_state().is_taken);
    }
}
