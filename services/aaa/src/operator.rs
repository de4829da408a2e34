//! Operators of a user's rows.

/// The operator of a row, as in FreeRADIUS's `users` file and column `op`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RowOperator {
    /// `=`: set if there is no such attribute yet.
    Set,
    /// `:=`: replace.
    Replace,
    /// `+=`: add.
    Add,
    /// `==`: the request has this value.
    Equal,
    /// `!=`: the request has another value.
    NotEqual,
    /// `<`: the request's value is less.
    Less,
    /// `<=`: the request's value is less or equal.
    LessOrEqual,
    /// `>`: the request's value is greater.
    Greater,
    /// `>=`: the request's value is greater or equal.
    GreaterOrEqual,
    /// `=~`: the request's value matches the expression.
    Matches,
    /// `!~`: the request's value does not match the expression.
    MatchesNot,
    /// `=*`: the request has such an attribute.
    Present,
    /// `!*`: the request has no such attribute.
    Absent,
    /// Any other text: the meaning of the row is unknown.
    Unknown,
}

impl RowOperator {
    /// All known operators with their text.
    pub const ALL: [(Self, &'static str); 13] = [
        (Self::Set, "="),
        (Self::Replace, ":="),
        (Self::Add, "+="),
        (Self::Equal, "=="),
        (Self::NotEqual, "!="),
        (Self::Less, "<"),
        (Self::LessOrEqual, "<="),
        (Self::Greater, ">"),
        (Self::GreaterOrEqual, ">="),
        (Self::Matches, "=~"),
        (Self::MatchesNot, "!~"),
        (Self::Present, "=*"),
        (Self::Absent, "!*"),
    ];
    /// Parses an operator.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, t)| *t == text).map(|(op, _)| *op)
    }
    /// Returns its text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(op, _)| *op == self).map_or("(no operator)", |(_, t)| t)
    }
}
