//! Applies a user's checks and groups to a request. It follows FreeRADIUS's SQL module with one exception: if a
//! check of the user fails, the user is rejected regardless of groups.

use super::{
    ControlItemValue, FailedCheck, GroupControlValues, PasswordAttribute, PasswordSetting, ReplyAttribute,
    RequestCheck, StoredPassword, User,
};
use crate::operator::RowOperator;
use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::net::IpAddr;
use usher_crypto::SecretValue;
use usher_radius::attribute::{AttributeDataType, AttributeList, AttributeValue, kind};

impl User {
    /// Returns the user as it applies to a request: the user's own rows, then those of the matching groups.
    ///
    /// # Errors
    /// The first of the user's own checks that fails. No method may accept the user.
    pub fn resolve_for_request<'a>(
        self: &'a Arc<Self>,
        request: &AttributeList,
    ) -> Result<Arc<Self>, FailedCheck<'a>> {
        if self.checks.is_empty() && self.groups.is_empty() {
            return Ok(self.clone());
        }
        if let Some(check) = self.checks.iter().find(|c| !c.is_met_by(request)) {
            return Err(FailedCheck {
                check,
                has_attribute: !request.values_at(&check.attribute).is_empty(),
            });
        }
        let mut user = Self { checks: Vec::new(), groups: Vec::new(), ..Self::clone(self) };
        let (mut applied, mut withheld) = (false, false);
        for group in &self.groups {
            if !group.checks.iter().all(|c| c.is_met_by(request)) {
                withheld |= group.control.password.is_some();
                continue;
            }
            applied = true;
            user.apply_user_control(&group.control);
            for reply in &group.reply {
                reply.apply_to(&mut user.reply);
            }
            if !group.fall_through {
                break;
            }
        }
        // If the password does not apply to this request, or if none of the groups applies, the user must not be
        // accepted without proof.
        let groupless = !applied && !self.groups.is_empty();
        user.no_bypass |= user.password.is_none() && (withheld || groupless);
        Ok(Arc::new(user))
    }

    /// Applies the settings of rows to earlier ones. `:=` replaces, as in FreeRADIUS's modules sql and files. A
    /// rejection stays whatever follows.
    pub(super) fn apply_user_control(&mut self, control: &GroupControlValues) {
        let GroupControlValues { password, methods, simultaneous, expires, pool, rejected } = control;
        if let Some(setting) = password {
            self.adopt_password_setting(setting);
        }
        if let Some(setting) = methods {
            let mut all = (!self.methods.is_empty()).then(|| core::mem::take(&mut self.methods));
            setting.apply_to(&mut all);
            self.methods = all.unwrap_or_default();
        }
        if let Some(setting) = simultaneous {
            setting.apply_to(&mut self.simultaneous);
        }
        if let Some(setting) = expires {
            setting.apply_to(&mut self.expires);
        }
        if let Some(setting) = pool {
            setting.apply_to(&mut self.pool);
        }
        self.rejected |= rejected;
    }

    fn adopt_password_setting(&mut self, setting: &ControlItemValue<PasswordSetting>) {
        let had = self.password.is_some().then_some(self.password_attribute);
        let next = match (had, &setting.replacement) {
            (None, _) => &setting.value,
            (Some(PasswordAttribute::WithHeader), _)
                if setting.value.attribute != PasswordAttribute::WithHeader =>
            {
                &setting.value
            }
            (Some(had), Some(next)) if next.attribute == had => next,
            _ => return,
        };
        self.password = Some(next.password.clone());
        self.password_attribute = next.attribute;
    }

    /// Returns the NT hash of the password.
    pub(crate) fn nt_hash(&self) -> Option<SecretValue<[u8; 16]>> {
        match self.password.as_ref()? {
            StoredPassword::Clear(password) => Some(usher_crypto::legacy::nt_hash(password).into()),
            StoredPassword::NtHash(hash) => Some(hash.clone()),
            StoredPassword::Argon2(_) => None,
        }
    }
}

