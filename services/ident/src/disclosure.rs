//! Disclosure: which askers learn what about an owner.

use crate::service::{ConnectionOwner, OwnerLookupResult};
use crate::token::{TokenContent, TokenKey};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_config::Prefix;
use usher_core::WallTime;
use usher_ident::{ErrorType, IdentToken, QueriedConnection, ResponseBody, UserId};

usher_core::named! {
    "a disclosure level";
    /// The disclosure level of an asker.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum DisclosureLevel {
        /// The user's name, or the number if there is no name.
        UserName = "user-name",
        /// The user's number.
        Uid = "uid",
        /// A token. Only the holder of the key can decrypt it to the user, the connection and the time.
        Token = "token",
        /// Only that there is an owner: HIDDEN-USER.
        Hidden = "hidden",
        /// Nothing, not even that the connection exists: UNKNOWN-ERROR.
        Nothing = "nothing",
    }
}

/// The disclosure policy.
#[derive(Clone, Debug)]
pub struct DisclosurePolicy {
    /// The permitted askers. The longest prefix that contains an address decides.
    pub askers: Vec<(Prefix, DisclosureLevel)>,
    /// Users, by name or number, who are never named: each asker receives HIDDEN-USER.
    pub hide: Vec<String>,
    /// The operating system in responses with a name.
    pub opsys: IdentToken,
    /// The character set in responses with a name. `None`: US-ASCII, or UTF-8 if the name has other characters.
    pub charset: Option<IdentToken>,
    /// The key of tokens. Without it, [`DisclosureLevel::Token`] acts as [`DisclosureLevel::Hidden`].
    pub key: Option<TokenKey>,
}

impl DisclosurePolicy {
    /// Returns the disclosure level of an asker's address; `None`: the asker is not permitted.
    #[must_use]
    pub fn disclosure_for(&self, asker: IpAddr) -> Option<DisclosureLevel> {
        let fit = self.askers.iter().filter(|(prefix, _)| prefix.contains(asker));
        fit.max_by_key(|(prefix, _)| prefix.bits).map(|(_, disclosure)| *disclosure)
    }

    /// Returns the response for an owner at a disclosure level.
    #[must_use]
    pub fn response_for(
        &self,
        disclosure: DisclosureLevel,
        at: WallTime,
        connection: &QueriedConnection,
        owner: &OwnerLookupResult,
    ) -> ResponseBody {
        if disclosure == DisclosureLevel::Nothing {
            // RFC 1413, 5: UNKNOWN-ERROR for other errors only by configuration.
            return ResponseBody::Error(ErrorType::UnknownError);
        }
        let user = match owner {
            OwnerLookupResult::User(user) => user,
            // RFC 1413, 5: NO-USER for unused or ownerless connections.
            OwnerLookupResult::NoOwner => return ResponseBody::Error(ErrorType::NoUser),
            OwnerLookupResult::Unknown => return ResponseBody::Error(ErrorType::UnknownError),
        };
        // RFC 1413, 5: HIDDEN-USER for users who hide.
        let hidden = ResponseBody::Error(ErrorType::HiddenUser);
        if self.hide.iter().any(|hide| user.matches_text(hide))
            || (user.name.is_none() && self.hides_users_by_name())
        {
            return hidden;
        }
        let number = user.uid.map(|uid| uid.to_string().into_bytes());
        match (disclosure, &user.name, number, &self.key) {
            (DisclosureLevel::UserName, Some(name), _, _) => self.user_id_response(name),
            (DisclosureLevel::UserName | DisclosureLevel::Uid, _, Some(number), _) => {
                opaque_user_id_response(number)
            }
            (DisclosureLevel::Token, _, _, Some(key)) => {
                let sealed = TokenContent { looked_up_at: at, connection: *connection, user: user.clone() };
                opaque_user_id_response(key.encrypt_ident_token(&sealed).into_bytes())
            }
            _ => hidden,
        }
    }

