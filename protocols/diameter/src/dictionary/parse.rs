//! The parser of a dictionary's text.

use super::{
    AvpDataFormat, AvpDef, AvpFlagRule, AvpOccurrence, DiameterCommandDef, DiameterDictionary, SMALL,
};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// A syntax error in a dictionary.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {description}: {word:?}")]
pub struct DictionarySyntaxError {
    /// Line number, from 1.
    pub line: usize,
    /// The error.
    pub description: &'static str,
    /// The invalid word.
    pub word: String,
}

impl DiameterDictionary {
    /// Parses a dictionary. An AVP must be declared before its first use.
    ///
    /// # Errors
    /// The first line with an error.
    pub fn parse(text: &str) -> Result<Self, DictionarySyntaxError> {
        let mut d = Self::default();
        let mut command = None;
        for (i, line) in text.lines().enumerate() {
            let words: Vec<&str> =
                line.split('#').next().unwrap_or_default().split_ascii_whitespace().collect();
            if !words.is_empty() {
                d.parse_line(&words, &mut command).map_err(|(what, word)| DictionarySyntaxError {
                    line: i + 1,
                    description: what,
                    word,
                })?;
            }
        }
        Ok(d)
    }

    fn parse_line(
        &mut self,
        words: &[&str],
        command: &mut Option<u32>,
    ) -> Result<(), (&'static str, String)> {
        match *words {
            ["application", id, name] => {
                self.applications.insert(parse_number(id)?, name.to_string());
            }
            ["avp", code, name, kind, flag] => {
                let def = AvpDef {
                    code: parse_number(code)?,
                    name: name.to_string(),
                    kind: parse_data_format(kind)?,
                    mandatory: match flag {
                        "M" => AvpFlagRule::Must,
                        "-" => AvpFlagRule::MustNot,
                        "?" => AvpFlagRule::May,
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
                let n = parse_number(n)?;
                let code = self.avp_code(avp)?;
                if let Some(def) = self.avps.get_mut(&code) {
                    def.values.insert(n, name.to_string());
                }
            }
            ["command", code, name, application, flag] => {
                let code = parse_number(code)?;
                let def = DiameterCommandDef {
                    code,
                    name: name.to_string(),
                    application: parse_number(application)?,
                    proxiable: flag == "P",
                    request: Vec::new(),
                    answer: Vec::new(),
                };
                self.commands.insert(code, def);
                *command = Some(code);
            }
            [which @ ("request" | "answer"), ref rules @ ..] => {
                let rules = rules.iter().map(|r| self.parse_rule(r)).collect::<Result<Vec<_>, _>>()?;
                let def = command.and_then(|c| self.commands.get_mut(&c));
                let Some(def) = def else { return Err(("no command precedes this line", which.to_string())) };
                *(if which == "request" { &mut def.request } else { &mut def.answer }) = rules;
            }
            [word, ..] => return Err(("not a declaration", word.to_string())),
            [] => {}
        }
        Ok(())
    }

    fn avp_code(&self, name: &str) -> Result<u32, (&'static str, String)> {
        self.avp_names.get(name).copied().ok_or(("unknown AVP", name.to_string()))
    }

    fn parse_rule(&self, word: &str) -> Result<AvpOccurrence, (&'static str, String)> {
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
                return Ok(AvpOccurrence { code: self.avp_code(name)?, min, max });
            }
        }
        Err(("not a rule", word.to_string()))
    }
}

fn parse_number(word: &str) -> Result<u32, (&'static str, String)> {
    word.parse().map_err(|_| ("not a number", word.to_string()))
}

fn parse_data_format(word: &str) -> Result<AvpDataFormat, (&'static str, String)> {
    Ok(match word {
        "OctetString" => AvpDataFormat::OctetString,
        "Integer32" => AvpDataFormat::Integer32,
        "Integer64" => AvpDataFormat::Integer64,
        "Unsigned32" => AvpDataFormat::Unsigned32,
        "Unsigned64" => AvpDataFormat::Unsigned64,
        "Float32" => AvpDataFormat::Float32,
        "Float64" => AvpDataFormat::Float64,
        "Grouped" => AvpDataFormat::Grouped,
        "Address" => AvpDataFormat::Address,
        "Time" => AvpDataFormat::Time,
        "UTF8String" => AvpDataFormat::Utf8String,
        "DiameterIdentity" => AvpDataFormat::DiameterIdentity,
        "DiameterURI" => AvpDataFormat::DiameterUri,
        "Enumerated" => AvpDataFormat::Enumerated,
        "IPFilterRule" => AvpDataFormat::IpFilterRule,
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
            let e = DiameterDictionary::parse(text).unwrap_err();
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
            let kind = format!("{:?}", parse_data_format(name).unwrap());
            assert!(kind.eq_ignore_ascii_case(name), "{kind} for {name}");
        }
    }
}