impl RequestCheck {
    /// True if a request meets the check.
    #[must_use]
    pub fn is_met_by(&self, request: &AttributeList) -> bool {
        let all = request.values_at(&self.attribute);
        let mut there = all.iter().filter_map(|given| self.value_with_matching_tag(given));
        match self.op {
            RowOperator::Absent => there.next().is_none(),
            RowOperator::Present => there.next().is_some(),
            _ => there.any(|value| self.matches_value(&value)),
        }
    }
    /// Returns a value without its tag. `None`: it has another tag than the check.
    fn value_with_matching_tag<'a>(&self, given: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        match (self.tag, given) {
            (Some(wanted), [tag, rest @ ..]) if *tag <= 0x1f || self.data_type.is_number() => {
                (wanted == 0 || wanted == *tag).then(|| match self.data_type.is_number() {
                    true => Cow::Owned([&[0], rest].concat()),
                    false => Cow::Borrowed(rest),
                })
            }
            (Some(1..), _) => None,
            _ => Some(Cow::Borrowed(given)),
        }
    }
    fn matches_value(&self, value: &[u8]) -> bool {
        let order = match self.data_type {
            AttributeDataType::Ipv4Prefix | AttributeDataType::Ipv6Prefix => {
                return self.equals_prefix(value);
            }
            data_type if data_type.is_number() && value.len() != self.value.len() => {
                value.len().cmp(&self.value.len())
            }
            _ => value.cmp(&self.value),
        };
        match self.op {
            RowOperator::NotEqual => order != Ordering::Equal,
            RowOperator::Less => order == Ordering::Less,
            RowOperator::LessOrEqual => order != Ordering::Greater,
            RowOperator::Greater => order == Ordering::Greater,
            RowOperator::GreaterOrEqual => order != Ordering::Less,
            _ => order == Ordering::Equal,
        }
    }
}

impl RequestCheck {
    /// True if a value is the same prefix in any encoding. An invalid prefix matches no comparison.
    fn equals_prefix(&self, value: &[u8]) -> bool {
        let prefix = |octets| AttributeValue::decode(self.data_type, octets).ok();
        prefix(value).is_some_and(|given| match self.op {
            RowOperator::Equal => Some(given) == prefix(&self.value),
            _ => false,
        })
    }
}

impl ReplyAttribute {
    /// Applies the attribute to a list by its operator.
    pub fn apply_to(&self, list: &mut AttributeList) {
        match self.op {
            RowOperator::Set if !list.values_at(&self.attribute).is_empty() => return,
            RowOperator::Replace => drop(list.remove_by_number(&self.attribute)),
            _ => {}
        }
        list.extend(&self.value);
    }
}

/// Parses a MAC address in a usual notation (`00:11:22:AA:BB:CC`, `00-11-…`, `0011.22aa.bbcc`, `001122-aabbcc`,
/// `001122aabbcc`) into twelve lower-case hexadecimal digits. A suffix as in Called-Station-Id (`:SSID`) is not
/// allowed. Other groups of digits are no MAC address; they may be an IPv6 address.
#[must_use]
pub(crate) fn mac_address(text: &[u8]) -> Option<[u8; 12]> {
    let group = match text.len() {
        12 => 12,
        13 => 6,
        14 => 4,
        17 => 2,
        _ => return None,
    };
    let (mut digits, mut count) = ([0; 12], 0);
    for (i, &octet) in text.iter().enumerate() {
        if i % (group + 1) == group {
            // All separators must be the same.
            if !matches!(octet, b':' | b'-' | b'.') || octet != text[group] {
                return None;
            }
        } else if octet.is_ascii_hexdigit() {
            *digits.get_mut(count)? = octet.to_ascii_lowercase();
            count += 1;
        } else {
            return None;
        }
    }
    (count == 12).then_some(digits)
}

/// Returns the canonical form of a Calling-Station-Id. A MAC address becomes twelve lower-case hexadecimal digits,
/// an IP address its usual notation, any other name lower case. Empty: no station.
#[must_use]
pub(crate) fn canonical_station_id(name: &[u8]) -> Cow<'_, [u8]> {
    if let Some(digits) = mac_address(name) {
        return Cow::Owned(digits.to_vec());
    }
    if let Some(address) = core::str::from_utf8(name).ok().and_then(|text| text.parse::<IpAddr>().ok()) {
        return Cow::Owned(address.to_canonical().to_string().into_bytes());
    }
    match name.iter().any(u8::is_ascii_alphanumeric) {
        true if name.iter().any(u8::is_ascii_uppercase) => Cow::Owned(name.to_ascii_lowercase()),
        true => Cow::Borrowed(name),
        false => Cow::Borrowed(&[]),
    }
}

