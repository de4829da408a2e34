//! Checks of messages against the grammar of their command and the definitions of their AVPs.

use super::{AvpDataFormat, AvpFlagRule, AvpOccurrence, DiameterDictionary, SMALL};
use crate::avp::{Avp, AvpId, AvpSequence, AvpView, FLAG_MANDATORY, FLAG_VENDOR, MAX_DEPTH};
use crate::codes::{self, application};
use crate::data::{DiameterUri, IpFilterRule};
use crate::error::{DiameterError, ResultCode};
use crate::message::{MessageHeader, MessageView};
use core::str::FromStr;

/// The highest code of a RADIUS attribute. Every RADIUS attribute is an AVP (RFC 6733 §4.1).
const ATTRIBUTES: u32 = 255;

impl DiameterDictionary {
    /// Checks a received request against its command's grammar and its AVPs' types. Ignores wrong M and P flags, which
    /// do no harm if the AVP is understood. RADIUS attributes outside the dictionary count as understood.
    ///
    /// # Errors
    /// - 3001: the command is unknown.
    /// - 5001: an AVP with the M flag is unknown.
    /// - 5004, 5014: a value does not fit its type, groups are nested deeper than [`MAX_DEPTH`], or an application is
    ///   not the header's (RFC 6733 §6.8, §6.9).
    /// - 5005, 5008, 5009: an AVP is missing, forbidden or too frequent.
    pub fn check_request(&self, header: MessageHeader, avps: AvpSequence<'_>) -> Result<(), DiameterError> {
        let Some(command) = self.command_by_code(header.command) else {
            return Err(DiameterError::new(ResultCode::COMMAND_UNSUPPORTED, "unknown command"));
        };
        let mut seen = [0_u8; SMALL];
        for a in avps {
            if a.vendor == 0
                && let Some(count) = seen.get_mut(a.code as usize)
            {
                *count = count.saturating_add(1);
            }
            self.check_received(a, 0)?;
            check_application(header.application, a)?;
        }
        let often = |rule: &AvpOccurrence| match seen.get(rule.code as usize) {
            Some(count) => u32::from(*count),
            None => avps.get_all(AvpId::must(rule.code)).count() as u32,
        };
        // RFC 6733, 3.2, 10; RFC 7155, 5; RFC 4072, 5: occurrences by the command's format.
        match command.request.iter().find(|r| !(r.min..=r.max).contains(&often(r))) {
            Some(rule) => Err(self.occurrence_error(*rule, avps)),
            None => Ok(()),
        }
    }

    fn check_received(&self, a: AvpView<'_>, depth: usize) -> Result<(), DiameterError> {
        let kind = if a.vendor == 0 { self.data_format(a.code) } else { None };
        match kind {
            // RFC 6733, 4.1: an unknown AVP with the M flag is an error.
            None if a.is_mandatory() && (a.vendor != 0 || a.code > ATTRIBUTES) => Err(
                DiameterError::with_avp(ResultCode::AVP_UNSUPPORTED, "unknown mandatory AVP", a.to_owned()),
            ),
            None
            | Some(AvpDataFormat::OctetString | AvpDataFormat::DiameterUri | AvpDataFormat::IpFilterRule) => {
                Ok(())
            }
            Some(AvpDataFormat::Grouped) if a.has_id(codes::FAILED_AVP) => a.as_group().map(|_| ()),
            Some(AvpDataFormat::Grouped) => {
                check_avp_depth(a, depth)?;
                a.as_group()?.try_for_each(|inner| self.check_received(inner, depth + 1))
            }
            Some(kind) => check_avp_value(a, kind),
        }
    }

