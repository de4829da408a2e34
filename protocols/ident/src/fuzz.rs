//! Entry points for fuzzers. Each answers false where it has found a defect.

use crate::{
    IdentPortPair, IdentResponse, IdentServer, IdentServerCommand, IdentServerEvent, IdentToken, LineBuffer,
    MAX_LINE, MAX_USER_ID, ResponseBody, ServerConfig, UserId,
};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_core::{
    ConnId, Instant, ListenerId, Machine, MachineInput, MachineOutput, StreamEvent, StreamOp, Transmit,
};

/// Parses octets as a query and as a response. A valid one must encode to itself.
pub fn check_message(octets: &[u8]) -> bool {
    let mut buf = Vec::new();
    let line = |buf: &[u8]| LineBuffer::default().next_line(&mut &*buf).ok().flatten();
    if let Ok(pair) = IdentPortPair::parse(octets) {
        pair.emit(&mut buf);
        if line(&buf).map(|line| IdentPortPair::parse(&line)) != Some(Ok(pair)) {
            return false;
        }
    }
    let Ok(mut reply) = IdentResponse::parse(octets) else { return true };
    buf.clear();
    reply.emit(&mut buf);
    if let ResponseBody::UserId { user, .. } = &mut reply.answer
        && let Some(Ok(sent)) = user.octets().get(..MAX_USER_ID).map(UserId::new)
    {
        *user = sent;
    }
    line(&buf).map(|line| IdentResponse::parse(&line)) == Some(Ok(reply))
}

/// Sends octets to a server. For any octets its responses are valid and its memory is bounded.
pub fn check_server(octets: &[u8]) -> bool {
    let config = ServerConfig { pipeline: 4, ..ServerConfig::default() };
    let mut server = IdentServer::new(config);
    let (conn, mut buf) = (ConnId::nth_accepted_connection(0), Vec::new());
    let (remote, listener) = (SocketAddr::from((Ipv4Addr::LOCALHOST, 7)), ListenerId::default());
    let local = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let accepted = StreamEvent::Accepted { listener, remote, local, certificate: None };
    server.handle_input(Instant::ZERO, MachineInput::Stream { conn, event: accepted });
    let Ok(opsys) = IdentToken::new("OTHER") else { return false };
    for data in octets.chunks(97) {
        server.handle_input(Instant::ZERO, MachineInput::Stream { conn, event: StreamEvent::Data(data) });
        let mut asked = 0;
        while let Some(output) = server.poll_output(&mut buf) {
            match output {
                MachineOutput::Transmit(Transmit::Stream { op: StreamOp::Data, .. }) => {
                    let mut rest = &buf[..];
                    let mut lines = LineBuffer::default();
                    while let Ok(Some(line)) = lines.next_line(&mut rest) {
                        if IdentResponse::parse(&line).is_err() {
                            return false;
                        }
                    }
                    if !rest.is_empty() || buf.len() > MAX_LINE {
                        return false;
                    }
                }
                MachineOutput::Event(IdentServerEvent::QueryReceived { token, .. }) => {
                    asked += 1;
                    // The first query of each round is left unanswered.
                    if asked == 1 {
                        continue;
                    }
                    let Ok(user) = UserId::new(*b"a") else { return false };
                    let answer = ResponseBody::UserId { opsys: opsys.clone(), charset: None, user };
                    let answer = IdentServerCommand::Answer { token, answer };
                    if server.handle_command(Instant::ZERO, answer).is_err() {
                        return false;
                    }
                }
                _ => {}
            }
        }
    }
    server.connection_count() <= 1 && server.pending_count() <= 4
}
