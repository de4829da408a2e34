//! One MIH transaction over UDP. Packets are lost independently.

use std::collections::BTreeMap;
use usher_core::Duration;

/// Maximum number of retransmissions of a request with acknowledgement: the number of paths grows fast.
pub const MOST_RETRANSMISSIONS: u32 = 5;

/// The kind of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageKind {
    /// An indication: one message in one direction.
    Indication,
    /// A request and its response.
    Request,
}

/// A transaction and its transport. There are no queues, and transactions do not affect each other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MihTransaction {
    /// The kind of transaction.
    pub message: MessageKind,
    /// True if each message requests an MIH acknowledgement, and is retransmitted without one.
    pub ack: bool,
    /// Probability that a packet is lost, in the direction of the indication or request and back.
    pub loss: [f64; 2],
    /// Delay of a packet, in the same directions.
    pub delay: [Duration; 2],
    /// Time from the arrival of a request to its response. If it is above zero, an acknowledgement of its own precedes
    /// the response; otherwise the response acknowledges the request.
    pub processing: Duration,
    /// Retransmission timeout.
    pub timeout: Duration,
    /// Maximum number of retransmissions of a message.
    pub retransmissions: u32,
}

/// The response to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MihResponse {
    /// Packets of the response, at least 1, lost independently. The copies of a retransmitted response together have to
    /// bring each packet.
    pub packets: u32,
    /// Time until the last packet of the response arrives.
    pub delay: Duration,
}

/// Expected values of a transaction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ExpectedOutcome {
    /// Probability that the indication is delivered, or the response arrives in time.
    pub success: f64,
    /// Mean time from the first copy to the delivery of the indication or response, in seconds, over successful
    /// transactions. NaN if none succeeds.
    pub delay: f64,
    /// Packets of both sides: copies and acknowledgements.
    pub packets: f64,
    /// Messages that carry information: the indication, or the request and its response, if there is one.
    pub messages: f64,
}

impl ExpectedOutcome {
    /// Returns packets per message that carries information.
    pub fn overhead(&self) -> f64 {
        self.packets / self.messages
    }
}

impl MihTransaction {
    /// Returns the expected values. Returns `None` for a request with acknowledgement with more than
    /// [`MOST_RETRANSMISSIONS`] retransmissions or without processing time.
    pub fn expected_outcome(&self) -> Option<ExpectedOutcome> {
        let at_once = self.ack && self.message == MessageKind::Request && self.processing.is_zero();
        let one = MihResponse { packets: 1, delay: self.delay[1] };
        (!at_once).then(|| self.outcome_with_response(one)).flatten()
    }

    /// Returns the expected values for a response of several packets, or for an immediate response that acknowledges
    /// the request. Returns `None` for a request with acknowledgement with more than [`MOST_RETRANSMISSIONS`]
    /// retransmissions.
    pub fn outcome_with_response(&self, answer: MihResponse) -> Option<ExpectedOutcome> {
        match (self.ack, self.message) {
            (false, _) => Some(self.unacknowledged_outcome(answer)),
            (true, MessageKind::Indication) => Some(self.indication_outcome()),
            (true, MessageKind::Request) => {
                (self.retransmissions <= MOST_RETRANSMISSIONS).then(|| self.request_outcome(answer))
            }
        }
    }

    /// Returns the success probability if each message succeeds by itself and no message is late. For a request with
    /// acknowledgement, it is the probability that a copy of the request arrives times that for the response.
    pub fn success_bound(&self) -> f64 {
        let copies = if self.ack { f64::from(self.retransmissions) + 1.0 } else { 1.0 };
        let arrives = |loss: f64| 1.0 - libm::pow(loss, copies);
        match self.message {
            MessageKind::Indication => arrives(self.loss[0]),
            MessageKind::Request => arrives(self.loss[0]) * arrives(self.loss[1]),
        }
    }