    /// Returns the error for an AVP that occurs too rarely or too often (RFC 6733 §7.1.5).
    #[cold]
    fn occurrence_error(&self, rule: AvpOccurrence, avps: AvpSequence<'_>) -> DiameterError {
        let id = AvpId::must(rule.code);
        match avps.get_all(id).nth(rule.max as usize) {
            Some(avp) if rule.max == 0 => {
                let what = "the command forbids this AVP";
                DiameterError::with_avp(ResultCode::AVP_NOT_ALLOWED, what, avp.to_owned())
            }
            Some(avp) => {
                let what = "the AVP occurs too often";
                DiameterError::with_avp(ResultCode::AVP_OCCURS_TOO_MANY_TIMES, what, avp.to_owned())
            }
            None => {
                let mandatory =
                    self.avp_by_code(rule.code).is_none_or(|def| def.mandatory == AvpFlagRule::Must);
                let flags = if mandatory { FLAG_MANDATORY } else { 0 };
                let avp = Avp::zero_filled_example(rule.code, flags, 0);
                DiameterError::with_avp(ResultCode::MISSING_AVP, "a required AVP is missing", avp)
            }
        }
    }

    /// Checks a message of our own: flags, types and number of each AVP. An answer with the E flag is exempt from the
    /// grammar (RFC 6733 §7.2).
    ///
    /// # Errors
    /// - 3001: the command is unknown.
    /// - 3008: the P flag is not the command's.
    /// - 3009: an AVP's M flag violates its rule.
    /// - 5001: an AVP with the M flag is unknown.
    /// - 5004, 5014: a value does not fit its type, or groups are nested deeper than [`MAX_DEPTH`].
    /// - 5005, 5008, 5009: an AVP is missing, forbidden or too frequent.
    pub fn check_message(&self, message: &MessageView<'_>) -> Result<(), DiameterError> {
        let h = message.header();
        let Some(command) = self.command_by_code(h.command) else {
            return Err(DiameterError::new(ResultCode::COMMAND_UNSUPPORTED, "unknown command"));
        };
        if h.flags.is_proxiable() != command.proxiable {
            return Err(DiameterError::new(
                ResultCode::INVALID_HDR_BITS,
                "the P flag does not fit the command",
            ));
        }
        self.check_avps(message.avps(), 0)?;
        self.check_grammar(h, message.avps())
    }

    fn check_grammar(&self, h: MessageHeader, avps: AvpSequence<'_>) -> Result<(), DiameterError> {
        let Some(command) = self.command_by_code(h.command).filter(|_| !h.flags.is_error()) else {
            return Ok(());
        };
        let rules = if h.flags.is_request() { &command.request } else { &command.answer };
        let often = |rule: &AvpOccurrence| avps.get_all(AvpId::must(rule.code)).count() as u32;
        match rules.iter().find(|r| !(r.min..=r.max).contains(&often(r))) {
            Some(rule) => Err(self.occurrence_error(*rule, avps)),
            None => Ok(()),
        }
    }

    fn check_avps(&self, mut avps: AvpSequence<'_>, depth: usize) -> Result<(), DiameterError> {
        avps.try_for_each(|a| self.check_avp(a, depth))
    }

    fn check_avp(&self, a: AvpView<'_>, depth: usize) -> Result<(), DiameterError> {
        let known = self.avp_by_code(a.code).filter(|_| a.flags & FLAG_VENDOR == 0);
        let Some(def) = known else {
            return if a.is_mandatory() {
                Err(DiameterError::with_avp(
                    ResultCode::AVP_UNSUPPORTED,
                    "unknown mandatory AVP",
                    a.to_owned(),
                ))
            } else {
                Ok(())
            };
        };
        let set = a.flags & FLAG_MANDATORY != 0;
        if matches!((def.mandatory, set), (AvpFlagRule::Must, false) | (AvpFlagRule::MustNot, true)) {
            return Err(DiameterError::with_avp(
                ResultCode::INVALID_AVP_BITS,
                "the M flag violates the rule of the AVP",
                a.to_owned(),
            ));
        }
        let value = |ok: bool, what| {
            if ok {
                Ok(())
            } else {
                Err(DiameterError::with_avp(ResultCode::INVALID_AVP_VALUE, what, a.to_owned()))
            }
        };
        match def.kind {
            AvpDataFormat::DiameterUri => {
                value(DiameterUri::from_str(a.as_utf8()?).is_ok(), "not a DiameterURI")
            }
            AvpDataFormat::IpFilterRule => {
                value(IpFilterRule::parse(a.as_utf8()?).is_ok(), "not an IPFilterRule")
            }
            // Failed-AVP contains invalid AVPs by design.
            AvpDataFormat::Grouped if a.has_id(codes::FAILED_AVP) => a.as_group().map(|_| ()),
            AvpDataFormat::Grouped => {
                check_avp_depth(a, depth)?;
                self.check_avps(a.as_group()?, depth + 1)
            }
            kind => check_avp_value(a, kind),
        }
    }
}

