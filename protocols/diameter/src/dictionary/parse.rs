//! Reading a dictionary's text.

use super::{AvpDef, CommandDef, Dictionary, FlagRule, Occurrence, SMALL, Type};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A line of a dictionary that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}: {word:?}")]
pub struct SyntaxError {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: &'static str,
    /// The word at fault.
    pub word: String,
}

impl Dictionary {
    /// Reads a dictionary; AVPs must be declared before what names them.
    ///
    /// # Errors
    /// The first line that cannot be read.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        let mut d = Self::default();
        let mut command = None;
        for (i, line) in text.lines().enumerate() {
            let words: Vec<&str> =
                line.split('#').next().unwrap_or_default().split_ascii_whitespace().collect();
            if !words.is_empty() {
                d.line(&words, &mut command).map_err(|(what, word)| SyntaxError {
                    line: i + 1,
                    what,
                    word,
                })?;
            }
        }
        Ok(d)
    }

    fn line(&mut self, words: &[&str], command: &mut Option<u32>) -> Result<(), (&'static str, String)> {
        match *words {
            ["application", id, name] => {
                self.applications.insert(number(id)?, name.to_string());
            }
            ["avp", code, name, kind, flag] => {
                let def = AvpDef {
                    code: number(code)?,
                    name: name.to_string(),
                    kind: kind_of(kind)?,
                    mandatory: match flag {
                        "M" => FlagRule::Must,
                        "-" => FlagRule::MustNot,
                        "?" => FlagRule::May,
                        _ => return Err(("unknown flag rule", flag.to_string())),
                    },
                    values: BTreeMap::new(),
                };
                if self.avp_names.insert(name.to_string(), def.code).is_some() {
                    return Err(("AVP declared twice", name.to_string()));
                }
                if (def.code as usize) < SMALL {
                    self.kinds.resize(SMALL, None);
                    self.kinds[def.code as usize] = Some(def.kind);
                }
                if self.avps.insert(def.code, def).is_some() {
                    return Err(("AVP code declared twice", code.to_string()));
                }
            }
            ["value", avp, n, name] => {
                let n = number(n)?;
                let code = self.code(avp)?;
                if let Some(def) = self.avps.get_mut(&code) {
                    def.values.insert(n, name.to_string());
                }
            }
            ["command", code, name, application, flag] => {
                let code = number(code)?;
                let def = CommandDef {
                    code,
                    name: name.to_string(),
                    application: number(application)?,
                    proxiable: flag == "P",
                    request: Vec::new(),
                    answer: Vec::new(),
                };
                self.commands.insert(code, def);
                *command = Some(code);
            }
            [which @ ("request" | "answer"), ref rules @ ..] => {
                let rules = rules.iter().map(|r| self.rule(r)).collect::<Result<Vec<_>, _>>()?;
                let def = command.and_then(|c| self.commands.get_mut(&c));
                let Some(def) = def else { return Err(("no command before", which.to_string())) };
                *(if which == "request" { &mut def.request } else { &mut def.answer }) = rules;
            }
            [word, ..] => return Err(("not a declaration", word.to_string())),
            [] => {}
        }
        Ok(())
    }

    fn code(&self, name: &str) -> Result<u32, (&'static str, String)> {
        self.avp_names.get(name).copied().ok_or(("unknown AVP", name.to_string()))
    }

    fn rule(&self, word: &str) -> Result<Occurrence, (&'static str, String)> {
        let forms = [
            ("1*{", '}', 1, u32::MAX),
            ("*[", ']', 0, u32::MAX),
            ("0[", ']', 0, 0),
            ("<", '>', 1, 1),
            ("{", '}', 1, 1),
            ("[", ']', 0, 1),
        ];
        for (open, close, min, max) in forms {
            if let Some(name) = word.strip_prefix(open).and_then(|w| w.strip_suffix(close)) {
                return Ok(Occurrence { code: self.code(name)?, min, max });
            }
        }
        Err(("not a rule", word.to_string()))
    }
}

fn number(word: &str) -> Result<u32, (&'static str, String)> {
    word.parse().map_err(|_| ("not a number", word.to_string()))
}

fn kind_of(word: &str) -> Result<Type, (&'static str, String)> {
    Ok(match word {
        "OctetString" => Type::OctetString,
        "Integer32" => Type::Integer32,
        "Integer64" => Type::Integer64,
        "Unsigned32" => Type::Unsigned32,
        "Unsigned64" => Type::Unsigned64,
        "Float32" => Type::Float32,
        "Float64" => Type::Float64,
        "Grouped" => Type::Grouped,
        "Address" => Type::Address,
        "Time" => Type::Time,
        "UTF8String" => Type::Utf8String,
        "DiameterIdentity" => Type::DiameterIdentity,
        "DiameterURI" => Type::DiameterUri,
        "Enumerated" => Type::Enumerated,
        "IPFilterRule" => Type::IpFilterRule,
        _ => return Err(("unknown type", word.to_string())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_line_and_word() {
        for (text, line, word) in [
            ("avp 1 A Octets M", 1, "Octets"),
            ("\navp x A Time M", 2, "x"),
            ("avp 1 A Time M\navp 2 A Time M", 2, "A"),
            ("value B 1 C", 1, "B"),
            ("request {A}", 1, "A"),
            ("avp 1 A Time M\nrequest {A}", 2, "request"),
            ("avp 1 A Time M\ncommand 1 C 0 -\nanswer (A)", 3, "(A)"),
            ("what is this", 1, "what"),
        ] {
            let e = Dictionary::parse(text).unwrap_err();
            assert_eq!((e.line, e.word.as_str()), (line, word), "{e}");
        }
    }

    #[test]
    fn each_type_is_called_as_the_rfc_calls_it() {
        // RFC 6733 sections 4.2 to 4.4.
        for name in [
            "OctetString",
            "Integer32",
            "Integer64",
            "Unsigned32",
            "Unsigned64",
            "Float32",
            "Float64",
            "Grouped",
            "Address",
            "Time",
            "UTF8String",
            "DiameterIdentity",
            "DiameterURI",
            "Enumerated",
            "IPFilterRule",
        ] {
            let kind = format!("{:?}", kind_of(name).unwrap());
            assert!(kind.eq_ignore_ascii_case(name), "{kind} for {name}");
        }
    }
}
