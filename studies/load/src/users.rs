//! The users of a load: thousands of names and passwords, created once and read without allocation.

use std::fmt;
use thiserror::Error;

/// Names and passwords in one buffer.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct UserCredentialTable {
    text: Vec<u8>,
    /// For each user, the ends of the name and of the password; each begins where the previous one ends.
    ends: Vec<(u32, u32)>,
    /// The files of each user's certificate and key; empty if no user has any.
    files: Vec<Option<(String, String)>>,
}

/// The reason why users cannot be created.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum UsersError {
    /// There is no user.
    #[error("the number of users is 0; give at least 1")]
    None,
    /// Several users were requested with a constant name.
    #[error("{0:?} names only one user: put {{}} in the place of the number, as in 'user{{}}@example.org'")]
    NoPlaceholder(String),
    /// A line that is not NAME,PASSWORD or NAME,PASSWORD,CERTIFICATE,KEY.
    #[error(
        "line {line}: {what}; each line is NAME,PASSWORD or NAME,PASSWORD,CERTIFICATE,KEY (quote a field that has a \
         comma: \"a,b\")"
    )]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The fault.
        what: &'static str,
    },
    /// A name or password too long for User-Name or User-Password.
    #[error("{0}: a name has 1 to 253 octets, a password at most 128")]
    Length(String),
    /// More users than the buffer can index.
    #[error("too many users: names and passwords together are longer than 4 GiB")]
    TooMany,
}

impl UserCredentialTable {
    /// Creates `count` users of a template: the number, from 0, replaces `{}` in the name and the password.
    ///
    /// # Errors
    /// Several users with a name without `{}`, or a name that is too long.
    pub fn from_template(name: &str, password: &str, count: usize) -> Result<Self, UsersError> {
        if count > 1 && !name.contains("{}") {
            return Err(UsersError::NoPlaceholder(name.to_owned()));
        }
        let mut users = Self::default();
        for n in 0..count {
            let n = n.to_string();
            users.push(name.replace("{}", &n).as_bytes(), password.replace("{}", &n).as_bytes())?;
        }
        users.require_users()
    }

    /// Parses CSV with `NAME,PASSWORD` in a line, or `NAME,PASSWORD,CERTIFICATE,KEY` with the files of the user's
    /// certificate and private key. A field may be in quotes, with quotes doubled inside. Empty lines, lines that begin
    /// with `#`, and a first line `name,password` or `name,password,certificate,key` are skipped.
    ///
    /// # Errors
    /// The first line that cannot be parsed.
    pub fn from_csv(text: &str) -> Result<Self, UsersError> {
        let mut users = Self::default();
        for (i, line) in text.lines().enumerate() {
            let title = matches!(line.trim(), "name,password" | "name,password,certificate,key");
            if line.trim().is_empty() || line.starts_with('#') || (i == 0 && title) {
                continue;
            }
            let bad = |what| UsersError::Line { line: i + 1, what };
            let mut fields = Vec::with_capacity(4);
            let mut left = Some(line);
            while let Some(rest) = left {
                let (value, behind) = split_first_csv_field(rest).map_err(bad)?;
                fields.push(value);
                left = behind;
                if fields.len() > 4 {
                    return Err(bad("more than four fields"));
                }
            }
            let files = match fields.split_off(fields.len().min(2)).as_slice() {
                [] => None,
                [certificate, key] if certificate.is_empty() && key.is_empty() => None,
                [certificate, key] if !certificate.is_empty() && !key.is_empty() => {
                    Some((certificate.clone(), key.clone()))
                }
                [_, _] => return Err(bad("a certificate without its key, or a key without its certificate")),
                _ => return Err(bad("a certificate without its key")),
            };
            let [name, password] = fields.as_slice() else { return Err(bad("no password")) };
            users.push(name.as_bytes(), password.as_bytes())?;
            if files.is_some() {
                users.files.resize(users.ends.len(), None);
            }
            if let (Some(place), Some(files)) = (users.files.last_mut(), files) {
                *place = Some(files);
            }
        }
        users.require_users()
    }

    /// Returns the files of a user's certificate and key, as in the CSV.
    #[must_use]
    pub fn certificate_files(&self, i: usize) -> Option<(&str, &str)> {
        self.files.get(i)?.as_ref().map(|(certificate, key)| (certificate.as_str(), key.as_str()))
    }

    fn require_users(self) -> Result<Self, UsersError> {
        if self.ends.is_empty() { Err(UsersError::None) } else { Ok(self) }
    }

