//! The event loop, applications and processors.

use super::{Event, Simulation};
use crate::addr::HostId;
use crate::app::{Application, Context, Delivery, Observer, Op};
use usher_core::Instant;

impl<A: Application, O: Observer<A::Report>> Simulation<A, O> {
    /// Runs until `until`, until nothing is left to happen, or until the observer is done. May be called
    /// again with a later time.
    pub fn run_until(&mut self, until: Instant) {
        if !self.started {
            self.started = true;
            for app in 0..self.apps.len() as u32 {
                self.deliver(app, Delivery::Start);
            }
        }
        while let Some((now, event)) = self.queue.pop_until(until) {
            self.now = now;
            self.events += 1;
            match event {
                Event::Arrive(direction) => self.arrive(direction),
                Event::App(app) => self.app_timer(app),
                Event::Tcp(conn) => self.tcp_timer(conn),
                Event::Read(conn) => self.slow_read(conn),
                Event::Cpu(job) => self.cpu_done(job),
                Event::Loopback => {
                    if let Some(packet) = self.loopback.pop_front() {
                        let host = self.pool[packet].packet.dst;
                        self.receive(host, 0, packet);
                    }
                }
            }
            if self.observer.is_done() {
                return;
            }
        }
        self.now = self.now.max(until);
    }

    #[inline]
    fn app_timer(&mut self, app: u32) {
        let slot = &mut self.apps[app as usize];
        if slot.armed != Some(self.now) {
            return;
        }
        slot.armed = None;
        match slot.deadline {
            Some(at) if at <= self.now => {
                slot.deadline = None;
                self.deliver(app, Delivery::Timer);
            }
            Some(at) => {
                slot.armed = Some(at);
                self.queue.push(at, Event::App(app));
            }
            None => {}
        }
    }

    /// Hands something to an application: at once, or when its host's processor gets to it.
    pub(super) fn deliver(&mut self, app: u32, delivery: Delivery) {
        let host = self.apps[app as usize].host;
        if let Some(cpu) = &mut self.hosts[host.0 as usize].cpu {
            if !cpu.has_free_core() {
                cpu.enqueue(self.now, app, delivery);
                return;
            }
            self.process(host, app, delivery);
            return;
        }
        let mut ops = self.spare_ops.pop().unwrap_or_default();
        let mut ctx = Context { now: self.now, ops: &mut ops, work: &mut self.work };
        self.apps[app as usize].app.handle(&mut ctx, delivery);
        self.work.clear();
        self.execute_all(app, ops);
    }

    /// Lets a free core of the host handle a delivery; the outputs wait until its work is done.
    fn process(&mut self, host: HostId, app: u32, delivery: Delivery) {
        let mut ops = self.spare_ops.pop().unwrap_or_default();
        let mut ctx = Context { now: self.now, ops: &mut ops, work: &mut self.work };
        self.apps[app as usize].app.handle(&mut ctx, delivery);
        let Some(cpu) = &mut self.hosts[host.0 as usize].cpu else { return };
        cpu.stats.handled += 1;
        let time = cpu.service_time(&self.work);
        self.work.clear();
        if time.is_zero() {
            self.execute_all(app, ops);
        } else {
            let job = cpu.begin(app, ops, time);
            let number = match self.free_cpu_jobs.pop() {
                Some(n) => {
                    self.cpu_jobs[n as usize] = (host, job);
                    n
                }
                None => {
                    self.cpu_jobs.push((host, job));
                    self.cpu_jobs.len() as u32 - 1
                }
            };
            self.queue.push(self.now + time, Event::Cpu(number));
        }
    }

    fn cpu_done(&mut self, number: u32) {
        let (host, job) = self.cpu_jobs[number as usize];
        self.free_cpu_jobs.push(number);
        let Some(cpu) = &mut self.hosts[host.0 as usize].cpu else { return };
        if let Some((app, ops)) = cpu.finish(job) {
            self.execute_all(app, ops);
        }
        loop {
            let Some(cpu) = &mut self.hosts[host.0 as usize].cpu else { return };
            if !cpu.has_free_core() {
                return;
            }
            let Some((since, app, delivery)) = cpu.queue.pop_front() else { return };
            cpu.stats.waited_ns += self.now.since(since).as_nanos();
            self.process(host, app, delivery);
        }
    }

    #[inline]
    fn execute_all(&mut self, app: u32, mut ops: Vec<Op<A::Report>>) {
        for op in ops.drain(..) {
            self.execute(app, op);
        }
        self.spare_ops.push(ops);
    }

    #[inline]
    fn execute(&mut self, app: u32, op: Op<A::Report>) {
        match op {
            Op::Datagram { socket, to, port, payload } => self.send_datagram(app, socket, to, port, payload),
            Op::Connect { conn, to, port } => self.tcp_connect(app, conn, to, port),
            Op::Write { conn, payload } => self.tcp_write(app, conn, payload),
            Op::Credit { conn, bytes } => self.tcp_credit(app, conn, bytes),
            Op::Shutdown { conn } => self.tcp_close(app, conn, false),
            Op::Abort { conn } => self.tcp_close(app, conn, true),
            Op::Frame { port, payload } => self.send_frame(app, port, payload),
            Op::Timer(at) => self.set_timer(app, at),
            Op::Report(report) => self.observer.report(self.now, app, report),
        }
    }

    #[inline]
    fn set_timer(&mut self, app: u32, at: Option<Instant>) {
        let slot = &mut self.apps[app as usize];
        slot.deadline = at;
        if let Some(at) = at.map(|at| at.max(self.now))
            && slot.armed.is_none_or(|armed| at < armed)
        {
            slot.armed = Some(at);
            self.queue.push(at, Event::App(app));
        }
    }
}
