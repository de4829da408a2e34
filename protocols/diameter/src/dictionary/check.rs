//! Checking a message against its command's grammar and its AVPs' definitions.

use super::{Dictionary, FlagRule, Type};
use crate::avp::{AvpId, AvpView, Avps, FLAG_MANDATORY, FLAG_VENDOR, MAX_DEPTH};
use crate::data::{DiameterUri, IpFilterRule};
use crate::error::{Fault, ResultCode};
use crate::message::{Header, MessageView};
use core::str::FromStr;

impl Dictionary {
    /// Checks flags, types, and how often each AVP occurs.
    ///
    /// # Errors
    /// 3001 unknown command; 3008 the P flag is not the command's; 3009 an AVP's M flag breaks its rule;
    /// 5001 an unknown AVP with the M flag; 5004 and 5014 values that do not fit their type, or groups
    /// nested deeper than [`MAX_DEPTH`]; 5005 missing, 5008 forbidden, 5009 too frequent AVPs. The grammar
    /// is not asked of an answer with the E flag (RFC 6733 §7.2).
    pub fn check(&self, message: &MessageView<'_>) -> Result<(), Fault> {
        let h = message.header();
        let Some(command) = self.command(h.command) else {
            return Err(Fault::new(ResultCode::COMMAND_UNSUPPORTED, "unknown command"));
        };
        if h.flags.is_proxiable() != command.proxiable {
            return Err(Fault::new(ResultCode::INVALID_HDR_BITS, "P flag does not fit the command"));
        }
        self.check_avps(message.avps(), 0)?;
        self.check_grammar(h, message.avps())
    }

    fn check_grammar(&self, h: Header, avps: Avps<'_>) -> Result<(), Fault> {
        let Some(command) = self.command(h.command).filter(|_| !h.flags.is_error()) else { return Ok(()) };
        let rules = if h.flags.is_request() { &command.request } else { &command.answer };
        for rule in rules {
            let id = AvpId::must(rule.code);
            let mut found = 0;
            for avp in avps.all(id) {
                found += 1;
                if rule.max == 0 {
                    let what = "the command forbids this AVP";
                    return Err(Fault::of(ResultCode::AVP_NOT_ALLOWED, what, avp.to_owned()));
                }
                if found > rule.max {
                    let what = "an AVP occurs too often";
                    return Err(Fault::of(ResultCode::AVP_OCCURS_TOO_MANY_TIMES, what, avp.to_owned()));
                }
            }
            if found < rule.min {
                avps.require(id)?;
            }
        }
        Ok(())
    }

    fn check_avps(&self, mut avps: Avps<'_>, depth: usize) -> Result<(), Fault> {
        avps.try_for_each(|a| self.check_avp(a, depth))
    }

    fn check_avp(&self, a: AvpView<'_>, depth: usize) -> Result<(), Fault> {
        let known = self.avp(a.code).filter(|_| a.flags & FLAG_VENDOR == 0);
        let Some(def) = known else {
            return if a.mandatory() {
                Err(Fault::of(ResultCode::AVP_UNSUPPORTED, "unknown mandatory AVP", a.to_owned()))
            } else {
                Ok(())
            };
        };
        let set = a.flags & FLAG_MANDATORY != 0;
        if matches!((def.mandatory, set), (FlagRule::Must, false) | (FlagRule::MustNot, true)) {
            return Err(Fault::of(ResultCode::INVALID_AVP_BITS, "M flag breaks its rule", a.to_owned()));
        }
        let value = |ok: bool, what| {
            if ok { Ok(()) } else { Err(Fault::of(ResultCode::INVALID_AVP_VALUE, what, a.to_owned())) }
        };
        match def.kind {
            Type::OctetString => Ok(()),
            Type::Integer32 | Type::Unsigned32 | Type::Float32 | Type::Time | Type::Enumerated => {
                a.u32().map(|_| ())
            }
            Type::Integer64 | Type::Unsigned64 | Type::Float64 => a.u64().map(|_| ()),
            Type::Utf8String => a.utf8().map(|_| ()),
            Type::DiameterIdentity => a.identity().map(|_| ()),
            Type::Address => a.address().map(|_| ()),
            Type::DiameterUri => value(DiameterUri::from_str(a.utf8()?).is_ok(), "not a DiameterURI"),
            Type::IpFilterRule => value(IpFilterRule::parse(a.utf8()?).is_ok(), "not an IPFilterRule"),
            // The AVPs in Failed-AVP are wrong by their nature.
            Type::Grouped if a.code == 279 => a.grouped().map(|_| ()),
            Type::Grouped => {
                value(depth < MAX_DEPTH, "groups nested too deep")?;
                self.check_avps(a.grouped()?, depth + 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::avp::AvpBuf;
    use crate::codes;
    use crate::message::{Flags, Message};

    fn check(flags: u8, command: u32, fill: impl FnOnce(&mut AvpBuf)) -> u32 {
        let header = Header { flags: Flags(flags), command, application: 0, hop_by_hop: 0, end_to_end: 0 };
        let mut m = Message { header, avps: AvpBuf::new() };
        fill(&mut m.avps);
        let mut wire = Vec::new();
        m.emit(&mut wire).unwrap();
        Dictionary::base().check(&MessageView::parse(&wire).unwrap()).map_or_else(|f| f.code.0, |()| 0)
    }

    /// Ends a chain of pushes.
    fn void(_: &mut AvpBuf) {}

    fn dwr(b: &mut AvpBuf) -> &mut AvpBuf {
        b.push_str(codes::ORIGIN_HOST, "a.example").push_str(codes::ORIGIN_REALM, "example")
    }

    #[test]
    fn each_fault_has_its_code() {
        let with = |extra: &dyn Fn(&mut AvpBuf)| check(0x80, 280, |b| extra(dwr(b)));
        assert_eq!(with(&|_| {}), 0);
        assert_eq!(check(0x80, 999, |_| {}), 3001);
        assert_eq!(check(0xc0, 280, |b| void(dwr(b))), 3008);
        assert_eq!(with(&|b| void(b.push_str(AvpId::may(1), "no M"))), 3009);
        assert_eq!(with(&|b| void(b.push_str(AvpId::must(281), "M"))), 3009);
        assert_eq!(with(&|b| void(b.push_u32(AvpId::must(60_000), 1))), 5001);
        assert_eq!(with(&|b| void(b.push_u32(AvpId::may(60_000), 1))), 0);
        assert_eq!(with(&|b| void(b.push(codes::USER_NAME, &[0xff]))), 5004);
        assert_eq!(with(&|b| void(b.push(codes::ORIGIN_STATE_ID, &[1]))), 5014);
        assert_eq!(check(0x80, 280, |b| void(b.push_str(codes::ORIGIN_HOST, "a"))), 5005);
        assert_eq!(with(&|b| void(b.push_str(codes::SESSION_ID, "s"))), 5008);
        assert_eq!(with(&|b| void(b.push_str(codes::ORIGIN_HOST, "b"))), 5009);
        assert_eq!(check(0x20, 280, |_| {}), 0);
    }

    #[test]
    fn groups_are_bounded_in_depth() {
        fn nest(b: &mut AvpBuf, depth: usize) {
            if depth > 0 {
                b.push_group(codes::PROXY_INFO, |g| nest(g, depth - 1));
            }
        }
        assert_eq!(check(0x80, 280, |b| nest(dwr(b), MAX_DEPTH)), 0);
        assert_eq!(check(0x80, 280, |b| nest(dwr(b), MAX_DEPTH + 1)), 5004);
    }
}
