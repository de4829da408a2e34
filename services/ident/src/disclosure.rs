//! What is disclosed, and to whom.

use crate::service::{Owner, User};
use crate::token::{Sealed, TokenKey};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_config::Prefix;
use usher_core::WallTime;
use usher_ident::{Answer, Connection, ErrorType, Token, UserId};

usher_core::named! {
    "what is disclosed";
    /// What an asker is told of a connection's owner.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum Disclosure {
        /// The user's name; the number where there is no name.
        UserName = "user-name",
        /// The user's number.
        Uid = "uid",
        /// A token that only who has the key can turn back into the user, the connection and the time.
        Token = "token",
        /// That there is an owner, and not who: HIDDEN-USER.
        Hidden = "hidden",
        /// Nothing, not even whether there is such a connection: UNKNOWN-ERROR.
        Nothing = "nothing",
    }
}

/// What is disclosed, and to whom.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Who may ask; the longest prefix that holds an address decides.
    pub askers: Vec<(Prefix, Disclosure)>,
    /// Users who do not want to be named, by name or number: HIDDEN-USER, whoever asks.
    pub hide: Vec<String>,
    /// The operating system that goes with a name.
    pub opsys: Token,
    /// The character set that goes with a name; without it US-ASCII, or UTF-8 where a name has other characters.
    pub charset: Option<Token>,
    /// Makes tokens; without it there are none, and [`Disclosure::Token`] is [`Disclosure::Hidden`].
    pub key: Option<TokenKey>,
}

impl Policy {
    /// What somebody at this address is told; `None`: nobody there may ask.
    #[must_use]
    pub fn of(&self, asker: IpAddr) -> Option<Disclosure> {
        let fit = self.askers.iter().filter(|(prefix, _)| prefix.holds(asker));
        fit.max_by_key(|(prefix, _)| prefix.bits).map(|(_, disclosure)| *disclosure)
    }

    /// What to answer to who is told that much.
    #[must_use]
    pub fn answer(
        &self,
        disclosure: Disclosure,
        at: WallTime,
        connection: &Connection,
        owner: &Owner,
    ) -> Answer {
        if disclosure == Disclosure::Nothing {
            return Answer::Error(ErrorType::UnknownError);
        }
        let user = match owner {
            Owner::User(user) => user,
            Owner::Nobody => return Answer::Error(ErrorType::NoUser),
            Owner::Unknown => return Answer::Error(ErrorType::UnknownError),
        };
        let hidden = Answer::Error(ErrorType::HiddenUser);
        if self.hide.iter().any(|hide| user.is(hide)) || (user.name.is_none() && self.hides_names()) {
            return hidden;
        }
        let number = user.uid.map(|uid| uid.to_string().into_bytes());
        match (disclosure, &user.name, number, &self.key) {
            (Disclosure::UserName, Some(name), _, _) => self.named(name),
            (Disclosure::UserName | Disclosure::Uid, _, Some(number), _) => other(number),
            (Disclosure::Token, _, _, Some(key)) => {
                let sealed = Sealed { at, connection: *connection, user: user.clone() };
                other(key.seal(&sealed).into_bytes())
            }
            _ => hidden,
        }
    }

    /// Whether anybody is hidden by name. Whoever has none may then be one whose name could not be found out: some sources of
    /// names call their failure "no such user".
    fn hides_names(&self) -> bool {
        self.hide.iter().any(|hide| hide.parse::<u32>().is_err())
    }

    fn named(&self, name: &[u8]) -> Answer {
        let charset = match &self.charset {
            None if !name.is_ascii() => Token::new("UTF-8").ok(),
            set => set.clone(),
        };
        match UserId::new(name) {
            Ok(user) => Answer::UserId { opsys: self.opsys.clone(), charset, user },
            Err(_) => Answer::Error(ErrorType::UnknownError),
        }
    }
}

/// What is no name by which a user is known on the host (RFC 1413, 5): a number, a token.
fn other(text: Vec<u8>) -> Answer {
    match (Token::new("OTHER"), UserId::new(text)) {
        (Ok(opsys), Ok(user)) => Answer::UserId { opsys, charset: None, user },
        _ => Answer::Error(ErrorType::UnknownError),
    }
}