    /// True if a user is hidden by name. Then an owner without a name may be one of them, because its name lookup can
    /// have failed: some sources report a failure as "no such user".
    fn hides_users_by_name(&self) -> bool {
        self.hide.iter().any(|hide| hide.parse::<u32>().is_err())
    }

    fn user_id_response(&self, name: &[u8]) -> ResponseBody {
        let charset = match &self.charset {
            // RFC 1413, 5: without a character set, the identifier is US-ASCII.
            None if !name.is_ascii() => IdentToken::new("UTF-8").ok(),
            set => set.clone(),
        };
        match UserId::new(name) {
            Ok(user) => ResponseBody::UserId { opsys: self.opsys.clone(), charset, user },
            Err(_) => ResponseBody::Error(ErrorType::UnknownError),
        }
    }
}

/// Returns a response of type OTHER, for text that is not the user's name on the host (RFC 1413 §5): a number, a
/// token.
fn opaque_user_id_response(text: Vec<u8>) -> ResponseBody {
    match (IdentToken::new("OTHER"), UserId::new(text)) {
        (Ok(opsys), Ok(user)) => ResponseBody::UserId { opsys, charset: None, user },
        _ => ResponseBody::Error(ErrorType::UnknownError),
    }
}

impl ConnectionOwner {
    /// True if the text is the user's name or number.
    fn matches_text(&self, text: &str) -> bool {
        self.name.as_deref() == Some(text.as_bytes()) || self.uid.is_some_and(|uid| text == uid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_policy() -> DisclosurePolicy {
        let askers = [
            ("0.0.0.0/0", DisclosureLevel::Hidden),
            ("192.0.2.0/24", DisclosureLevel::UserName),
            ("192.0.2.128/25", DisclosureLevel::Uid),
            ("192.0.2.129", DisclosureLevel::Nothing),
            ("2001:db8::/32", DisclosureLevel::Token),
        ];
        DisclosurePolicy {
            askers: askers.map(|(prefix, what)| (Prefix::parse(prefix).unwrap(), what)).to_vec(),
            hide: ["eve", "1003"].map(str::to_owned).to_vec(),
            opsys: IdentToken::new("UNIX").unwrap(),
            charset: None,
            key: None,
        }
    }

    fn disclosed_text(
        policy: &DisclosurePolicy,
        disclosure: DisclosureLevel,
        name: Option<&str>,
        uid: Option<u32>,
    ) -> String {
        let connection = QueriedConnection {
            local: "192.0.2.1:6193".parse().unwrap(),
            remote: "192.0.2.7:23".parse().unwrap(),
        };
        let user = ConnectionOwner { name: name.map(|name| name.as_bytes().to_vec()), uid };
        let at = WallTime::from_unix_secs(1_700_000_000);
        policy.response_for(disclosure, at, &connection, &OwnerLookupResult::User(user)).to_string()
    }

    #[test]
    fn the_longest_prefix_decides_and_who_is_of_none_may_not_ask() {
        let policy = test_policy();
        for (address, disclosure) in [
            ("198.51.100.1", Some(DisclosureLevel::Hidden)),
            ("192.0.2.1", Some(DisclosureLevel::UserName)),
            ("::ffff:192.0.2.1", Some(DisclosureLevel::UserName)),
            ("192.0.2.200", Some(DisclosureLevel::Uid)),
            ("192.0.2.129", Some(DisclosureLevel::Nothing)),
            ("2001:db8::1", Some(DisclosureLevel::Token)),
            ("2001:db9::1", None),
        ] {
            assert_eq!(policy.disclosure_for(address.parse().unwrap()), disclosure, "{address}");
        }
    }

    #[test]
    fn each_disclosure_tells_what_it_says() {
        let mut policy = test_policy();
        let told = |policy: &DisclosurePolicy, disclosure| {
            disclosed_text(policy, disclosure, Some("ann"), Some(1000))
        };
        assert_eq!(told(&policy, DisclosureLevel::UserName), "ann (UNIX)");
        assert_eq!(told(&policy, DisclosureLevel::Uid), "1000 (OTHER)");
        assert_eq!(told(&policy, DisclosureLevel::Hidden), "HIDDEN-USER");
        assert_eq!(told(&policy, DisclosureLevel::Nothing), "UNKNOWN-ERROR");
        assert_eq!(told(&policy, DisclosureLevel::Token), "HIDDEN-USER", "without a key there are no tokens");
        policy.key = Some(TokenKey::new(b"0123456789abcdef"));
        let text = told(&policy, DisclosureLevel::Token);
        let token = text.strip_suffix(" (OTHER)").unwrap();
        let sealed = policy.key.as_ref().unwrap().decrypt_ident_token(token).unwrap();
        assert_eq!(sealed.user, ConnectionOwner { name: Some(b"ann".to_vec()), uid: Some(1000) });
        assert_eq!(sealed.connection.local.port(), 6193);
        assert_eq!(sealed.looked_up_at.unix_secs(), 1_700_000_000);
    }

    #[test]
    fn what_an_owner_lacks_is_not_told() {
        let mut policy = test_policy();
        policy.hide = vec!["1003".to_owned()];
        assert_eq!(disclosed_text(&policy, DisclosureLevel::UserName, None, Some(1000)), "1000 (OTHER)");
        assert_eq!(disclosed_text(&policy, DisclosureLevel::UserName, None, None), "HIDDEN-USER");
        assert_eq!(
            disclosed_text(&policy, DisclosureLevel::Uid, Some("ann@example.org"), None),
            "HIDDEN-USER"
        );
        let end = "192.0.2.1:1".parse().unwrap();
        let (at, connection) = (WallTime::from_unix_secs(0), QueriedConnection { local: end, remote: end });
        let answer = |told, owner| policy.response_for(told, at, &connection, &owner).to_string();
        assert_eq!(answer(DisclosureLevel::UserName, OwnerLookupResult::NoOwner), "NO-USER");
        assert_eq!(answer(DisclosureLevel::UserName, OwnerLookupResult::Unknown), "UNKNOWN-ERROR");
        assert_eq!(answer(DisclosureLevel::Nothing, OwnerLookupResult::NoOwner), "UNKNOWN-ERROR");
    }

    #[test]
    fn users_who_do_not_want_to_be_named_are_hidden_from_all() {
        let mut policy = test_policy();
        policy.key = Some(TokenKey::new(b"0123456789abcdef"));
        for disclosure in
            [DisclosureLevel::UserName, DisclosureLevel::Uid, DisclosureLevel::Token, DisclosureLevel::Hidden]
        {
            assert_eq!(disclosed_text(&policy, disclosure, Some("eve"), Some(1000)), "HIDDEN-USER");
            assert_eq!(disclosed_text(&policy, disclosure, Some("bob"), Some(1003)), "HIDDEN-USER");
        }
        assert_eq!(
            disclosed_text(&policy, DisclosureLevel::Nothing, Some("eve"), Some(1000)),
            "UNKNOWN-ERROR"
        );
        assert_eq!(
            disclosed_text(&policy, DisclosureLevel::UserName, Some("evelyn"), Some(10_030)),
            "evelyn (UNIX)"
        );
        for disclosure in [DisclosureLevel::UserName, DisclosureLevel::Uid] {
            assert_eq!(
                disclosed_text(&policy, disclosure, None, Some(1000)),
                "HIDDEN-USER",
                "it may be eve's"
            );
        }
    }

    #[test]
    fn names_beyond_us_ascii_say_their_character_set() {
        let mut policy = test_policy();
        let told = |policy: &DisclosurePolicy, name| {
            disclosed_text(policy, DisclosureLevel::UserName, Some(name), None)
        };
        assert_eq!(told(&policy, "jürgen"), "jürgen (UNIX, UTF-8)");
        assert_eq!(told(&policy, "a\nb"), "UNKNOWN-ERROR");
        policy.charset = Some(IdentToken::new("ISO-8859-1").unwrap());
        assert_eq!(told(&policy, "ann"), "ann (UNIX, ISO-8859-1)");
    }
}