/// Returns the canonical form of a user's name. A MAC address becomes twelve lower-case hexadecimal digits. Any
/// other name is unchanged.
#[must_use]
pub fn canonical_name(name: &[u8]) -> Cow<'_, [u8]> {
    mac_address(name).map_or(Cow::Borrowed(name), |digits| Cow::Owned(digits.to_vec()))
}

/// Returns the canonical name of a user. All notations of a MAC address are one user.
pub(crate) fn canonical_user_name(user: &str) -> Cow<'_, [u8]> {
    canonical_name(user.as_bytes())
}

/// True if two Calling-Station-Ids name one station ([`canonical_station_id`]). An empty one equals no other.
pub(crate) fn is_same_station_id(a: &str, b: &str) -> bool {
    let a = canonical_station_id(a.as_bytes());
    !a.is_empty() && a == canonical_station_id(b.as_bytes())
}

/// Returns the names under which a store may have a user: the name, and other usual notations of a MAC address. The
/// canonical form is first; the others find rows written by other programs.
#[must_use]
pub fn name_spellings(name: &str) -> Vec<String> {
    let Some(digits) = mac_address(name.as_bytes()) else { return [name.into()].into() };
    let digits = core::str::from_utf8(&digits).unwrap_or(name);
    let cut = |each: usize, between: &str| -> String {
        let parts: Vec<&str> = (0..12).step_by(each).filter_map(|i| digits.get(i..i + each)).collect();
        parts.join(between)
    };
    let mut all: Vec<String> = Vec::new();
    for spelt in [cut(12, ""), cut(2, ":"), cut(2, "-"), cut(4, ".")] {
        all.extend([spelt.to_ascii_uppercase(), spelt]);
    }
    all.push(name.into());
    all.sort_by_key(|n| n != digits);
    let mut seen = Vec::new();
    all.retain(|n| {
        !seen.contains(n) && {
            seen.push(n.clone());
            true
        }
    });
    all
}

/// Returns the address of a request for MAC authentication bypass: Service-Type is Call-Check (RFC 2865 §5.6), and
/// User-Name is the address in Calling-Station-Id.
pub(crate) fn mac_bypass_address(request: &AttributeList) -> Option<[u8; 12]> {
    const CALL_CHECK: u32 = 10;
    let named = mac_address(request.get(kind::USER_NAME)?)?;
    let seen = mac_address(request.get(kind::CALLING_STATION_ID)?)?;
    (request.get_u32(kind::SERVICE_TYPE) == Some(CALL_CHECK) && named == seen).then_some(named)
}

#[cfg(test)]
mod tests {
    use super::super::{AuthMethod, UserGroup};
    use super::*;
    use crate::store::{AttributeRow, UserRows};
    use usher_radius::dictionary::{AttributeNumber, AttributeOid, RadiusDictionary};

    fn port_check(op: RowOperator, value: u32) -> RequestCheck {
        RequestCheck {
            attribute: AttributeNumber::from(AttributeOid::from_standard_attribute(kind::NAS_PORT)),
            op,
            value: value.to_be_bytes().to_vec(),
            data_type: AttributeDataType::Integer,
            tag: None,
            row: "NAS-Port".into(),
        }
    }

    #[test]
    fn checks_compare_as_their_operators_say() {
        let mut request = AttributeList::new();
        request.push_u32(kind::NAS_PORT, 5);
        for (op, below, same, above) in [
            (RowOperator::Equal, false, true, false),
            (RowOperator::NotEqual, true, false, true),
            (RowOperator::Less, false, false, true),
            (RowOperator::LessOrEqual, false, true, true),
            (RowOperator::Greater, true, false, false),
            (RowOperator::GreaterOrEqual, true, true, false),
            (RowOperator::Present, true, true, true),
            (RowOperator::Absent, false, false, false),
        ] {
            let all = [4, 5, 6].map(|n| port_check(op, n).is_met_by(&request));
            assert_eq!(all, [below, same, above], "{op:?}");
        }
        // A missing attribute matches no comparison, not even "not equal".
        let empty = AttributeList::new();
        assert!(
            !port_check(RowOperator::NotEqual, 5).is_met_by(&empty)
                && port_check(RowOperator::Absent, 5).is_met_by(&empty)
        );
        // One match among several values is enough.
        request.push_u32(kind::NAS_PORT, 7);
        assert!(port_check(RowOperator::Equal, 7).is_met_by(&request));
    }