    fn push(&mut self, name: &[u8], password: &[u8]) -> Result<(), UsersError> {
        if name.is_empty() || name.len() > 253 || password.len() > 128 {
            return Err(UsersError::Length(String::from_utf8_lossy(name).into_owned()));
        }
        self.text.extend_from_slice(name);
        let middle = u32::try_from(self.text.len()).map_err(|_| UsersError::TooMany)?;
        self.text.extend_from_slice(password);
        let end = u32::try_from(self.text.len()).map_err(|_| UsersError::TooMany)?;
        self.ends.push((middle, end));
        Ok(())
    }

    /// Returns the number of users, at least one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    /// True only for the default.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    /// Returns the name and password of the `i`-th user, in a cycle.
    #[must_use]
    pub fn get(&self, i: usize) -> (&[u8], &[u8]) {
        let Some(i) = i.checked_rem(self.ends.len()) else { return (&[], &[]) };
        let (middle, end) = self.ends[i];
        let begin = i.checked_sub(1).map_or(0, |before| self.ends[before].1);
        (&self.text[begin as usize..middle as usize], &self.text[middle as usize..end as usize])
    }
}

impl fmt::Debug for UserCredentialTable {
    /// Writes no passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").field("len", &self.ends.len()).finish_non_exhaustive()
    }
}

/// Returns the first field of a CSV line, and the rest after its comma.
fn split_first_csv_field(line: &str) -> Result<(String, Option<&str>), &'static str> {
    let Some(mut rest) = line.strip_prefix('"') else {
        return Ok(match line.split_once(',') {
            Some((field, rest)) => (field.to_owned(), Some(rest)),
            None => (line.to_owned(), None),
        });
    };
    let mut value = String::new();
    loop {
        let (part, after) = rest.split_once('"').ok_or("a quote is not closed")?;
        value.push_str(part);
        if let Some(more) = after.strip_prefix('"') {
            value.push('"');
            rest = more;
            continue;
        }
        return match after.strip_prefix(',') {
            Some(rest) => Ok((value, Some(rest))),
            None if after.trim().is_empty() => Ok((value, None)),
            None => Err("text between a quote and the comma"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_counts_from_zero() {
        let users = UserCredentialTable::from_template("user{}@example.org", "pw{}", 3).unwrap();
        assert_eq!(users.get(0), (&b"user0@example.org"[..], &b"pw0"[..]));
        assert_eq!(users.get(2), (&b"user2@example.org"[..], &b"pw2"[..]));
        assert_eq!(users.get(5), users.get(2), "counted around");
        assert_eq!(
            UserCredentialTable::from_template("bob", "x", 2),
            Err(UsersError::NoPlaceholder("bob".into()))
        );
        assert_eq!(UserCredentialTable::from_template("bob", "x", 0), Err(UsersError::None));
        assert!(!format!("{users:?}").contains("pw1"));
    }

    #[test]
    fn a_file_is_names_and_passwords() {
        let users = UserCredentialTable::from_csv("name,password\n# ours\nann,\"a,\"\"b\"\"\"\n\n\"b,c\",\n")
            .unwrap();
        assert_eq!(users.len(), 2);
        assert_eq!(users.get(0), (&b"ann"[..], &b"a,\"b\""[..]));
        assert_eq!(users.get(1), (&b"b,c"[..], &b""[..]));
        for (text, line, what) in [
            ("ann", 1, "no password"),
            ("ann,b\nbob,c,d", 2, "a certificate without its key"),
            ("ann,b,c,", 1, "a certificate without its key, or a key without its certificate"),
            ("ann,b,c,d,e", 1, "more than four fields"),
            ("\"ann,b", 1, "a quote is not closed"),
            ("\"ann\"x,b", 1, "text between a quote and the comma"),
        ] {
            assert_eq!(UserCredentialTable::from_csv(text), Err(UsersError::Line { line, what }), "{text}");
        }
        let with = UserCredentialTable::from_csv(
            "name,password,certificate,key\nann,x\nbob,,b.pem,\"b,.key\"\ncat,y,,\n",
        )
        .unwrap();
        assert_eq!((with.len(), with.certificate_files(0), with.certificate_files(2)), (3, None, None));
        assert_eq!(
            (with.get(1), with.certificate_files(1)),
            ((&b"bob"[..], &b""[..]), Some(("b.pem", "b,.key")))
        );
        assert!(matches!(
            UserCredentialTable::from_csv(&format!("{},x", "n".repeat(254))),
            Err(UsersError::Length(_))
        ));
    }
}