    fn unacknowledged_outcome(&self, answer: MihResponse) -> ExpectedOutcome {
        let [there, back] = self.loss.map(|p| 1.0 - p);
        let out = self.delay[0];
        match self.message {
            MessageKind::Indication => {
                ExpectedOutcome { success: there, delay: out.as_secs_f64(), packets: 1.0, messages: 1.0 }
            }
            MessageKind::Request => ExpectedOutcome {
                success: there * libm::pow(back, f64::from(answer.packets)),
                delay: (out + self.processing + answer.delay).as_secs_f64(),
                packets: 1.0 + there * f64::from(answer.packets),
                messages: 1.0 + there,
            },
        }
        .with_defined_delay()
    }

    /// Copy k is the first to arrive with probability p^k (1 - p). It is sent if every acknowledgement that could have
    /// arrived by then is missing.
    fn indication_outcome(&self) -> ExpectedOutcome {
        let [lost, lost_back] = self.loss;
        let unanswered = 1.0 - (1.0 - lost) * (1.0 - lost_back);
        let round_trip = self.delay[0] + self.delay[1];
        let (mut success, mut waits, mut copies, mut missing) = (0.0, 0.0, 0.0, 1.0);
        for k in 0..=self.retransmissions {
            let at = self.timeout * u64::from(k);
            let arrives = missing * (1.0 - lost);
            success += arrives;
            waits += arrives * at.as_secs_f64();
            missing *= lost;
            let answered = (0..k).filter(|i| self.timeout * u64::from(*i) + round_trip < at).count();
            copies += libm::pow(unanswered, answered as f64);
        }
        let delay = self.delay[0].as_secs_f64() + waits / success;
        ExpectedOutcome { success, delay, packets: copies * (2.0 - lost), messages: 1.0 }.with_defined_delay()
    }

    /// Follows all paths in the order of time. Paths in the same state are merged.
    fn request_outcome(&self, answer: MihResponse) -> ExpectedOutcome {
        let mut sum = ExpectedOutcome { success: 0.0, delay: 0.0, packets: 0.0, messages: 1.0 };
        let mut courses = BTreeMap::new();
        let mut first = TransactionState::default();
        let sent = first.send_request(self);
        self.branch_transaction_path(answer, &mut courses, &mut sum, first, Some(sent), 1.0);
        while let Some((mut course, chance)) = courses.pop_first() {
            let (at, event) = course.pending.remove(0);
            match event {
                TransactionEvent::Response if course.requester == RequesterState::Waiting => {
                    sum.success += chance;
                    sum.delay += chance * at.as_secs_f64();
                }
                TransactionEvent::Ready => sum.messages += chance,
                TransactionEvent::Request
                    if self.processing.is_zero() && course.responder == ResponderState::Idle =>
                {
                    sum.messages += chance;
                }
                _ => {}
            }
            let sent = course.handle_event(self, at, event);
            self.branch_transaction_path(answer, &mut courses, &mut sum, course, sent, chance);
        }
        ExpectedOutcome { delay: sum.delay / sum.success, ..sum }.with_defined_delay()
    }

    /// Splits a path into the cases of the packet that it sends: arrival and loss.
    fn branch_transaction_path(
        &self,
        answer: MihResponse,
        courses: &mut BTreeMap<TransactionState, f64>,
        sum: &mut ExpectedOutcome,
        mut course: TransactionState,
        sent: Option<(Duration, TransactionEvent)>,
        chance: f64,
    ) {
        let mut put = |course: TransactionState, chance: f64| {
            if !course.pending.is_empty() && chance > 0.0 {
                *courses.entry(course).or_insert(0.0) += chance;
            }
        };
        let Some((at, event)) = sent else { return put(course, chance) };
        let (packets, delay, lost) = match event {
            TransactionEvent::Response => {
                let missing = self.incomplete_response_probability(answer, course.copies + 1);
                // If the answer is a single packet, the number of copies does not matter. Do not count them, so that
                // paths can merge.
                course.copies += u32::from(answer.packets > 1);
                (answer.packets, answer.delay, missing)
            }
            TransactionEvent::RequestAck => (1, self.delay[1], self.loss[1]),
            _ => (1, self.delay[0], self.loss[0]),
        };
        sum.packets += chance * f64::from(packets);
        let mut arrives = course.clone();
        if event == TransactionEvent::Response {
            arrives.copies = 0;
        }
        arrives.schedule_event(at + delay, event);
        put(arrives, chance * (1.0 - lost));
        put(course, chance * lost);
    }