    fn timeout_group(
        name: &str,
        port: Option<u32>,
        timeout: (RowOperator, u32),
        fall_through: bool,
    ) -> Arc<UserGroup> {
        let mut value = AttributeList::new();
        value.push_u32(kind::SESSION_TIMEOUT, timeout.1);
        let attribute = AttributeNumber::from(AttributeOid::from_standard_attribute(kind::SESSION_TIMEOUT));
        Arc::new(UserGroup {
            name: name.into(),
            checks: port.map(|p| port_check(RowOperator::Equal, p)).into_iter().collect(),
            reply: [ReplyAttribute { attribute, op: timeout.0, value }].into(),
            fall_through,
            ..UserGroup::default()
        })
    }

    fn reply_timeouts(user: &User, request: &AttributeList) -> Option<Vec<u32>> {
        let user = Arc::new(user.clone()).resolve_for_request(request).ok()?;
        let number = |v: &[u8]| u32::from_be_bytes(v.try_into().unwrap());
        Some(user.reply.get_all(kind::SESSION_TIMEOUT).map(number).collect())
    }

    #[test]
    fn groups_apply_in_order_until_one_does_not_fall_through() {
        let mut request = AttributeList::new();
        request.push_u32(kind::NAS_PORT, 5);
        let mut user = User::with_password(b"x");
        user.groups = [
            timeout_group("other port", Some(6), (RowOperator::Set, 1), false),
            timeout_group("first", Some(5), (RowOperator::Set, 2), true),
            timeout_group("second", None, (RowOperator::Set, 3), true),
            timeout_group("third", None, (RowOperator::Add, 4), false),
            timeout_group("never", None, (RowOperator::Replace, 5), false),
        ]
        .into();
        assert_eq!(reply_timeouts(&user, &request), Some([2, 4].into()));
        user.groups = [
            timeout_group("a", None, (RowOperator::Add, 1), true),
            timeout_group("b", None, (RowOperator::Replace, 2), false),
        ]
        .into();
        assert_eq!(reply_timeouts(&user, &request), Some([2].into()));
        user.reply.push_u32(kind::SESSION_TIMEOUT, 9);
        user.groups = [timeout_group("a", None, (RowOperator::Set, 1), false)].into();
        assert_eq!(reply_timeouts(&user, &request), Some([9].into()));
    }

