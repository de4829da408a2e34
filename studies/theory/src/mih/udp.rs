//! One MIH transaction over UDP, on which each packet is lost by itself.

use std::collections::BTreeMap;
use usher_core::Duration;

/// Up to so many retransmissions the course of a request is followed: the ways that it may take grow fast.
pub const MOST_RETRANSMISSIONS: u32 = 5;

/// What is exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// An indication: one message, one way.
    Indication,
    /// A request and its response.
    Request,
}

/// A transaction and what carries it. Transactions do not meet: queues are left out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exchange {
    /// What is exchanged.
    pub message: Message,
    /// Whether each message asks for an MIH acknowledgement, and is sent again without.
    pub ack: bool,
    /// The chance that a packet is lost, on the way of the indication or request and on the way back.
    pub loss: [f64; 2],
    /// How long a packet takes, on these ways.
    pub delay: [Duration; 2],
    /// From the arrival of a request to its response. Where it is longer than nothing, the request is acknowledged by itself
    /// first; else the response acknowledges it.
    pub processing: Duration,
    /// From a copy to the next, while there is no acknowledgement.
    pub timeout: Duration,
    /// How often a message is sent again at most.
    pub retransmissions: u32,
}

/// How a request is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Packets of the response, at least 1, each lost by itself. Of a response that is sent again, the copies together
    /// have to bring each of them.
    pub packets: u32,
    /// How long the response takes, until the last of them is there.
    pub delay: Duration,
}

/// What is expected of a transaction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Expected {
    /// The chance that the indication is delivered, or the response in time.
    pub success: f64,
    /// The mean time from the first copy to the delivery of the indication or the response in seconds, of the
    /// transactions that succeed; NaN where none does.
    pub delay: f64,
    /// Packets that both sides hand to the transport: copies and acknowledgements.
    pub packets: f64,
    /// Messages that carry information: the indication, or the request and the response where there is one.
    pub messages: f64,
}

impl Expected {
    /// Packets for each message that carries information.
    pub fn overhead(&self) -> f64 {
        self.packets / self.messages
    }
}

impl Exchange {
    /// What is expected; `None` where a request with acknowledgement has more retransmissions than
    /// [`MOST_RETRANSMISSIONS`] or takes no time to process.
    pub fn expected(&self) -> Option<Expected> {
        let at_once = self.ack && self.message == Message::Request && self.processing.is_zero();
        let one = Answer { packets: 1, delay: self.delay[1] };
        (!at_once).then(|| self.answered(one)).flatten()
    }

    /// What is expected with a response of several packets, or one that is there at once and acknowledges the request itself:
    /// where it takes no time to process. `None` where a request with acknowledgement has more retransmissions than
    /// [`MOST_RETRANSMISSIONS`].
    pub fn answered(&self, answer: Answer) -> Option<Expected> {
        match (self.ack, self.message) {
            (false, _) => Some(self.once(answer)),
            (true, Message::Indication) => Some(self.indication()),
            (true, Message::Request) => {
                (self.retransmissions <= MOST_RETRANSMISSIONS).then(|| self.request(answer))
            }
        }
    }

    /// The chance of success where each message counts by itself and nothing is ever too late: for a request with
    /// acknowledgement the product of the chances that a copy of the request and one of the response arrive.
    pub fn success_bound(&self) -> f64 {
        let copies = if self.ack { f64::from(self.retransmissions) + 1.0 } else { 1.0 };
        let arrives = |loss: f64| 1.0 - libm::pow(loss, copies);
        match self.message {
            Message::Indication => arrives(self.loss[0]),
            Message::Request => arrives(self.loss[0]) * arrives(self.loss[1]),
        }
    }

    fn once(&self, answer: Answer) -> Expected {
        let [there, back] = self.loss.map(|p| 1.0 - p);
        let out = self.delay[0];
        match self.message {
            Message::Indication => {
                Expected { success: there, delay: out.as_secs_f64(), packets: 1.0, messages: 1.0 }
            }
            Message::Request => Expected {
                success: there * libm::pow(back, f64::from(answer.packets)),
                delay: (out + self.processing + answer.delay).as_secs_f64(),
                packets: 1.0 + there * f64::from(answer.packets),
                messages: 1.0 + there,
            },
        }
        .known()
    }