    /// Returns the probability that a copy of the response leaves it incomplete. `copies` counts those since the
    /// response was last complete, this copy included.
    fn incomplete_response_probability(&self, answer: MihResponse, copies: u32) -> f64 {
        let whole = |copies: u32| {
            let each = 1.0 - libm::pow(self.loss[1], f64::from(copies));
            libm::pow(each, f64::from(answer.packets))
        };
        let before = 1.0 - whole(copies - 1);
        // The probability is zero if earlier copies certainly completed the response.
        if before > 0.0 { (1.0 - whole(copies)) / before } else { 0.0 }
    }
}

/// The next event of a path. At equal times, timers come first, as they were started first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TransactionEvent {
    RequestTimeout,
    ResponseTimeout,
    /// The response is ready.
    Ready,
    /// This and the following packets arrive.
    Request,
    RequestAck,
    Response,
    ResponseAck,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum RequesterState {
    #[default]
    Waiting,
    /// The response arrived.
    Done,
    /// No acknowledgement arrived; a later response is dropped.
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum ResponderState {
    /// No request arrived.
    #[default]
    Idle,
    Works,
    /// The response was sent, and is not acknowledged.
    Answered,
    Acknowledged,
}

/// A transaction in progress. `pending` comes first, so that paths are ordered by time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct TransactionState {
    pending: Vec<(Duration, TransactionEvent)>,
    requester: RequesterState,
    request_acknowledged: bool,
    requests: u32,
    responder: ResponderState,
    responses: u32,
    /// Copies of the response, since it was last complete.
    copies: u32,
}

impl TransactionState {
    fn schedule_event(&mut self, at: Duration, event: TransactionEvent) {
        let place = self.pending.partition_point(|known| *known <= (at, event));
        self.pending.insert(place, (at, event));
    }

    /// Sends a copy of the request.
    fn send_request(&mut self, x: &MihTransaction) -> (Duration, TransactionEvent) {
        let at = x.timeout * u64::from(self.requests);
        self.requests += 1;
        self.schedule_event(at + x.timeout, TransactionEvent::RequestTimeout);
        (at, TransactionEvent::Request)
    }

    /// Sends a copy of the response by its own timer.
    fn send_response(&mut self, x: &MihTransaction, at: Duration) -> Option<(Duration, TransactionEvent)> {
        self.responses += 1;
        if self.responses <= x.retransmissions {
            self.schedule_event(at + x.timeout, TransactionEvent::ResponseTimeout);
        }
        Some((at, TransactionEvent::Response))
    }

    /// Handles an event; returns the packet that a side sends in return.
    fn handle_event(
        &mut self,
        x: &MihTransaction,
        at: Duration,
        event: TransactionEvent,
    ) -> Option<(Duration, TransactionEvent)> {
        match event {
            TransactionEvent::RequestTimeout => {
                if self.requester != RequesterState::Waiting || self.request_acknowledged {
                    return None;
                }
                if self.requests <= x.retransmissions {
                    return Some(self.send_request(x));
                }
                self.requester = RequesterState::Failed;
                None
            }
            TransactionEvent::Request if self.responder <= ResponderState::Works => {
                if x.processing.is_zero() {
                    self.responder = ResponderState::Answered;
                    return self.send_response(x, at);
                }
                if self.responder == ResponderState::Idle {
                    self.responder = ResponderState::Works;
                    self.schedule_event(at + x.processing, TransactionEvent::Ready);
                }
                Some((at, TransactionEvent::RequestAck))
            }
            // The peer answers a duplicate request with the response, which also acknowledges the request.
            TransactionEvent::Request => Some((at, TransactionEvent::Response)),
            TransactionEvent::RequestAck => {
                self.request_acknowledged = true;
                None
            }
            TransactionEvent::Ready => {
                self.responder = ResponderState::Answered;
                self.send_response(x, at)
            }
            TransactionEvent::ResponseTimeout if self.responder == ResponderState::Answered => {
                self.send_response(x, at)
            }
            TransactionEvent::ResponseTimeout => None,
            TransactionEvent::Response if self.requester == RequesterState::Failed => None,
            TransactionEvent::Response => {
                self.requester = RequesterState::Done;
                Some((at, TransactionEvent::ResponseAck))
            }
            TransactionEvent::ResponseAck => {
                self.responder = ResponderState::Acknowledged;
                None
            }
        }
    }
}