impl User {
    /// Whether this name or number means the user.
    fn is(&self, text: &str) -> bool {
        self.name.as_deref() == Some(text.as_bytes()) || self.uid.is_some_and(|uid| text == uid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        let askers = [
            ("0.0.0.0/0", Disclosure::Hidden),
            ("192.0.2.0/24", Disclosure::UserName),
            ("192.0.2.128/25", Disclosure::Uid),
            ("192.0.2.129", Disclosure::Nothing),
            ("2001:db8::/32", Disclosure::Token),
        ];
        Policy {
            askers: askers.map(|(prefix, what)| (Prefix::parse(prefix).unwrap(), what)).to_vec(),
            hide: ["eve", "1003"].map(str::to_owned).to_vec(),
            opsys: Token::new("UNIX").unwrap(),
            charset: None,
            key: None,
        }
    }

    fn told(policy: &Policy, disclosure: Disclosure, name: Option<&str>, uid: Option<u32>) -> String {
        let connection =
            Connection { local: "192.0.2.1:6193".parse().unwrap(), remote: "192.0.2.7:23".parse().unwrap() };
        let user = User { name: name.map(|name| name.as_bytes().to_vec()), uid };
        let at = WallTime::from_unix_secs(1_700_000_000);
        policy.answer(disclosure, at, &connection, &Owner::User(user)).to_string()
    }

    #[test]
    fn the_longest_prefix_decides_and_who_is_of_none_may_not_ask() {
        let policy = policy();
        for (address, disclosure) in [
            ("198.51.100.1", Some(Disclosure::Hidden)),
            ("192.0.2.1", Some(Disclosure::UserName)),
            ("::ffff:192.0.2.1", Some(Disclosure::UserName)),
            ("192.0.2.200", Some(Disclosure::Uid)),
            ("192.0.2.129", Some(Disclosure::Nothing)),
            ("2001:db8::1", Some(Disclosure::Token)),
            ("2001:db9::1", None),
        ] {
            assert_eq!(policy.of(address.parse().unwrap()), disclosure, "{address}");
        }
    }

    #[test]
    fn each_disclosure_tells_what_it_says() {
        let mut policy = policy();
        let told = |policy: &Policy, disclosure| told(policy, disclosure, Some("ann"), Some(1000));
        assert_eq!(told(&policy, Disclosure::UserName), "ann (UNIX)");
        assert_eq!(told(&policy, Disclosure::Uid), "1000 (OTHER)");
        assert_eq!(told(&policy, Disclosure::Hidden), "HIDDEN-USER");
        assert_eq!(told(&policy, Disclosure::Nothing), "UNKNOWN-ERROR");
        assert_eq!(told(&policy, Disclosure::Token), "HIDDEN-USER", "without a key there are no tokens");
        policy.key = Some(TokenKey::new(b"0123456789abcdef"));
        let text = told(&policy, Disclosure::Token);
        let token = text.strip_suffix(" (OTHER)").unwrap();
        let sealed = policy.key.as_ref().unwrap().open(token).unwrap();
        assert_eq!(sealed.user, User { name: Some(b"ann".to_vec()), uid: Some(1000) });
        assert_eq!(sealed.connection.local.port(), 6193);
        assert_eq!(sealed.at.unix_secs(), 1_700_000_000);
    }

    #[test]
    fn what_an_owner_lacks_is_not_told() {
        let mut policy = policy();
        policy.hide = vec!["1003".to_owned()];
        assert_eq!(told(&policy, Disclosure::UserName, None, Some(1000)), "1000 (OTHER)");
        assert_eq!(told(&policy, Disclosure::UserName, None, None), "HIDDEN-USER");
        assert_eq!(told(&policy, Disclosure::Uid, Some("ann@example.org"), None), "HIDDEN-USER");
        let end = "192.0.2.1:1".parse().unwrap();
        let (at, connection) = (WallTime::from_unix_secs(0), Connection { local: end, remote: end });
        let answer = |told, owner| policy.answer(told, at, &connection, &owner).to_string();
        assert_eq!(answer(Disclosure::UserName, Owner::Nobody), "NO-USER");
        assert_eq!(answer(Disclosure::UserName, Owner::Unknown), "UNKNOWN-ERROR");
        assert_eq!(answer(Disclosure::Nothing, Owner::Nobody), "UNKNOWN-ERROR");
    }

    #[test]
    fn users_who_do_not_want_to_be_named_are_hidden_from_all() {
        let mut policy = policy();
        policy.key = Some(TokenKey::new(b"0123456789abcdef"));
        for disclosure in [Disclosure::UserName, Disclosure::Uid, Disclosure::Token, Disclosure::Hidden] {
            assert_eq!(told(&policy, disclosure, Some("eve"), Some(1000)), "HIDDEN-USER");
            assert_eq!(told(&policy, disclosure, Some("bob"), Some(1003)), "HIDDEN-USER");
        }
        assert_eq!(told(&policy, Disclosure::Nothing, Some("eve"), Some(1000)), "UNKNOWN-ERROR");
        assert_eq!(told(&policy, Disclosure::UserName, Some("evelyn"), Some(10_030)), "evelyn (UNIX)");
        for disclosure in [Disclosure::UserName, Disclosure::Uid] {
            assert_eq!(told(&policy, disclosure, None, Some(1000)), "HIDDEN-USER", "it may be eve's");
        }
    }

    #[test]
    fn names_beyond_us_ascii_say_their_character_set() {
        let mut policy = policy();
        let told = |policy: &Policy, name| told(policy, Disclosure::UserName, Some(name), None);
        assert_eq!(told(&policy, "jürgen"), "jürgen (UNIX, UTF-8)");
        assert_eq!(told(&policy, "a\nb"), "UNKNOWN-ERROR");
        policy.charset = Some(Token::new("ISO-8859-1").unwrap());
        assert_eq!(told(&policy, "ann"), "ann (UNIX, ISO-8859-1)");
    }
}