/// Checks length and format of the data. URIs and filter rules are not parsed.
fn check_avp_value(a: AvpView<'_>, kind: AvpDataFormat) -> Result<(), DiameterError> {
    match kind {
        AvpDataFormat::Integer32
        | AvpDataFormat::Unsigned32
        | AvpDataFormat::Float32
        | AvpDataFormat::Time
        | AvpDataFormat::Enumerated => a.as_u32().map(|_| ()),
        AvpDataFormat::Integer64 | AvpDataFormat::Unsigned64 | AvpDataFormat::Float64 => {
            a.as_u64().map(|_| ())
        }
        AvpDataFormat::Utf8String => a.as_utf8().map(|_| ()),
        AvpDataFormat::DiameterIdentity => a.as_identity().map(|_| ()),
        AvpDataFormat::Address => a.as_address().map(|_| ()),
        AvpDataFormat::OctetString
        | AvpDataFormat::Grouped
        | AvpDataFormat::DiameterUri
        | AvpDataFormat::IpFilterRule => Ok(()),
    }
}

fn check_avp_depth(a: AvpView<'_>, depth: usize) -> Result<(), DiameterError> {
    if depth < MAX_DEPTH {
        return Ok(());
    }
    Err(DiameterError::with_avp(ResultCode::INVALID_AVP_VALUE, "groups nested too deep", a.to_owned()))
}