impl ExpectedOutcome {
    /// Sets the delay to NaN if no transaction succeeds.
    fn with_defined_delay(self) -> Self {
        if self.success > 0.0 { self } else { Self { delay: f64::NAN, ..self } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use usher_core::{Seed, SimulationRng};

    const fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// The document's setting, with a timeout.
    fn test_transaction(message: MessageKind, ack: bool, loss: f64, timeout: u64) -> MihTransaction {
        MihTransaction {
            message,
            ack,
            loss: [loss; 2],
            delay: [millis(20); 2],
            processing: millis(200),
            timeout: millis(timeout),
            retransmissions: 2,
        }
    }

    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    enum SimulatedTransactionEvent {
        Request,
        RequestAck,
        Response,
        ResponseAck,
        Ready,
        RequestTimeout,
        ResponseTimeout,
    }

    /// A transaction simulated event by event, like the standard's state machines.
    #[derive(Default)]
    struct SimulatedTransaction {
        queue: BinaryHeap<Reverse<(u64, SimulatedTransactionEvent)>>,
        packets: u32,
        messages: u32,
        delivered: Option<u64>,
        requester_waits: bool,
        failed: bool,
        requests_left: u32,
        responder: Option<bool>,
        responses_left: u32,
    }

    impl SimulatedTransaction {
        fn send_packet(
            &mut self,
            x: &MihTransaction,
            rng: &mut SimulationRng,
            now: u64,
            what: SimulatedTransactionEvent,
        ) {
            let way = usize::from(matches!(
                what,
                SimulatedTransactionEvent::RequestAck | SimulatedTransactionEvent::Response
            ));
            self.packets += 1;
            if !rng.sample_bool(x.loss[way]) {
                self.queue.push(Reverse((now + x.delay[way].as_nanos(), what)));
            }
        }

        fn simulate_transaction(x: &MihTransaction, rng: &mut SimulationRng) -> Self {
            let timeout = x.timeout.as_nanos();
            let mut p = Self {
                messages: 1,
                requester_waits: true,
                requests_left: x.retransmissions,
                responses_left: x.retransmissions,
                ..Self::default()
            };
            p.send_packet(x, rng, 0, SimulatedTransactionEvent::Request);
            p.queue.push(Reverse((timeout, SimulatedTransactionEvent::RequestTimeout)));
            while let Some(Reverse((now, what))) = p.queue.pop() {
                match what {
                    SimulatedTransactionEvent::Request if p.messages == 2 => {
                        p.send_packet(x, rng, now, SimulatedTransactionEvent::Response)
                    }
                    SimulatedTransactionEvent::Request => {
                        p.send_packet(x, rng, now, SimulatedTransactionEvent::RequestAck);
                        if x.message == MessageKind::Indication {
                            p.delivered.get_or_insert(now);
                        } else if p.responder.is_none() {
                            p.responder = Some(true);
                            p.queue.push(Reverse((
                                now + x.processing.as_nanos(),
                                SimulatedTransactionEvent::Ready,
                            )));
                        }
                    }
                    SimulatedTransactionEvent::RequestAck => p.requester_waits = false,
                    SimulatedTransactionEvent::RequestTimeout if p.requester_waits && p.requests_left > 0 => {
                        p.requests_left -= 1;
                        p.send_packet(x, rng, now, SimulatedTransactionEvent::Request);
                        p.queue.push(Reverse((now + timeout, SimulatedTransactionEvent::RequestTimeout)));
                    }
                    SimulatedTransactionEvent::RequestTimeout => {
                        p.failed |= p.requester_waits && p.delivered.is_none()
                    }
                    SimulatedTransactionEvent::Ready => {
                        p.messages += 1;
                        p.send_packet(x, rng, now, SimulatedTransactionEvent::Response);
                        p.queue.push(Reverse((now + timeout, SimulatedTransactionEvent::ResponseTimeout)));
                    }
                    SimulatedTransactionEvent::Response if !p.failed => {
                        p.delivered.get_or_insert(now);
                        p.requester_waits = false;
                        p.send_packet(x, rng, now, SimulatedTransactionEvent::ResponseAck);
                    }
                    SimulatedTransactionEvent::Response => {}
                    SimulatedTransactionEvent::ResponseAck => p.responder = Some(false),
                    SimulatedTransactionEvent::ResponseTimeout
                        if p.responder == Some(true) && p.responses_left > 0 =>
                    {
                        p.responses_left -= 1;
                        p.send_packet(x, rng, now, SimulatedTransactionEvent::Response);
                        p.queue.push(Reverse((now + timeout, SimulatedTransactionEvent::ResponseTimeout)));
                    }
                    SimulatedTransactionEvent::ResponseTimeout => {}
                }
            }
            p
        }
    }

    /// Mean and standard error.
    fn mean_and_error(values: &[f64]) -> (f64, f64) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        (mean, (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0) / n).sqrt())
    }