    /// Copy k is the first to arrive with chance p^k (1 - p); it is sent when none of those whose acknowledgement
    /// would be back by then was acknowledged.
    fn indication(&self) -> Expected {
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
        Expected { success, delay, packets: copies * (2.0 - lost), messages: 1.0 }.known()
    }

    /// Follows all courses at once, in time: those that have come to the same state go on as one.
    fn request(&self, answer: Answer) -> Expected {
        let mut sum = Expected { success: 0.0, delay: 0.0, packets: 0.0, messages: 1.0 };
        let mut courses = BTreeMap::new();
        let mut first = Course::default();
        let sent = first.ask(self);
        self.branch(answer, &mut courses, &mut sum, first, Some(sent), 1.0);
        while let Some((mut course, chance)) = courses.pop_first() {
            let (at, event) = course.pending.remove(0);
            match event {
                Event::Response if course.requester == Requester::Waits => {
                    sum.success += chance;
                    sum.delay += chance * at.as_secs_f64();
                }
                Event::Ready => sum.messages += chance,
                Event::Request if self.processing.is_zero() && course.responder == Responder::Idle => {
                    sum.messages += chance;
                }
                _ => {}
            }
            let sent = course.step(self, at, event);
            self.branch(answer, &mut courses, &mut sum, course, sent, chance);
        }
        Expected { delay: sum.delay / sum.success, ..sum }.known()
    }

    /// Puts a course back for what may become of the packet that it sent.
    fn branch(
        &self,
        answer: Answer,
        courses: &mut BTreeMap<Course, f64>,
        sum: &mut Expected,
        mut course: Course,
        sent: Option<(Duration, Event)>,
        chance: f64,
    ) {
        let mut put = |course: Course, chance: f64| {
            if !course.pending.is_empty() && chance > 0.0 {
                *courses.entry(course).or_insert(0.0) += chance;
            }
        };
        let Some((at, event)) = sent else { return put(course, chance) };
        let (packets, delay, lost) = match event {
            Event::Response => {
                let missing = self.missing(answer, course.copies + 1);
                // Of a single packet it tells nothing how many copies there were: courses are joined.
                course.copies += u32::from(answer.packets > 1);
                (answer.packets, answer.delay, missing)
            }
            Event::RequestAck => (1, self.delay[1], self.loss[1]),
            _ => (1, self.delay[0], self.loss[0]),
        };
        sum.packets += chance * f64::from(packets);
        let mut arrives = course.clone();
        if event == Event::Response {
            arrives.copies = 0;
        }
        arrives.expect(at + delay, event);
        put(arrives, chance * (1.0 - lost));
        put(course, chance * lost);
    }

    /// The chance that a copy of the response does not bring what was missing of it, so many having been sent since one
    /// was whole, this one included.
    fn missing(&self, answer: Answer, copies: u32) -> f64 {
        let whole = |copies: u32| {
            let each = 1.0 - libm::pow(self.loss[1], f64::from(copies));
            libm::pow(each, f64::from(answer.packets))
        };
        let before = 1.0 - whole(copies - 1);
        // Where the copies before this one brought all for sure, there is none.
        if before > 0.0 { (1.0 - whole(copies)) / before } else { 0.0 }
    }
}

/// What may happen next; at the same time what was set in motion first, a timer, comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    RequestTimeout,
    ResponseTimeout,
    /// The response is ready.
    Ready,
    /// These arrive.
    Request,
    RequestAck,
    Response,
    ResponseAck,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Requester {
    #[default]
    Waits,
    /// The response has come.
    Done,
    /// No acknowledgement came: a response is dropped.
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Responder {
    /// No request has come.
    #[default]
    Idle,
    Works,
    /// The response has been sent, and is not acknowledged.
    Answered,
    Acknowledged,
}

/// A transaction on its way: what is to happen first of all, so that courses are followed in time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Course {
    pending: Vec<(Duration, Event)>,
    requester: Requester,
    request_acknowledged: bool,
    requests: u32,
    responder: Responder,
    responses: u32,
    /// Of the response, since one of them made it whole.
    copies: u32,
}

