//! The event loop, applications and processors.

use super::{SimEvent, SimRunError, Simulation, SimulationScope};
use crate::addr::HostId;
use crate::app::{AppContext, AppDelivery, AppOperation, Application, ReportObserver};
use usher_core::Instant;

impl<A: Application, O: ReportObserver<A::Report>> Simulation<A, O> {
    /// Runs until `until`, until the queue is empty, or until the observer is done. May be called again with a later
    /// time. A [`fault`](Self::fault) ends the run for good.
    pub fn run_until(&mut self, until: Instant) {
        self.start();
        while self.fault.is_none()
            && let Some((now, event, ())) = self.queue.pop_ranked_until(until)
        {
            self.handle_event(now, event);
            if self.observer.is_done() {
                return;
            }
            if self.is_run_cancelled() {
                self.fault.get_or_insert(SimRunError::Stopped);
            }
        }
        if self.fault.is_none() {
            self.now = self.now.max(until);
        }
    }
}

impl<A: Application, O: ReportObserver<A::Report>, E: SimulationScope> Simulation<A, O, E> {
    /// Starts the applications, once.
    pub(super) fn start(&mut self) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        self.plan_outages();
        self.start_cells();
        for app in 0..self.apps.len() as u32 {
            if !self.extent.is_elsewhere(self.apps[app as usize].host) {
                self.deliver(app, AppDelivery::Start);
            }
        }
    }

    /// Puts an event in the queue.
    #[inline(always)]
    pub(super) fn schedule_event(&mut self, at: Instant, event: SimEvent) {
        self.queue.push_ranked(at, event, E::mark_at(self.now));
    }

    #[inline(always)]
    pub(super) fn handle_event(&mut self, now: Instant, event: SimEvent) {
        self.now = now;
        self.events += 1;
        match event {
            SimEvent::Arrive(direction) => self.handle_arrival(direction),
            SimEvent::App(app) => self.handle_app_timer(app),
            SimEvent::Tcp(conn) => self.tcp_timer(conn),
            SimEvent::Sctp(assoc) => self.handle_sctp_timer(assoc),
            SimEvent::Read(conn) => self.slow_read(conn),
            SimEvent::Cpu(job) => self.handle_cpu_completion(job),
            SimEvent::Cell(cell) => self.handle_cell_timer(cell),
            SimEvent::Outage(outage) => self.toggle_outage(outage),
            SimEvent::Loopback => {
                if let Some(packet) = self.loopback.pop_front() {
                    let host = self.pool[packet].packet.dst;
                    self.receive_packet(host, 0, packet);
                }
            }
        }
    }

    #[inline]
    fn handle_app_timer(&mut self, app: u32) {
        let slot = &mut self.apps[app as usize];
        if slot.armed != self.now {
            return;
        }
        if slot.deadline <= self.now {
            slot.armed = Instant::FAR_FUTURE;
            slot.deadline = Instant::FAR_FUTURE;
            self.deliver_built_in_place(app, || AppDelivery::Timer);
            return;
        }
        slot.armed = slot.deadline;
        if slot.deadline != Instant::FAR_FUTURE {
            let at = slot.deadline;
            self.schedule_event(at, SimEvent::App(app));
        }
    }

    /// Delivers to an application: at once, or when its host's processor is free.
    #[inline]
    pub(super) fn deliver(&mut self, app: u32, delivery: AppDelivery) {
        self.deliver_built_in_place(app, || delivery);
    }

    /// As [`Self::deliver`], but builds the delivery where the application reads it. A copy would stall the processor
    /// longer than the rest takes.
    #[inline(always)]
    pub(super) fn deliver_built_in_place(&mut self, app: u32, delivery: impl FnOnce() -> AppDelivery) {
        let slot = &mut self.apps[app as usize];
        if slot.queues {
            self.deliver_to_processor(app, delivery());
            return;
        }
        let mut ops = self.spare_ops.pop().unwrap_or_default();
        let mut ctx = AppContext { now: self.now, epoch: self.epoch, ops: &mut ops, work: &mut self.work };
        slot.app.handle_delivery(&mut ctx, delivery());
        self.work.clear();
        self.execute_all(app, ops);
    }

    #[inline(never)]
    fn deliver_to_processor(&mut self, app: u32, delivery: AppDelivery) {
        let host = self.apps[app as usize].host;
        let Some(cpu) = self.hosts[host.0 as usize].cpu_mut() else { return };
        if cpu.has_free_core() {
            self.process_delivery(host, app, delivery, false);
        } else {
            cpu.enqueue_delivery(self.now, app, delivery);
        }
    }

    /// Starts a delivery on a free core of the host. Its outputs wait until the work is done.
    fn process_delivery(&mut self, host: HostId, app: u32, delivery: AppDelivery, waited: bool) {
        let mut ops = self.spare_ops.pop().unwrap_or_default();
        let mut ctx = AppContext { now: self.now, epoch: self.epoch, ops: &mut ops, work: &mut self.work };
        self.apps[app as usize].app.handle_delivery(&mut ctx, delivery);
        let Some(cpu) = self.hosts[host.0 as usize].cpu_mut() else { return };
        cpu.stats.handled += 1;
        let time = cpu.charge_delivery_cpu(&self.work, waited);
        self.work.clear();
        if time.is_zero() {
            let ops = cpu.at_once(app, ops);
            self.execute_all(app, ops);
        } else {
            let job = cpu.start_job(app, ops, time);
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
            self.schedule_event(self.now + time, SimEvent::Cpu(number));
        }
    }

    fn handle_cpu_completion(&mut self, number: u32) {
        let (host, job) = self.cpu_jobs[number as usize];
        self.free_cpu_jobs.push(number);
        let Some(cpu) = self.hosts[host.0 as usize].cpu_mut() else { return };
        if let Some((app, ops)) = cpu.finish_job(job) {
            self.execute_all(app, ops);
        }
        loop {
            let Some(cpu) = self.hosts[host.0 as usize].cpu_mut() else { return };
            if !cpu.has_free_core() {
                return;
            }
            let Some((since, app, delivery)) = cpu.queue.pop_front() else { return };
            cpu.stats.waited_ns += self.now.duration_since(since).as_nanos();
            self.process_delivery(host, app, delivery, true);
        }
    }

    #[inline(never)]
    fn execute_all(&mut self, app: u32, mut ops: Vec<AppOperation<A::Report>>) {
        for op in ops.drain(..) {
            self.execute_operation(app, op);
        }
        self.spare_ops.push(ops);
    }

    #[inline(always)]
    fn execute_operation(&mut self, app: u32, op: AppOperation<A::Report>) {
        match op {
            AppOperation::Datagram { socket, to, port, payload } => {
                self.send_datagram(app, socket, to, port, payload)
            }
            AppOperation::Connect { conn, from, to, port } => self.tcp_connect(app, conn, from, to, port),
            AppOperation::Write { conn, payload } => self.tcp_write(app, conn, payload),
            AppOperation::Credit { conn, bytes } => self.grant_tcp_read_credit(app, conn, bytes),
            AppOperation::Associate { assoc, from, to, port, streams } => {
                self.sctp_connect(app, assoc, from, to, port, streams);
            }
            AppOperation::Send { assoc, message } => self.sctp_send(app, assoc, message),
            AppOperation::Shutdown { conn } => self.close(app, conn, false),
            AppOperation::Abort { conn } => self.close(app, conn, true),
            AppOperation::Forward(packet) => self.forward_packet(app, packet),
            AppOperation::Session { port, number } => self.name_session(app, port, number),
            AppOperation::Frame { port, payload } => self.send_frame(app, port, payload),
            AppOperation::Link { host: at, command } => self.link_command(app, at, command),
            AppOperation::Owner { token, local, remote } => {
                self.deliver_connection_owner(app, token, local, remote)
            }
            AppOperation::Protection(config) => self.begin_protection(app, *config),
            AppOperation::Protect(operation) => self.update_protection(app, *operation),
            AppOperation::Timer(at) => self.set_timer(app, at),
            AppOperation::Report(report) => self.observer.handle_report(self.now, app, report),
        }
    }

    #[inline]
    fn set_timer(&mut self, app: u32, at: Option<Instant>) {
        let slot = &mut self.apps[app as usize];
        slot.deadline = at.unwrap_or(Instant::FAR_FUTURE);
        let at = slot.deadline.max(self.now);
        if at < slot.armed {
            slot.armed = at;
            self.schedule_event(at, SimEvent::App(app));
        }
    }
}