    #[track_caller]
    fn assert_mean(what: &str, theory: f64, values: &[f64]) {
        let (mean, error) = mean_and_error(values);
        assert!((mean - theory).abs() <= 4.0 * error + 1e-9, "{what}: {mean} ± {error} is not {theory}");
    }

    #[test]
    fn played_transactions_are_as_expected() {
        for message in [MessageKind::Indication, MessageKind::Request] {
            // Timeouts above the whole delay, between it and the round trip, and below the round trip.
            for (timeout, loss) in [(500, 0.3), (210, 0.5), (100, 0.2), (100, 0.5), (35, 0.4), (15, 0.3)] {
                let x = MihTransaction {
                    loss: [loss, loss / 2.0],
                    ..test_transaction(message, true, loss, timeout)
                };
                let mut rng = Seed::new(7).derive_rng("play", timeout);
                let plays: Vec<SimulatedTransaction> =
                    (0..20_000).map(|_| SimulatedTransaction::simulate_transaction(&x, &mut rng)).collect();
                let expected = x.expected_outcome().unwrap();
                let of = |f: &dyn Fn(&SimulatedTransaction) -> f64| plays.iter().map(f).collect::<Vec<_>>();
                assert_mean(
                    "success",
                    expected.success,
                    &of(&|p| f64::from(u8::from(p.delivered.is_some()))),
                );
                assert_mean("packets", expected.packets, &of(&|p| f64::from(p.packets)));
                assert_mean("messages", expected.messages, &of(&|p| f64::from(p.messages)));
                let delays: Vec<f64> =
                    plays.iter().filter_map(|p| p.delivered).map(|ns| ns as f64 / 1e9).collect();
                assert_mean("delay", expected.delay, &delays);
            }
        }
    }

    #[test]
    fn what_the_document_gives() {
        let p = 0.3;
        let of = |message, ack| test_transaction(message, ack, p, 500).expected_outcome().unwrap();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
        close(of(MessageKind::Indication, false).success, 1.0 - p);
        close(of(MessageKind::Request, false).success, (1.0 - p) * (1.0 - p));
        close(of(MessageKind::Indication, true).success, 1.0 - p * p * p);
        close(
            test_transaction(MessageKind::Request, true, p, 500).success_bound(),
            (1.0 - p * p * p) * (1.0 - p * p * p),
        );
        close(of(MessageKind::Indication, false).delay, 0.02);
        close(of(MessageKind::Request, false).delay, 0.24);
        let none = |message| test_transaction(message, true, 0.0, 500).expected_outcome().unwrap();
        close(none(MessageKind::Indication).overhead(), 2.0);
        close(none(MessageKind::Request).overhead(), 2.0);
        close(none(MessageKind::Request).delay, 0.24);
    }