impl Course {
    fn expect(&mut self, at: Duration, event: Event) {
        let place = self.pending.partition_point(|known| *known <= (at, event));
        self.pending.insert(place, (at, event));
    }

    /// Sends a copy of the request.
    fn ask(&mut self, x: &Exchange) -> (Duration, Event) {
        let at = x.timeout * u64::from(self.requests);
        self.requests += 1;
        self.expect(at + x.timeout, Event::RequestTimeout);
        (at, Event::Request)
    }

    /// Sends a copy of the response by its own timer.
    fn answer(&mut self, x: &Exchange, at: Duration) -> Option<(Duration, Event)> {
        self.responses += 1;
        if self.responses <= x.retransmissions {
            self.expect(at + x.timeout, Event::ResponseTimeout);
        }
        Some((at, Event::Response))
    }

    /// What an event makes one side send.
    fn step(&mut self, x: &Exchange, at: Duration, event: Event) -> Option<(Duration, Event)> {
        match event {
            Event::RequestTimeout => {
                if self.requester != Requester::Waits || self.request_acknowledged {
                    return None;
                }
                if self.requests <= x.retransmissions {
                    return Some(self.ask(x));
                }
                self.requester = Requester::Failed;
                None
            }
            Event::Request if self.responder <= Responder::Works => {
                if x.processing.is_zero() {
                    self.responder = Responder::Answered;
                    return self.answer(x, at);
                }
                if self.responder == Responder::Idle {
                    self.responder = Responder::Works;
                    self.expect(at + x.processing, Event::Ready);
                }
                Some((at, Event::RequestAck))
            }
            // A duplicate gets the response, which acknowledges too.
            Event::Request => Some((at, Event::Response)),
            Event::RequestAck => {
                self.request_acknowledged = true;
                None
            }
            Event::Ready => {
                self.responder = Responder::Answered;
                self.answer(x, at)
            }
            Event::ResponseTimeout if self.responder == Responder::Answered => self.answer(x, at),
            Event::ResponseTimeout => None,
            Event::Response if self.requester == Requester::Failed => None,
            Event::Response => {
                self.requester = Requester::Done;
                Some((at, Event::ResponseAck))
            }
            Event::ResponseAck => {
                self.responder = Responder::Acknowledged;
                None
            }
        }
    }
}