    /// A test of `usher-store` compares this with FreeRADIUS's module sql.
    #[test]
    fn what_a_group_sets_takes_the_place_of_what_a_user_has() {
        let row = |(attribute, op, value): (&str, &str, &str)| AttributeRow {
            attribute: attribute.into(),
            op: RowOperator::parse(op).unwrap(),
            value: value.into(),
        };
        let dictionary = RadiusDictionary::standard();
        let resolved = |own: &[(&str, &str, &str)], group: &[(&str, &str, &str)]| {
            let group = crate::store::GroupRows {
                name: "g".into(),
                check: group.iter().copied().map(row).collect(),
                reply: Vec::new(),
            };
            let check = own.iter().copied().map(row).collect();
            let rows = UserRows { check, groups: [group].into(), ..UserRows::default() };
            Arc::new(User::compile(&rows, &dictionary).unwrap())
                .resolve_for_request(&AttributeList::new())
                .unwrap()
        };
        let (clear, headed, nt) = ("Cleartext-Password", "Password-With-Header", "NT-Password");
        let hash = "8846F7EAEE8FB117AD06BDD830B7586C";
        for (own, group, password) in [
            ((clear, ":=", "x"), (clear, ":=", "y"), "y"),
            ((clear, ":=", "x"), (clear, "+=", "y"), "x"),
            ((clear, "+=", "x"), (clear, ":=", "y"), "y"),
            ((clear, ":=", "x"), (nt, ":=", hash), "x"),
            ((clear, ":=", "x"), (headed, ":=", "{clear}y"), "x"),
            ((headed, ":=", "{clear}x"), (headed, ":=", "{clear}y"), "y"),
            ((headed, ":=", "{clear}x"), (clear, "+=", "y"), "y"),
        ] {
            let user = resolved(&[own], &[group]);
            assert_eq!(
                user.password,
                Some(StoredPassword::from_clear(password.as_bytes())),
                "{own:?} {group:?}"
            );
        }
        for (op, simultaneous, expires, pool) in [(":=", 1, 5, "b"), ("+=", 9, 7, "a")] {
            let own = [("Simultaneous-Use", ":=", "9"), ("Expiration", ":=", "7"), ("Pool-Name", ":=", "a")];
            let group = [("Simultaneous-Use", op, "1"), ("Expiration", op, "5"), ("Pool-Name", op, "b")];
            let user = resolved(&own, &group);
            let expires = usher_core::WallTime::from_unix_secs(expires);
            assert_eq!((user.simultaneous, user.expires), (Some(simultaneous), Some(expires)), "{op}");
            assert_eq!(user.pool.as_deref(), Some(pool), "{op}");
        }
        let pap = ("Auth-Type", ":=", "PAP");
        for (op, methods) in [(":=", AuthMethod::Chap), ("+=", AuthMethod::Chap), ("=", AuthMethod::Pap)] {
            assert_eq!(resolved(&[pap], &[("Auth-Type", op, "CHAP")]).methods, [methods], "{op}");
        }
        assert!(resolved(&[("Auth-Type", ":=", "Reject")], &[pap]).rejected, "a rejection stays");
    }

    #[test]
    fn a_user_whose_checks_fail_is_nobody_whatever_groups_say() {
        let request = AttributeList::new();
        for password in [Some(StoredPassword::from_clear(b"x")), None] {
            let mut user =
                User { password, checks: [port_check(RowOperator::Equal, 5)].into(), ..User::default() };
            assert!(reply_timeouts(&user, &request).is_none());
            user.groups = [timeout_group("a", None, (RowOperator::Set, 1), false)].into();
            assert!(reply_timeouts(&user, &request).is_none());
            let mut admits = UserGroup::default();
            admits.control.methods = Some(ControlItemValue::new([AuthMethod::Mab].into(), true));
            user.groups = [Arc::new(admits)].into();
            assert!(reply_timeouts(&user, &request).is_none());
        }
    }

    #[test]
    fn a_password_that_does_not_apply_still_forbids_mac_bypass() {
        let mut request = AttributeList::new();
        request.push_u32(kind::NAS_PORT, 5);
        let with_password = |port, fall_through| {
            let mut group = UserGroup { fall_through, ..UserGroup::default() };
            group.checks = [port_check(RowOperator::Equal, port)].into();
            let password = PasswordSetting {
                attribute: PasswordAttribute::Cleartext,
                password: StoredPassword::from_clear(b"x"),
            };
            group.control.password = Some(ControlItemValue::new(password, true));
            Arc::new(group)
        };
        let bypasses = |groups: &[Arc<UserGroup>]| {
            let user = Arc::new(User { groups: groups.to_vec(), ..User::default() });
            user.resolve_for_request(&request).unwrap().may_use(AuthMethod::Mab)
        };
        let plain = timeout_group("a", None, (RowOperator::Set, 1), true);
        assert!(bypasses(std::slice::from_ref(&plain)));
        assert!(!bypasses(&[with_password(6, true), plain.clone()]), "the password is of another port");
        assert!(!bypasses(&[plain, with_password(5, true)]));
        assert!(!bypasses(&[timeout_group("a", Some(6), (RowOperator::Set, 1), true)]), "no group applies");
        // A user without proof by its own rows stays so whichever groups apply.
        let own = User {
            methods: [AuthMethod::Mab].into(),
            groups: [timeout_group("a", Some(6), (RowOperator::Set, 1), true)].into(),
            ..User::default()
        };
        assert!(Arc::new(own).resolve_for_request(&request).unwrap().may_use(AuthMethod::Mab));
    }

