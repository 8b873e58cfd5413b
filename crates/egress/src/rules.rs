//! The rules of a sandbox as people give them: by options, in a file, in annotations; and on their
//! way to who enforces them.

use crate::Policy;
use crate::rule::Rule;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The most rules that there may be: each is looked at for each peer.
pub const RULES_MOST: usize = 4096;
/// The longest file of rules, in bytes.
pub const FILE_MOST: usize = 1 << 20;
/// The most name servers, as of the C library.
pub const RESOLVERS_MOST: usize = 3;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    pub allow: Vec<Rule>,
    pub deny: Vec<Rule>,
    /// The name servers whose answers are believed; of those who start the sandbox, if there is
    /// none.
    pub resolvers: Vec<IpAddr>,
    /// This host's addresses, which are special. (Not of a file.)
    pub own: Vec<IpAddr>,
}

/// Why a text is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{0} (a file of rules is JSON: {{\"allow\": [\"pypi.org:443\"], \"deny\": [], \"resolvers\": [\"192.0.2.53\"]}})"
    )]
    Form(String),
    #[error("there are more than {RULES_MOST} rules")]
    TooMany,
    #[error("there are more than {RESOLVERS_MOST} resolvers")]
    Resolvers,
}

impl Rules {
    /// Of a file.
    ///
    /// # Errors
    ///
    /// It is no JSON, has words that are not known, or too much of something.
    pub fn of_file(text: &str) -> Result<Rules, Error> {
        #[derive(Deserialize)]
        #[serde(default, deny_unknown_fields)]
        #[derive(Default)]
        struct File {
            allow: Vec<Rule>,
            deny: Vec<Rule>,
            resolvers: Vec<IpAddr>,
        }
        // (A list would be taken for the words in their order, and an empty one for no rules.)
        if !text.trim_start().starts_with('{') {
            return Err(Error::Form("it is no object".into()));
        }
        let f: File = serde_json::from_str(text).map_err(|e| Error::Form(e.to_string()))?;
        let rules = Rules {
            allow: f.allow,
            deny: f.deny,
            resolvers: f.resolvers,
            own: Vec::new(),
        };
        rules.check()?;
        Ok(rules)
    }

    /// Whether there are not too many.
    pub fn check(&self) -> Result<(), Error> {
        if self.allow.len() + self.deny.len() > RULES_MOST {
            return Err(Error::TooMany);
        }
        if self.resolvers.len() > RESOLVERS_MOST {
            return Err(Error::Resolvers);
        }
        Ok(())
    }

    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    /// These, and what others say besides.
    pub fn add(&mut self, others: Rules) {
        self.allow.extend(others.allow);
        self.deny.extend(others.deny);
        self.resolvers.extend(others.resolvers);
        self.own.extend(others.own);
    }

    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy::new(self.allow.clone(), self.deny.clone()).on(self.own.iter().copied())
    }
}

/// The name servers of a text like `/etc/resolv.conf` (`resolv.conf(5)`).
#[must_use]
pub fn resolvers(text: &str) -> Vec<IpAddr> {
    let of = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse::<IpAddr>().ok())?
    };
    text.lines().filter_map(of).take(RESOLVERS_MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        let r =
            Rules::of_file(r#"{"allow": ["pypi.org:443"], "resolvers": ["192.0.2.53"]}"#).unwrap();
        assert_eq!(r.allow[0].to_string(), "pypi.org:443");
        assert!(r.deny.is_empty() && !r.is_empty());
        let sent = serde_json::to_string(&r).unwrap();
        assert_eq!(serde_json::from_str::<Rules>(&sent).unwrap(), r);
        for wrong in [
            "",
            "[]",
            r#"{"allow": "pypi.org"}"#,
            r#"{"allow": ["https://a.org"]}"#,
            r#"{"alow": []}"#,
            r#"{"own": []}"#,
            r#"{"resolvers": ["a.org"]}"#,
            r#"{"resolvers": ["1.1.1.1","1.1.1.2","1.1.1.3","1.1.1.4"]}"#,
        ] {
            assert!(Rules::of_file(wrong).is_err(), "{wrong}");
        }
        let many = format!(
            "{{\"deny\": [{}\"a.org\"]}}",
            "\"a.org\",".repeat(RULES_MOST)
        );
        assert_eq!(Rules::of_file(&many), Err(Error::TooMany));
    }

    #[test]
    fn servers_of_resolv_conf() {
        let text = "# a\nnameserver 192.0.2.1\nsearch a.org\nnameserver\t::1 # b\nnameserver fe80::1%eth0\nnameserver x\n";
        let found: Vec<String> = resolvers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.1", "::1"]);
    }
}
