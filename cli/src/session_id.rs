//! Short session ids: the shortest unique prefix of each id.

use crate::output::CommandFailure;

/// The minimum length of a short id, in characters.
const SHORTEST: usize = 6;
/// The maximum number of sessions listed for an ambiguous short id.
const LISTED: usize = 10;

/// The ids of a session.
pub(crate) struct SessionIdentifiers {
    /// The id that is shown.
    pub(crate) id: String,
    /// Other ids of the session.
    pub(crate) other_ids: Vec<String>,
    /// A description for people.
    pub(crate) description: String,
}

/// Returns the shortest unique prefix of each id.
pub(crate) fn shortest_unique_prefixes<'a>(ids: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let ids: Vec<&str> = ids.into_iter().collect();
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    sorted.dedup();
    let common = |a: &str, b: &str| a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let short = |id: &&str| {
        let at = sorted.binary_search(id).unwrap_or_default();
        let before = at.checked_sub(1).and_then(|n| sorted.get(n)).map_or(0, |other| common(id, other));
        let after = sorted.get(at + 1).map_or(0, |other| common(id, other));
        id.chars().take((before.max(after) + 1).max(SHORTEST)).collect()
    };
    ids.iter().map(short).collect()
}

/// Finds a session by a whole id or by a prefix. Returns `None` if no session matches.
///
/// # Errors
/// Several sessions match. The error lists them.
pub(crate) fn find_session(all: &[SessionIdentifiers], text: &str) -> Result<Option<usize>, CommandFailure> {
    let ids = |names: &SessionIdentifiers| {
        std::iter::once(&names.id).chain(&names.other_ids).cloned().collect::<Vec<_>>()
    };
    let matching = |fits: &dyn Fn(&str) -> bool| -> Vec<usize> {
        (0..all.len()).filter(|n| ids(&all[*n]).iter().any(|id| fits(id))).collect()
    };
    let mut found = matching(&|id| id == text);
    if found.is_empty() && text.chars().count() >= SHORTEST {
        let begins = |id: &str| id.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text));
        found = matching(&begins);
    }
    match found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        _ => {
            let shown = shortest_unique_prefixes(all.iter().map(|names| &*names.id));
            let line = |n: &usize| format!("\n  {}  {}", shown[*n], all[*n].description);
            let lines: String = found.iter().take(LISTED).map(line).collect();
            let more = found.len().saturating_sub(LISTED);
            let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
            Err(CommandFailure::runtime_error(format!(
                "{text} matches several sessions; give more characters of one id:{lines}{more}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_session_names(id: &str, other: &str) -> SessionIdentifiers {
        SessionIdentifiers {
            id: id.to_owned(),
            other_ids: vec![other.to_owned()],
            description: format!("user of {other}"),
        }
    }

    #[test]
    fn short_ids_are_unique_prefixes_of_at_least_six_characters() {
        let ids = ["0123456789", "0123456799", "abcdef0000", "ab", "0123"];
        assert_eq!(shortest_unique_prefixes(ids), ["012345678", "012345679", "abcdef", "ab", "0123"]);
        assert_eq!(shortest_unique_prefixes(["same-id", "same-id"]), ["same-i", "same-i"]);
        assert_eq!(shortest_unique_prefixes([]), [] as [&str; 0]);
    }

    #[test]
    fn a_session_is_found_by_what_is_shown_of_it() {
        let all = [
            test_session_names("0123456789", "a1"),
            test_session_names("0123456799", "a2"),
            test_session_names("abcdef0000", "a1"),
        ];
        let found = |text| find_session(&all, text);
        let shown = shortest_unique_prefixes(all.iter().map(|names| &*names.id));
        for (n, short) in shown.iter().enumerate() {
            assert_eq!(found(short).unwrap(), Some(n), "{short}");
        }
        assert_eq!(found("a2").unwrap(), Some(1), "a whole id, however short");
        assert_eq!(found("ABCDEF").unwrap(), Some(2));
        assert_eq!((found("abcde").unwrap(), found("fedcba").unwrap()), (None, None));
        for text in ["0123456", "a1"] {
            let said = found(text).unwrap_err().message;
            assert!(said.contains("matches several") && said.contains("user of a1"), "{said}");
        }
        let many: Vec<_> = (0..25).map(|n| test_session_names(&format!("ffffff{n:04}"), "x")).collect();
        let said = find_session(&many, "ffffff").unwrap_err().message;
        assert!(said.contains("and 15 more"), "{said}");
    }
}
