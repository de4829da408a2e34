//! Secrets and the connections that use them. charon prefers the secret that matches the peer best, then this side
//! (`get_shared` of its `credential_manager.c`).

use super::SwanctlImporter;
use super::settings::{SourceLine, SwanctlSection};
use super::words::{decode_secret, is_any_identity, translate_identity};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

/// A secret of IKE or EAP for these identities.
pub(super) struct SwanctlSecret {
    position: SourceLine,
    name: String,
    is_eap: bool,
    /// In our notation, or in the file's if ours cannot express it.
    ids: Vec<String>,
    /// `None`: ours cannot express it, and its owners have no other.
    secret: Option<String>,
    is_imported: bool,
}

/// Returns the identity of a secret's owner: in our notation, or in the file's.
pub(super) fn secret_identity(id: &str) -> String {
    let unreadable = || id.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
    translate_identity(id).unwrap_or_else(unreadable)
}

impl SwanctlImporter {
    pub(super) fn read_secrets(&mut self, root: &SwanctlSection) {
        let Some(secrets) = root.find_section("secrets") else { return };
        for (name, section) in &secrets.sections {
            let is_eap = name.starts_with("eap") || name.starts_with("xauth");
            if !(is_eap || name.starts_with("ike")) {
                self.report_unimported_setting(section.line, &alloc::format!("the secret {name}"));
                continue;
            }
            let mut secret = SwanctlSecret {
                position: section.line,
                name: name.clone(),
                is_eap,
                ids: Vec::new(),
                secret: None,
                is_imported: false,
            };
            let mut is_readable = true;
            for (key, value, line) in &section.values {
                match key.as_str() {
                    "secret" => match decode_secret(value) {
                        Some(text) => secret.secret = Some(text),
                        None => {
                            let what = "contains octets (0x, 0s) that are not text";
                            self.add_note(*line, alloc::format!("the secret {name} {what}"));
                        }
                    },
                    key if key.starts_with("id") => {
                        if translate_identity(value).is_none() && !is_any_identity(value) {
                            // The identity cannot be translated. Without it, the secret would apply to all peers, and
                            // this peer would get another secret.
                            is_readable = false;
                            self.report_unimported_setting(
                                *line,
                                &alloc::format!("the secret {name} for {value}"),
                            );
                        }
                        if !is_any_identity(value) {
                            secret.ids.push(secret_identity(value));
                        }
                    }
                    key => {
                        self.report_unimported_setting(*line, &alloc::format!("{key} of the secret {name}"))
                    }
                }
            }
            for (within, section) in &section.sections {
                self.report_unimported_setting(
                    section.line,
                    &alloc::format!("{within} of the secret {name}"),
                );
            }
            if section.value("secret").is_none() {
                self.report_unimported_setting(
                    section.line,
                    &alloc::format!("the secret {name}, which has no value,"),
                );
                continue;
            }
            if !is_readable {
                secret.secret = None;
            }
            // A secret whose value is missing was reported above. It is marked as imported, so that it is not reported
            // again.
            secret.is_imported = secret.secret.is_none();
            self.secrets.push(secret);
        }
    }

    /// Takes the secret that matches both sides best.
    pub(super) fn take_best_matching_secret(
        &mut self,
        is_eap: bool,
        own: Option<&str>,
        other: Option<&str>,
    ) -> Option<String> {
        let names = |secret: &SwanctlSecret, id: Option<&str>| {
            id.is_some_and(|id| secret.ids.iter().any(|known| known == id))
        };
        let all = self.secrets.iter_mut().filter(|secret| secret.is_eap == is_eap);
        let mut best: Option<(&mut SwanctlSecret, (u8, u8))> = None;
        for secret in all {
            // A secret that names another identity belongs to that one.
            let is_own = secret.ids.iter().all(|id| Some(id.as_str()) == own);
            let (is_others, is_ours) = (names(secret, other), names(secret, own));
            let is_wild = secret.ids.iter().any(|id| id.contains('*'));
            if !(is_own || is_others || is_wild) {
                continue;
            }
            let score = |is_named: bool| match (is_named, secret.ids.is_empty()) {
                (true, _) => 3,
                (false, true) => 1,
                (false, false) => u8::from(is_wild) * 2,
            };
            let score = (score(is_others), score(is_ours));
            // Among equals, the first one counts.
            if best.as_ref().is_none_or(|(_, known)| score > *known) {
                best = Some((secret, score));
            }
        }
        let (secret, _) = best?;
        secret.is_imported = true;
        secret.secret.clone()
    }

    /// Takes the EAP secrets with names as users, the first of each name.
    pub(super) fn take_eap_users(&mut self) -> Vec<(String, String)> {
        let (mut users, mut known) = (Vec::new(), BTreeSet::new());
        for secret in self.secrets.iter_mut().filter(|secret| secret.is_eap) {
            let Some(password) = &secret.secret else { continue };
            for id in &secret.ids {
                if known.insert(id.clone()) {
                    users.push((id.clone(), password.clone()));
                    secret.is_imported = true;
                }
            }
        }
        users
    }

    /// Reports each secret that no connection uses.
    pub(super) fn report_unused_secrets(&mut self) {
        let untaken: Vec<(SourceLine, String, bool)> = self
            .secrets
            .iter()
            .filter(|secret| !secret.is_imported)
            .map(|secret| (secret.position, secret.name.clone(), secret.is_eap && secret.ids.is_empty()))
            .collect();
        for (place, name, is_everybodys) in untaken {
            let why = if is_everybodys {
                "it applies to all EAP names; write a [[user]] for each".to_owned()
            } else {
                "no connection has its identity; write a [[connection]] with remote_id and secret, or a [[user]]"
                    .to_owned()
            };
            self.add_note(place, alloc::format!("the secret {name} is not imported: {why}"));
        }
    }
}
