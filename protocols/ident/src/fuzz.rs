//! Entry points for fuzzers. Each answers false where it has found a defect.

use crate::{
    Answer, Lines, MAX_LINE, MAX_USER_ID, PortPair, Reply, Server, ServerCommand, ServerConfig, ServerEvent,
    Token, UserId,
};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_core::{ConnId, Input, Instant, ListenerId, Machine, Output, StreamEvent, StreamOp, Transmit};

/// Reads octets as a query and as a reply; what is one is written again, and must be the same.
pub fn message(octets: &[u8]) -> bool {
    let mut buf = Vec::new();
    let line = |buf: &[u8]| Lines::default().next(&mut &*buf).ok().flatten();
    if let Ok(pair) = PortPair::parse(octets) {
        pair.emit(&mut buf);
        if line(&buf).map(|line| PortPair::parse(&line)) != Some(Ok(pair)) {
            return false;
        }
    }
    let Ok(mut reply) = Reply::parse(octets) else { return true };
    buf.clear();
    reply.emit(&mut buf);
    if let Answer::UserId { user, .. } = &mut reply.answer
        && let Some(Ok(sent)) = user.octets().get(..MAX_USER_ID).map(UserId::new)
    {
        *user = sent;
    }
    line(&buf).map(|line| Reply::parse(&line)) == Some(Ok(reply))
}

/// A server that is sent these octets: whatever they are, each reply is one, and what is kept stays bounded.
pub fn server(octets: &[u8]) -> bool {
    let config = ServerConfig { pipeline: 4, ..ServerConfig::default() };
    let mut server = Server::new(config);
    let (conn, mut buf) = (ConnId::accepted(0), Vec::new());
    let (remote, listener) = (SocketAddr::from((Ipv4Addr::LOCALHOST, 7)), ListenerId::default());
    let local = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let accepted = StreamEvent::Accepted { listener, remote, local, certificate: None };
    server.handle(Instant::ZERO, Input::Stream { conn, event: accepted });
    let Ok(opsys) = Token::new("OTHER") else { return false };
    for data in octets.chunks(97) {
        server.handle(Instant::ZERO, Input::Stream { conn, event: StreamEvent::Data(data) });
        let mut asked = 0;
        while let Some(output) = server.poll_output(&mut buf) {
            match output {
                Output::Transmit(Transmit::Stream { op: StreamOp::Data, .. }) => {
                    let mut rest = &buf[..];
                    let mut lines = Lines::default();
                    while let Ok(Some(line)) = lines.next(&mut rest) {
                        if Reply::parse(&line).is_err() {
                            return false;
                        }
                    }
                    if !rest.is_empty() || buf.len() > MAX_LINE {
                        return false;
                    }
                }
                Output::Event(ServerEvent::Asked { token, .. }) => {
                    asked += 1;
                    // The first of each round is left open.
                    if asked == 1 {
                        continue;
                    }
                    let Ok(user) = UserId::new(*b"a") else { return false };
                    let answer = Answer::UserId { opsys: opsys.clone(), charset: None, user };
                    let answer = ServerCommand::Answer { token, answer };
                    if server.command(Instant::ZERO, answer).is_err() {
                        return false;
                    }
                }
                _ => {}
            }
        }
    }
    server.connections() <= 1 && server.waiting() <= 4
}