impl Expected {
    /// No delay where nothing succeeds.
    fn known(self) -> Self {
        if self.success > 0.0 { self } else { Self { delay: f64::NAN, ..self } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use usher_core::{Rng, Seed};

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// The document's setting, with a timeout.
    fn exchange(message: Message, ack: bool, loss: f64, timeout: u64) -> Exchange {
        Exchange {
            message,
            ack,
            loss: [loss; 2],
            delay: [ms(20); 2],
            processing: ms(200),
            timeout: ms(timeout),
            retransmissions: 2,
        }
    }

    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    enum Happens {
        Request,
        RequestAck,
        Response,
        ResponseAck,
        Ready,
        RequestTimeout,
        ResponseTimeout,
    }

    /// A transaction played event by event, as the standard's machines go: it knows nothing of fates.
    #[derive(Default)]
    struct Play {
        queue: BinaryHeap<Reverse<(u64, Happens)>>,
        packets: u32,
        messages: u32,
        delivered: Option<u64>,
        requester_waits: bool,
        failed: bool,
        requests_left: u32,
        responder: Option<bool>,
        responses_left: u32,
    }

    impl Play {
        fn send(&mut self, x: &Exchange, rng: &mut Rng, now: u64, what: Happens) {
            let way = usize::from(matches!(what, Happens::RequestAck | Happens::Response));
            self.packets += 1;
            if !rng.chance(x.loss[way]) {
                self.queue.push(Reverse((now + x.delay[way].as_nanos(), what)));
            }
        }

        fn run(x: &Exchange, rng: &mut Rng) -> Self {
            let timeout = x.timeout.as_nanos();
            let mut p = Self {
                messages: 1,
                requester_waits: true,
                requests_left: x.retransmissions,
                responses_left: x.retransmissions,
                ..Self::default()
            };
            p.send(x, rng, 0, Happens::Request);
            p.queue.push(Reverse((timeout, Happens::RequestTimeout)));
            while let Some(Reverse((now, what))) = p.queue.pop() {
                match what {
                    Happens::Request if p.messages == 2 => p.send(x, rng, now, Happens::Response),
                    Happens::Request => {
                        p.send(x, rng, now, Happens::RequestAck);
                        if x.message == Message::Indication {
                            p.delivered.get_or_insert(now);
                        } else if p.responder.is_none() {
                            p.responder = Some(true);
                            p.queue.push(Reverse((now + x.processing.as_nanos(), Happens::Ready)));
                        }
                    }
                    Happens::RequestAck => p.requester_waits = false,
                    Happens::RequestTimeout if p.requester_waits && p.requests_left > 0 => {
                        p.requests_left -= 1;
                        p.send(x, rng, now, Happens::Request);
                        p.queue.push(Reverse((now + timeout, Happens::RequestTimeout)));
                    }
                    Happens::RequestTimeout => p.failed |= p.requester_waits && p.delivered.is_none(),
                    Happens::Ready => {
                        p.messages += 1;
                        p.send(x, rng, now, Happens::Response);
                        p.queue.push(Reverse((now + timeout, Happens::ResponseTimeout)));
                    }
                    Happens::Response if !p.failed => {
                        p.delivered.get_or_insert(now);
                        p.requester_waits = false;
                        p.send(x, rng, now, Happens::ResponseAck);
                    }
                    Happens::Response => {}
                    Happens::ResponseAck => p.responder = Some(false),
                    Happens::ResponseTimeout if p.responder == Some(true) && p.responses_left > 0 => {
                        p.responses_left -= 1;
                        p.send(x, rng, now, Happens::Response);
                        p.queue.push(Reverse((now + timeout, Happens::ResponseTimeout)));
                    }
                    Happens::ResponseTimeout => {}
                }
            }
            p
        }
    }

    /// Mean and standard error.
    fn mean(values: &[f64]) -> (f64, f64) {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        (mean, (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0) / n).sqrt())
    }

    #[track_caller]
    fn held(what: &str, theory: f64, values: &[f64]) {
        let (mean, error) = mean(values);
        assert!((mean - theory).abs() <= 4.0 * error + 1e-9, "{what}: {mean} ± {error} is not {theory}");
    }

    #[test]
    fn played_transactions_are_as_expected() {
        for message in [Message::Indication, Message::Request] {
            // Timeouts above the whole delay, between it and the round trip, and below the round trip.
            for (timeout, loss) in [(500, 0.3), (210, 0.5), (100, 0.2), (100, 0.5), (35, 0.4), (15, 0.3)] {
                let x = Exchange { loss: [loss, loss / 2.0], ..exchange(message, true, loss, timeout) };
                let mut rng = Seed::new(7).stream("play", timeout);
                let plays: Vec<Play> = (0..20_000).map(|_| Play::run(&x, &mut rng)).collect();
                let expected = x.expected().unwrap();
                let of = |f: &dyn Fn(&Play) -> f64| plays.iter().map(f).collect::<Vec<_>>();
                held("success", expected.success, &of(&|p| f64::from(u8::from(p.delivered.is_some()))));
                held("packets", expected.packets, &of(&|p| f64::from(p.packets)));
                held("messages", expected.messages, &of(&|p| f64::from(p.messages)));
                let delays: Vec<f64> =
                    plays.iter().filter_map(|p| p.delivered).map(|ns| ns as f64 / 1e9).collect();
                held("delay", expected.delay, &delays);
            }
        }
    }

    #[test]
    fn what_the_document_gives() {
        let p = 0.3;
        let of = |message, ack| exchange(message, ack, p, 500).expected().unwrap();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
        close(of(Message::Indication, false).success, 1.0 - p);
        close(of(Message::Request, false).success, (1.0 - p) * (1.0 - p));
        close(of(Message::Indication, true).success, 1.0 - p * p * p);
        close(
            exchange(Message::Request, true, p, 500).success_bound(),
            (1.0 - p * p * p) * (1.0 - p * p * p),
        );
        close(of(Message::Indication, false).delay, 0.02);
        close(of(Message::Request, false).delay, 0.24);
        let none = |message| exchange(message, true, 0.0, 500).expected().unwrap();
        close(none(Message::Indication).overhead(), 2.0);
        close(none(Message::Request).overhead(), 2.0);
        close(none(Message::Request).delay, 0.24);
    }

    #[test]
    fn the_give_up_rule_stays_below_the_bound() {
        // A request that arrives and whose acknowledgements are all lost fails, but where its response is in time.
        for timeout in [50, 100, 200, 300, 500, 1000] {
            for loss in [0.05, 0.2, 0.5] {
                let x = exchange(Message::Request, true, loss, timeout);
                let (success, bound) = (x.expected().unwrap().success, x.success_bound());
                assert!(success < bound, "{timeout} ms, {loss}: {success} is not below {bound}");
            }
        }
        // Nothing is lost back: whatever arrives is acknowledged and answered in time.
        let x = Exchange { loss: [0.4, 0.0], ..exchange(Message::Request, true, 0.4, 500) };
        assert!((x.expected().unwrap().success - x.success_bound()).abs() < 1e-12);
    }

    /// Six of eight losses are of one in two: (3 + 3 · 1/2) / 1, by hand for p = 1/2 with late acknowledgements.
    #[test]
    fn every_copy_is_sent_where_acknowledgements_come_too_late() {
        let late = exchange(Message::Indication, true, 0.5, 10).expected().unwrap();
        assert!((late.packets - 4.5).abs() < 1e-12, "{late:?}");
        // Without loss a request is sent three times and acknowledged three times; its response comes after the
        // requester gave up, at 30 ms, and is sent three times: the document's limit of 4.5.
        let late = exchange(Message::Request, true, 0.0, 10).expected().unwrap();
        assert!(
            (late.overhead() - 4.5).abs() < 1e-12 && late.success == 0.0 && late.delay.is_nan(),
            "{late:?}"
        );
    }

    #[test]
    fn few_retransmissions_are_followed() {
        let x = exchange(Message::Request, true, 0.1, 100);
        assert_eq!(Exchange { retransmissions: MOST_RETRANSMISSIONS + 1, ..x }.expected(), None);
        assert_eq!(Exchange { processing: Duration::ZERO, ..x }.expected(), None);
        let one = Exchange { retransmissions: 0, ..x }.expected().unwrap();
        // The acknowledgement and the response must both be back: 0.9 · (0.9 · 0.9).
        assert!((one.success - 0.9 * 0.9 * 0.9).abs() < 1e-12, "{one:?}");
        let lost = Exchange { loss: [1.0, 0.0], ..x }.expected().unwrap();
        // Of two packets both must be back, and one that answers at once needs no other acknowledgement.
        let single = Exchange { retransmissions: 0, ..x };
        let two = Answer { packets: 2, delay: ms(25) };
        let of = |x: Exchange| x.answered(two).unwrap();
        assert!((of(single).success - libm::pow(0.9, 4.0)).abs() < 1e-12);
        assert!((of(single).delay - 0.245).abs() < 1e-12);
        let at_once = of(Exchange { processing: Duration::ZERO, ..single });
        assert!(
            (at_once.success - libm::pow(0.9, 3.0)).abs() < 1e-12 && (at_once.messages - 1.9).abs() < 1e-12
        );
        // Nothing is lost there, and the response is sent at once, again by its own timer and for the second request: of
        // three copies each packet comes with 1 - 0.1³.
        let again = of(Exchange { retransmissions: 1, loss: [0.0, 0.1], processing: ms(0), ..x });
        assert!((again.success - libm::pow(0.999, 2.0)).abs() < 1e-12, "{again:?}");
        assert!(lost.success == 0.0 && lost.delay.is_nan() && (lost.overhead() - 3.0).abs() < 1e-12);
    }
}