    #[test]
    fn the_give_up_rule_stays_below_the_bound() {
        // A request that arrives with all its acknowledgements lost fails, unless its response is in time.
        for timeout in [50, 100, 200, 300, 500, 1000] {
            for loss in [0.05, 0.2, 0.5] {
                let x = test_transaction(MessageKind::Request, true, loss, timeout);
                let (success, bound) = (x.expected_outcome().unwrap().success, x.success_bound());
                assert!(success < bound, "{timeout} ms, {loss}: {success} is not below {bound}");
            }
        }
        // No packet is lost on the way back: each request that arrives is acknowledged and answered in time.
        let x = MihTransaction { loss: [0.4, 0.0], ..test_transaction(MessageKind::Request, true, 0.4, 500) };
        assert!((x.expected_outcome().unwrap().success - x.success_bound()).abs() < 1e-12);
    }

    /// Six of eight losses are of one in two: (3 + 3 · 1/2) / 1, by hand for p = 1/2 with late acknowledgements.
    #[test]
    fn every_copy_is_sent_where_acknowledgements_come_too_late() {
        let late = test_transaction(MessageKind::Indication, true, 0.5, 10).expected_outcome().unwrap();
        assert!((late.packets - 4.5).abs() < 1e-12, "{late:?}");
        // Without loss, a request is sent and acknowledged three times. Its response comes at 30 ms, after the
        // requester gave up, and is sent three times: the document's limit of 4.5.
        let late = test_transaction(MessageKind::Request, true, 0.0, 10).expected_outcome().unwrap();
        assert!(
            (late.overhead() - 4.5).abs() < 1e-12 && late.success == 0.0 && late.delay.is_nan(),
            "{late:?}"
        );
    }

    #[test]
    fn few_retransmissions_are_followed() {
        let x = test_transaction(MessageKind::Request, true, 0.1, 100);
        assert_eq!(
            MihTransaction { retransmissions: MOST_RETRANSMISSIONS + 1, ..x }.expected_outcome(),
            None
        );
        assert_eq!(MihTransaction { processing: Duration::ZERO, ..x }.expected_outcome(), None);
        let one = MihTransaction { retransmissions: 0, ..x }.expected_outcome().unwrap();
        // The acknowledgement and the response must both be back: 0.9 · (0.9 · 0.9).
        assert!((one.success - 0.9 * 0.9 * 0.9).abs() < 1e-12, "{one:?}");
        let lost = MihTransaction { loss: [1.0, 0.0], ..x }.expected_outcome().unwrap();
        // Both of two packets have to arrive. An immediate response needs no other acknowledgement.
        let single = MihTransaction { retransmissions: 0, ..x };
        let two = MihResponse { packets: 2, delay: millis(25) };
        let of = |x: MihTransaction| x.outcome_with_response(two).unwrap();
        assert!((of(single).success - libm::pow(0.9, 4.0)).abs() < 1e-12);
        assert!((of(single).delay - 0.245).abs() < 1e-12);
        let at_once = of(MihTransaction { processing: Duration::ZERO, ..single });
        assert!(
            (at_once.success - libm::pow(0.9, 3.0)).abs() < 1e-12 && (at_once.messages - 1.9).abs() < 1e-12
        );
        // No request is lost. The response is sent at once, again by its own timer, and for the second request. With
        // three copies, each packet arrives with probability 1 - 0.1³.
        let again = of(MihTransaction { retransmissions: 1, loss: [0.0, 0.1], processing: millis(0), ..x });
        assert!((again.success - libm::pow(0.999, 2.0)).abs() < 1e-12, "{again:?}");
        assert!(lost.success == 0.0 && lost.delay.is_nan() && (lost.overhead() - 3.0).abs() < 1e-12);
    }
}
