//! Login methods, by their names in profiles and `usher load`.

use usher_load::{DiameterLogin, EapMethod, EapTlsConfig, PeapInnerMethod, RadiusLogin, TtlsInnerMethod};

/// A method with its weight among the logins.
#[derive(Clone, PartialEq, Debug)]
pub struct LoginMethod {
    /// Its name.
    pub name: String,
    /// Its weight among all, above 0.
    pub weight: f64,
}

/// The reason why a method cannot be planned.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoginMethodError {
    /// The name is unknown.
    #[error(
        "no method is named \"{0}\"; there are pap, chap, mschapv2, eap-md5, eap-gtc, eap-mschapv2, eap-tls, peap-mschapv2, \
         peap-gtc and ttls-pap, ttls-chap, ttls-mschap, ttls-mschapv2, ttls-eap-md5, ttls-eap-gtc, ttls-eap-mschapv2; over \
         Diameter diameter-pap, diameter-eap-md5, diameter-eap-gtc, diameter-eap-mschapv2, diameter-eap-tls, \
         diameter-eap-peap-mschapv2, diameter-eap-ttls-pap and diameter-eap-ttls-mschapv2; at an IKEv2 gateway ike-psk"
    )]
    Unknown(String),
}

/// A method by its transport, as the generator has it.
#[derive(Clone, Debug)]
pub(crate) enum GeneratorLoginMethod {
    Radius(RadiusLogin),
    Diameter(DiameterLogin),
    /// At a gateway by a shared key.
    Ike,
}

impl LoginMethod {
    /// True for a method over Diameter.
    #[must_use]
    pub fn is_diameter(&self) -> bool {
        self.name.starts_with("diameter-")
    }

    /// True for a method of an IKEv2 gateway, which uses no AAA server.
    #[must_use]
    pub fn is_ike(&self) -> bool {
        self.name.starts_with("ike-")
    }

    /// Returns its name over RADIUS.
    fn radius_name(&self) -> &str {
        match self.name.strip_prefix("diameter-") {
            Some(method) => match method.strip_prefix("eap-") {
                Some(tunnel) if tunnel.starts_with("peap-") || tunnel.starts_with("ttls-") => tunnel,
                _ => method,
            },
            None => &self.name,
        }
    }

    /// True for a method with TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        let name = self.radius_name();
        name == "eap-tls" || name.starts_with("peap-") || name.starts_with("ttls-")
    }

    /// True if users have a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.radius_name() != "eap-tls"
    }

    /// Returns its name in the server's configuration (`methods.order`), if it has one there.
    #[must_use]
    pub fn configured_method_name(&self) -> Option<&'static str> {
        Some(match self.radius_name() {
            "pap" => "pap",
            "chap" => "chap",
            "mschapv2" => "mschapv2",
            "eap-md5" => "eap-md5",
            "eap-gtc" => "eap-gtc",
            "eap-mschapv2" => "eap-mschapv2",
            "eap-tls" => "eap-tls",
            name if name.starts_with("peap-") => "peap",
            name if name.starts_with("ttls-") => "ttls",
            _ => return None,
        })
    }

    /// Returns the generator's login, with this TLS if it uses TLS.
    ///
    /// # Errors
    /// The method is unknown.
    pub(crate) fn to_generator_login(
        &self,
        tls: &EapTlsConfig,
    ) -> Result<GeneratorLoginMethod, LoginMethodError> {
        if self.name == "ike-psk" {
            return Ok(GeneratorLoginMethod::Ike);
        }
        if !self.is_diameter() {
            return self.radius_login(&self.name, tls).map(GeneratorLoginMethod::Radius);
        }
        let unknown = || LoginMethodError::Unknown(self.name.clone());
        let name = self.radius_name();
        let known = [
            "pap",
            "eap-md5",
            "eap-gtc",
            "eap-mschapv2",
            "eap-tls",
            "peap-mschapv2",
            "ttls-pap",
            "ttls-mschapv2",
        ];
        if !known.contains(&name) {
            return Err(unknown());
        }
        Ok(GeneratorLoginMethod::Diameter(match self.radius_login(name, tls)? {
            RadiusLogin::Pap => DiameterLogin::Pap,
            RadiusLogin::Eap(method) => DiameterLogin::Eap(method),
            RadiusLogin::Chap | RadiusLogin::MsChapV2 => return Err(unknown()),
        }))
    }

    fn radius_login(&self, name: &str, tls: &EapTlsConfig) -> Result<RadiusLogin, LoginMethodError> {
        let eap = RadiusLogin::Eap;
        let ttls = |inner| RadiusLogin::Eap(EapMethod::Ttls(tls.clone(), inner));
        Ok(match name {
            "pap" => RadiusLogin::Pap,
            "chap" => RadiusLogin::Chap,
            "mschapv2" => RadiusLogin::MsChapV2,
            "eap-md5" => eap(EapMethod::Md5),
            "eap-gtc" => eap(EapMethod::Gtc),
            "eap-mschapv2" => eap(EapMethod::MsChapV2),
            "eap-tls" => eap(EapMethod::Tls(tls.clone())),
            "peap-mschapv2" => eap(EapMethod::Peap(tls.clone(), PeapInnerMethod::MsChapV2)),
            "peap-gtc" => eap(EapMethod::Peap(tls.clone(), PeapInnerMethod::Gtc)),
            "ttls-pap" => ttls(TtlsInnerMethod::Pap),
            "ttls-chap" => ttls(TtlsInnerMethod::Chap),
            "ttls-mschap" => ttls(TtlsInnerMethod::MsChap),
            "ttls-mschapv2" => ttls(TtlsInnerMethod::MsChapV2),
            "ttls-eap-md5" => ttls(TtlsInnerMethod::EapMd5),
            "ttls-eap-gtc" => ttls(TtlsInnerMethod::EapGtc),
            "ttls-eap-mschapv2" => ttls(TtlsInnerMethod::EapMsChapV2),
            _ => return Err(LoginMethodError::Unknown(self.name.clone())),
        })
    }
}