/// Checks that an AVP with an application has the header's (RFC 6733 §6.8, §6.9, §6.11). A common message's header has
/// the session's application. It may have 0 from nodes by RFC 4072, which passes every check.
fn check_application(header: u32, a: AvpView<'_>) -> Result<(), DiameterError> {
    let named =
        |a: &AvpView<'_>| a.has_id(codes::AUTH_APPLICATION_ID) || a.has_id(codes::ACCT_APPLICATION_ID);
    let other = |a: &AvpView<'_>| header != application::BASE && a.as_u32().is_ok_and(|id| id != header);
    let wrong = if named(&a) {
        other(&a)
    } else if a.has_id(codes::VENDOR_SPECIFIC_APPLICATION_ID) {
        crate::peer::capabilities::vendor_specific(a)?;
        a.as_group()?.any(|inner| named(&inner) && other(&inner))
    } else {
        false
    };
    if wrong {
        let what = "the application differs from the header's";
        return Err(DiameterError::with_avp(ResultCode::INVALID_AVP_VALUE, what, a.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::avp::AvpBuf;
    use crate::codes;
    use crate::message::{CommandFlags, DiameterMessage};

    fn check_result(flags: u8, command: u32, fill: impl FnOnce(&mut AvpBuf)) -> u32 {
        let header = MessageHeader {
            flags: CommandFlags(flags),
            command,
            application: 0,
            hop_by_hop: 0,
            end_to_end: 0,
        };
        let mut m = DiameterMessage { header, avps: AvpBuf::new() };
        fill(&mut m.avps);
        let mut wire = Vec::new();
        m.encode_into(&mut wire).unwrap();
        DiameterDictionary::builtin()
            .check_message(&MessageView::parse(&wire).unwrap())
            .map_or_else(|f| f.code.0, |()| 0)
    }

    /// Turns a chain of pushes into `()`.
    fn discard_push_chain(_: &mut AvpBuf) {}

    fn push_dwr_avps(b: &mut AvpBuf) -> &mut AvpBuf {
        b.push_str(codes::ORIGIN_HOST, "a.example").push_str(codes::ORIGIN_REALM, "example")
    }

    #[test]
    fn each_fault_has_its_code() {
        let with = |extra: &dyn Fn(&mut AvpBuf)| check_result(0x80, 280, |b| extra(push_dwr_avps(b)));
        assert_eq!(with(&|_| {}), 0);
        assert_eq!(check_result(0x80, 999, |_| {}), 3001);
        assert_eq!(check_result(0xc0, 280, |b| discard_push_chain(push_dwr_avps(b))), 3008);
        assert_eq!(with(&|b| discard_push_chain(b.push_str(AvpId::may(1), "no M"))), 3009);
        assert_eq!(with(&|b| discard_push_chain(b.push_str(AvpId::must(281), "M"))), 3009);
        assert_eq!(with(&|b| discard_push_chain(b.push_u32(AvpId::must(60_000), 1))), 5001);
        assert_eq!(with(&|b| discard_push_chain(b.push_u32(AvpId::may(60_000), 1))), 0);
        assert_eq!(with(&|b| discard_push_chain(b.push(codes::USER_NAME, &[0xff]))), 5004);
        assert_eq!(with(&|b| discard_push_chain(b.push(codes::ORIGIN_STATE_ID, &[1]))), 5014);
        assert_eq!(
            check_result(0x80, 280, |b| discard_push_chain(b.push_str(codes::ORIGIN_HOST, "a"))),
            5005
        );
        assert_eq!(with(&|b| discard_push_chain(b.push_str(codes::SESSION_ID, "s"))), 5008);
        assert_eq!(with(&|b| discard_push_chain(b.push_str(codes::ORIGIN_HOST, "b"))), 5009);
        assert_eq!(check_result(0x20, 280, |_| {}), 0);
    }

    fn request_check_error_codes(
        application: u32,
        command: u32,
        fill: impl FnOnce(&mut AvpBuf),
    ) -> Option<(u32, u32)> {
        let mut avps = AvpBuf::new();
        avps.push_str(codes::SESSION_ID, "a;1;2")
            .push_str(codes::ORIGIN_HOST, "a.example")
            .push_str(codes::ORIGIN_REALM, "example")
            .push_str(codes::DESTINATION_REALM, "example");
        fill(&mut avps);
        let header =
            MessageHeader { flags: CommandFlags(0xc0), command, application, hop_by_hop: 0, end_to_end: 0 };
        let checked = DiameterDictionary::builtin().check_request(header, avps.as_sequence());
        checked.err().map(|f| (f.code.0, f.avp.map_or(0, |a| a.code)))
    }

    /// RFC 6733 §4.1, §6.8, §6.9, §7.1.5: the result code and Failed-AVP for each fault of a request.
    #[test]
    fn each_fault_of_a_request_has_its_code() {
        fn push_der_avps(b: &mut AvpBuf) -> &mut AvpBuf {
            b.push_u32(codes::AUTH_APPLICATION_ID, 5)
                .push_u32(codes::AUTH_REQUEST_TYPE, 1)
                .push(codes::EAP_PAYLOAD, b"")
        }
        let with = |fill: &dyn Fn(&mut AvpBuf)| request_check_error_codes(5, 268, |b| fill(push_der_avps(b)));
        // Valid requests: plain, with a wrong flag, with an unknown attribute and with an unknown optional AVP.
        assert_eq!(with(&|_| {}), None);
        assert_eq!(with(&|b| discard_push_chain(b.push_str(AvpId::may(1), "anna"))), None);
        assert_eq!(with(&|b| discard_push_chain(b.push_str(AvpId::must(251), "x"))), None);
        assert_eq!(with(&|b| discard_push_chain(b.push_u32(AvpId::may(60_000), 1))), None);
        assert_eq!(
            with(&|b| discard_push_chain(b.push_str(AvpId::new_vendor_avp_id(9, 1, false), "x"))),
            None
        );
        assert_eq!(
            with(&|b| discard_push_chain(b.push_str(codes::PROXY_INFO, "").push_str(codes::PROXY_INFO, ""))),
            None
        );
        // Reserved flags and the former encryption flag.
        let flags = FLAG_MANDATORY | 0x3f;
        let reserved = Avp { code: 1, flags, vendor: 0, data: b"anna".to_vec() };
        assert_eq!(with(&|b| discard_push_chain(b.push_avp(&reserved))), None);
        // Invalid requests.
        assert_eq!(request_check_error_codes(5, 999, |_| {}), Some((3001, 0)));
        assert_eq!(with(&|b| discard_push_chain(b.push_u32(AvpId::must(60_000), 1))), Some((5001, 60_000)));
        assert_eq!(
            with(&|b| discard_push_chain(b.push_str(AvpId::new_vendor_avp_id(9, 1, true), "x"))),
            Some((5001, 1))
        );
        let inside = |b: &mut AvpBuf| {
            b.push_group(codes::PROXY_INFO, |g| discard_push_chain(g.push_u32(AvpId::must(60_000), 1)));
        };
        assert_eq!(with(&inside), Some((5001, 60_000)));
        assert_eq!(with(&|b| discard_push_chain(b.push(codes::USER_NAME, &[0xff]))), Some((5004, 1)));
        assert_eq!(
            with(&|b| discard_push_chain(b.push_str(codes::DESTINATION_HOST, "a b"))),
            Some((5004, 293))
        );
        assert_eq!(with(&|b| discard_push_chain(b.push(codes::SESSION_TIMEOUT, &[1]))), Some((5014, 27)));
        assert_eq!(
            with(&|b| discard_push_chain(b.push(codes::ACCOUNTING_INPUT_OCTETS, &[0; 4]))),
            Some((5014, 363))
        );
        assert_eq!(
            with(&|b| discard_push_chain(b.push_str(codes::USER_NAME, "a").push_str(codes::USER_NAME, "b"))),
            Some((5009, 1))
        );
        assert_eq!(with(&|b| discard_push_chain(b.push(codes::EAP_PAYLOAD, b"x"))), Some((5009, 462)));
        assert_eq!(request_check_error_codes(5, 268, |_| {}), Some((5005, 258)));
        assert_eq!(
            request_check_error_codes(3, 271, |b| discard_push_chain(
                b.push_u32(codes::ACCOUNTING_RECORD_TYPE, 2)
            )),
            Some((5005, 485))
        );
        // Applications that differ from the header's.
        assert_eq!(
            request_check_error_codes(1, 268, |b| discard_push_chain(push_der_avps(b))),
            Some((5004, 258))
        );
        let vendors = |id| {
            move |b: &mut AvpBuf| {
                b.push_group(codes::VENDOR_SPECIFIC_APPLICATION_ID, |g| {
                    g.push_u32(codes::VENDOR_ID, 0).push_u32(codes::ACCT_APPLICATION_ID, id);
                });
            }
        };
        assert_eq!(with(&vendors(5)), None);
        assert_eq!(with(&vendors(3)), Some((5004, 260)));
        // A common message by RFC 4072, with 0 in its header.
        assert_eq!(
            request_check_error_codes(0, 275, |b| discard_push_chain(
                b.push_u32(codes::AUTH_APPLICATION_ID, 5).push_u32(codes::TERMINATION_CAUSE, 1)
            )),
            None
        );
    }

    /// RFC 6733 §7.1.5: Failed-AVP has the first AVP beyond the maximum.
    #[test]
    fn failed_avp_shows_the_first_too_many() {
        let mut avps = AvpBuf::new();
        avps.push_str(codes::ORIGIN_HOST, "a").push_str(codes::ORIGIN_REALM, "b");
        for state in 1..=3 {
            avps.push_u32(codes::ORIGIN_STATE_ID, state);
        }
        let header = MessageHeader {
            flags: CommandFlags(0x80),
            command: 280,
            application: 0,
            hop_by_hop: 0,
            end_to_end: 0,
        };
        let fault = DiameterDictionary::builtin().check_request(header, avps.as_sequence()).unwrap_err();
        assert_eq!((fault.code.0, fault.avp.unwrap().data), (5009, vec![0, 0, 0, 2]));
    }

    #[test]
    fn groups_are_bounded_in_depth() {
        fn push_nested(b: &mut AvpBuf, depth: usize) {
            if depth > 0 {
                b.push_group(codes::PROXY_INFO, |g| push_nested(g, depth - 1));
            }
        }
        assert_eq!(check_result(0x80, 280, |b| push_nested(push_dwr_avps(b), MAX_DEPTH)), 0);
        assert_eq!(check_result(0x80, 280, |b| push_nested(push_dwr_avps(b), MAX_DEPTH + 1)), 5004);
    }
}