    #[test]
    fn the_first_check_that_fails_is_told_with_what_the_request_has() {
        let rows = [("NAS-Port", "=*", ""), ("NAS-Port", ">", "4"), ("NAS-Port-Type", "==", "Ethernet")];
        let row = |(attribute, op, value): (&str, &str, &str)| AttributeRow {
            attribute: attribute.into(),
            op: RowOperator::parse(op).unwrap(),
            value: value.into(),
        };
        let mut rows = UserRows { check: rows.map(row).into(), ..UserRows::default() };
        let dictionary = RadiusDictionary::standard();
        let said = |rows: &UserRows, request: &AttributeList| {
            let user = Arc::new(User::compile(rows, &dictionary).unwrap());
            user.resolve_for_request(request).err().map(|unmet| unmet.to_string())
        };
        let mut request = AttributeList::new();
        assert_eq!(
            said(&rows, &request).as_deref(),
            Some("`NAS-Port =*` does not hold: the request has no such attribute")
        );
        request.push_u32(kind::NAS_PORT, 4);
        let lower = "`NAS-Port > 4` does not hold: the request has no such value";
        assert_eq!(said(&rows, &request).as_deref(), Some(lower));
        request.push_u32(kind::NAS_PORT, 5);
        let missing = "`NAS-Port-Type == Ethernet` does not hold: the request has no such attribute";
        assert_eq!(said(&rows, &request).as_deref(), Some(missing));
        request.push_u32(kind::NAS_PORT_TYPE, 15);
        assert_eq!(said(&rows, &request), None);
        rows.check.push(row(("NAS-Port", "!*", "ANY")));
        let there = "`NAS-Port !* ANY` does not hold: the request has one";
        assert_eq!(said(&rows, &request).as_deref(), Some(there));
    }

    #[test]
    fn a_device_may_be_kept_under_any_usual_spelling() {
        let all = name_spellings("00-11-22-aa-bb-cc");
        assert_eq!(all.first().map(String::as_str), Some("001122aabbcc"));
        for spelt in ["001122AABBCC", "00:11:22:AA:BB:CC", "00-11-22-aa-bb-cc", "0011.22aa.bbcc"] {
            assert_eq!(all.iter().filter(|n| *n == spelt).count(), 1, "{spelt} in {all:?}");
        }
        assert_eq!(name_spellings("ann"), ["ann"]);
        assert_eq!(&*canonical_name(b"0011.22AA.bbcc"), b"001122aabbcc");
        assert_eq!(&*canonical_name(b"Ann"), b"Ann");
    }

    #[test]
    fn addresses_are_read_in_the_usual_spellings() {
        for text in
            ["00:11:22:AA:bb:0C", "00-11-22-aa-bb-0c", "0011.22aa.bb0c", "001122-aabb0c", "001122AABB0C"]
        {
            assert_eq!(mac_address(text.as_bytes()), Some(*b"001122aabb0c"), "{text}");
        }
        for text in [
            "",
            "ann",
            "00:11:22:aa:bb",
            "00:11:22:aa:bb:cc:dd",
            ":001122aabbcc",
            "001122aabbcc-",
            "00 11 22 aa bb cc",
            "00:11-22:aa:bb:cc",
            "0:011:22:aa:bb:cc",
            "2001:db8::11:234",
            "2001:db8::1:1234",
            "0011:22aabbcc",
        ] {
            assert_eq!(mac_address(text.as_bytes()), None, "{text}");
        }
    }

    /// Separators in a MAC address are ignored; in any other name they count.
    #[test]
    fn stations_are_told_apart_by_what_they_are() {
        let same =
            |a: &str, b: &str| canonical_station_id(a.as_bytes()) == canonical_station_id(b.as_bytes());
        for (a, b) in [
            ("00-11-22-AA-BB-CC", "0011.22aa.bbcc"),
            ("2001:DB8::1", "2001:db8:0:0::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("Line-7", "line-7"),
            ("", "-"),
        ] {
            assert!(same(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("11.1.1.1", "1.11.1.1"),
            ("2001:db8::1:1", "2001:db8::11"),
            ("2001:db8::1:1", "2001:db8:1::1"),
            ("line-1.11", "line-11.1"),
            ("4930123", "49-30-123"),
        ] {
            assert!(!same(a, b), "{a} {b}");
        }
    }
}
