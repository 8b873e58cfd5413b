//! Settings of devices (`net.ipv4.conf`, `net.ipv6.conf`; `net/ipv4/devinet.c`,
//! `net/ipv6/addrconf.c`): those of each, those that new ones begin with (`default`), and what
//! counts beside each one's own (`all`).
//!
//! Those that have a constant here do something, as the stack or the table of devices asks for
//! them. The others are kept for who reads them back: what they would change, our devices do not
//! do (redirects, source routes, autoconfiguration by routers, IPsec), or nobody sees it (a log of
//! martians).

use super::addresses::forget_v6;
use super::links::gains_v6;
use super::news::News;
use super::table::Table;
use crate::interface::LO_INDEX;
use crate::ns::NetNamespace;
use abi::Result;
use abi::errno::{EINVAL, ENOENT};
use netstack::setup::{Conf, ReversePath};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Whose a setting is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfOf {
    All,
    Default,
    /// A device's, by its index.
    Device(i32),
}

/// Of which protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    V4,
    V6,
}

/// What is set: a place in the protocol's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    version: Version,
    at: usize,
}

/// The files' names, and with what all begin.
const V4: [(&str, i32); 33] = [
    ("accept_local", 0),
    ("accept_redirects", 1),
    ("accept_source_route", 1),
    ("arp_accept", 0),
    ("arp_announce", 0),
    ("arp_evict_nocarrier", 1),
    ("arp_filter", 0),
    ("arp_ignore", 0),
    ("arp_notify", 0),
    ("bc_forwarding", 0),
    ("bootp_relay", 0),
    ("disable_policy", 0),
    ("disable_xfrm", 0),
    ("drop_gratuitous_arp", 0),
    ("drop_unicast_in_l2_multicast", 0),
    ("force_igmp_version", 0),
    ("forwarding", 0),
    ("igmpv2_unsolicited_report_interval", 10000),
    ("igmpv3_unsolicited_report_interval", 1000),
    ("ignore_routes_with_linkdown", 0),
    ("log_martians", 0),
    ("mc_forwarding", 0),
    ("medium_id", 0),
    ("promote_secondaries", 0),
    ("proxy_arp", 0),
    ("proxy_arp_pvlan", 0),
    ("route_localnet", 0),
    ("rp_filter", 0),
    ("secure_redirects", 1),
    ("send_redirects", 1),
    ("shared_media", 1),
    ("src_valid_mark", 0),
    ("tag", 0),
];
const V6: [(&str, i32); 49] = [
    ("accept_dad", 1),
    ("accept_ra", 1),
    ("accept_ra_defrtr", 1),
    ("accept_ra_from_local", 0),
    ("accept_ra_min_hop_limit", 1),
    ("accept_ra_min_lft", 0),
    ("accept_ra_mtu", 1),
    ("accept_ra_pinfo", 1),
    ("accept_ra_rt_info_max_plen", 0),
    ("accept_ra_rt_info_min_plen", 0),
    ("accept_ra_rtr_pref", 1),
    ("accept_redirects", 1),
    ("accept_source_route", 0),
    ("accept_untracked_na", 0),
    ("addr_gen_mode", 0),
    ("autoconf", 1),
    ("dad_transmits", 1),
    ("disable_ipv6", 0),
    ("disable_policy", 0),
    ("drop_unicast_in_l2_multicast", 0),
    ("drop_unsolicited_na", 0),
    ("enhanced_dad", 1),
    ("force_mld_version", 0),
    ("force_tllao", 0),
    ("forwarding", 0),
    ("hop_limit", 64),
    ("ignore_routes_with_linkdown", 0),
    ("keep_addr_on_down", 0),
    ("max_addresses", 16),
    ("max_desync_factor", 600),
    ("mc_forwarding", 0),
    ("mldv1_unsolicited_report_interval", 10000),
    ("mldv2_unsolicited_report_interval", 1000),
    ("mtu", 1280),
    ("ndisc_notify", 0),
    ("optimistic_dad", 0),
    ("proxy_ndp", 0),
    ("regen_max_retry", 3),
    ("router_probe_interval", 60),
    ("router_solicitation_delay", 1),
    ("router_solicitation_interval", 4),
    ("router_solicitation_max_interval", 3600),
    ("router_solicitations", -1),
    ("suppress_frag_ndisc", 1),
    ("temp_prefered_lft", 86400),
    ("temp_valid_lft", 604800),
    ("use_oif_addrs_only", 0),
    ("use_optimistic", 0),
    ("use_tempaddr", 0),
];

/// The place of a name, which is there: it is looked for when this is compiled.
const fn place(table: &[(&str, i32)], name: &str) -> usize {
    let (mut i, name) = (0, name.as_bytes());
    loop {
        let other = table[i].0.as_bytes();
        let mut same = other.len() == name.len();
        let mut k = 0;
        while same && k < name.len() {
            same = name[k] == other[k];
            k += 1;
        }
        if same {
            return i;
        }
        i += 1;
    }
}

const fn v4(name: &str) -> Setting {
    Setting {
        version: Version::V4,
        at: place(&V4, name),
    }
}

const fn v6(name: &str) -> Setting {
    Setting {
        version: Version::V6,
        at: place(&V6, name),
    }
}

impl Setting {
    /// Whether packets for others that come by it are sent on. For all: each one's, too.
    pub const FORWARDING: Setting = v4("forwarding");
    /// Whether packets must come by the device that leads to their source; the stricter one of all
    /// and the device's own.
    const REVERSE_PATH: Setting = v4("rp_filter");
    /// Whether what comes may be for 127.0.0.0/8.
    const ROUTE_LOCALNET: Setting = v4("route_localnet");
    /// Whether what comes may be from an address of this host's.
    const ACCEPT_LOCAL: Setting = v4("accept_local");
    /// For which addresses questions of ARP are answered.
    const ARP_IGNORE: Setting = v4("arp_ignore");
    const PROMOTE_SECONDARIES: Setting = v4("promote_secondaries");
    const DISABLE_POLICY: Setting = v4("disable_policy");
    const DISABLE_XFRM: Setting = v4("disable_xfrm");
    /// As with IPv4; only what is set for all counts.
    const FORWARDING_V6: Setting = v6("forwarding");
    const DISABLE_V6: Setting = v6("disable_ipv6");
    const MTU_V6: Setting = v6("mtu");
    const ACCEPT_DAD: Setting = v6("accept_dad");
    const USE_TEMPORARY: Setting = v6("use_tempaddr");

    /// That of a file.
    #[must_use]
    pub fn named(version: Version, name: &str) -> Option<Setting> {
        let at = Self::table(version).iter().position(|(n, _)| *n == name)?;
        Some(Setting { version, at })
    }

    /// The files' names.
    pub fn names(version: Version) -> impl Iterator<Item = &'static str> {
        Self::table(version).iter().map(|(n, _)| *n)
    }

    fn table(version: Version) -> &'static [(&'static str, i32)] {
        match version {
            Version::V4 => &V4,
            Version::V6 => &V6,
        }
    }
}

#[derive(Clone, Copy)]
struct Values {
    v4: [i32; 33],
    v6: [i32; 49],
    /// Which of IPv4's have been set: a new default changes the others, too.
    set: u64,
}

impl Default for Values {
    fn default() -> Values {
        Values {
            v4: V4.map(|(_, n)| n),
            v6: V6.map(|(_, n)| n),
            set: 0,
        }
    }
}

impl Values {
    fn of(&mut self, s: Setting) -> &mut i32 {
        match s.version {
            Version::V4 => &mut self.v4[s.at],
            Version::V6 => &mut self.v6[s.at],
        }
    }

    fn get(&self, s: Setting) -> i32 {
        match s.version {
            Version::V4 => self.v4[s.at],
            Version::V6 => self.v6[s.at],
        }
    }

    /// Those that a new device begins with.
    fn for_device(mut self, index: i32) -> Values {
        self.set = 0;
        if index == LO_INDEX {
            *self.of(Setting::DISABLE_POLICY) = 1;
            *self.of(Setting::DISABLE_XFRM) = 1;
            *self.of(Setting::ACCEPT_DAD) = -1;
            *self.of(Setting::USE_TEMPORARY) = -1;
        }
        self
    }
}

/// The settings of a namespace. Its lock comes after that of the devices.
#[derive(Default)]
pub(crate) struct Confs {
    all: Values,
    default: Values,
    devices: BTreeMap<i32, Values>,
}

impl Confs {
    /// Has settings for these devices and no others.
    fn follow(&mut self, t: &Table) {
        self.devices.retain(|i, _| t.entries.contains_key(i));
        for index in t.entries.keys() {
            let new = || self.default.for_device(*index);
            self.devices.entry(*index).or_insert_with(new);
        }
    }

    fn of(&mut self, of: ConfOf) -> Option<&mut Values> {
        match of {
            ConfOf::All => Some(&mut self.all),
            ConfOf::Default => Some(&mut self.default),
            ConfOf::Device(i) => self.devices.get_mut(&i),
        }
    }

    fn device(&self, index: i32) -> Values {
        self.devices.get(&index).copied().unwrap_or_default()
    }

    /// Whether any device sends IPv4's packets on.
    pub fn forwards(&self) -> bool {
        let mut all = self.devices.values();
        all.any(|v| v.get(Setting::FORWARDING) != 0)
    }

    /// Whether IPv6's are sent on.
    pub fn forwards_v6(&self) -> bool {
        self.all.get(Setting::FORWARDING_V6) != 0
    }

    /// Whether a device has no IPv6.
    pub fn lacks_v6(&self, index: i32) -> bool {
        self.device(index).get(Setting::DISABLE_V6) != 0
    }

    /// Whether the next address of a network takes the place of the first one.
    pub fn promotes(&self, index: i32) -> bool {
        let own = self.device(index);
        let on = |v: &Values| v.get(Setting::PROMOTE_SECONDARIES) != 0;
        on(&self.all) || on(&own)
    }

    /// What the stack is told of a device.
    pub fn conf(&self, index: i32) -> Conf {
        let own = self.device(index);
        let most = |s: Setting| own.get(s).max(self.all.get(s));
        let any = |s: Setting| own.get(s) != 0 || self.all.get(s) != 0;
        Conf {
            keeps: own.get(Setting::FORWARDING) == 0,
            reverse_path: match most(Setting::REVERSE_PATH) {
                1 => ReversePath::Strict,
                2 => ReversePath::Loose,
                _ => ReversePath::Off,
            },
            takes_loopback: any(Setting::ROUTE_LOCALNET),
            takes_own: any(Setting::ACCEPT_LOCAL),
            arp_ignore: most(Setting::ARP_IGNORE).clamp(0, 8) as u8,
        }
    }

    /// One is set, with what follows for others; the devices that have it changed.
    fn set(&mut self, t: &Table, of: ConfOf, s: Setting, value: i32) -> Result<Vec<i32>> {
        let v = self.of(of).ok_or(ENOENT)?;
        *v.of(s) = value;
        // (Of IPv6's nobody asks.)
        if s.version == Version::V4 {
            v.set |= 1 << s.at;
        }
        let for_each = [
            Setting::FORWARDING,
            Setting::FORWARDING_V6,
            Setting::DISABLE_V6,
        ];
        let mut changed = Vec::new();
        match of {
            ConfOf::Device(i) => changed.push(i),
            ConfOf::All if for_each.contains(&s) => {
                *self.default.of(s) = value;
                for (i, v) in &mut self.devices {
                    *v.of(s) = value;
                    changed.push(*i);
                }
            }
            // Who has addresses has settings of its own (`ipv4_devconf_setall`).
            ConfOf::Default if s.version == Version::V4 && s != Setting::FORWARDING => {
                let has_own = |i: &i32| {
                    let e = t.entries.get(i);
                    e.is_some_and(|e| e.addresses.iter().any(|(a, _)| a.ip.is_ipv4()))
                };
                for (i, v) in &mut self.devices {
                    if v.set & 1 << s.at == 0 && !has_own(i) {
                        *v.of(s) = value;
                    }
                }
            }
            _ => {}
        }
        Ok(changed)
    }
}

impl NetNamespace {
    /// A setting; none of a device that is not there.
    #[must_use]
    pub fn conf(&self, of: ConfOf, s: Setting) -> Option<i32> {
        let t = self.table.lock();
        if let (ConfOf::Device(i), Setting::MTU_V6) = (of, s) {
            let e = t.entries.get(&i)?;
            return Some(e.mtu as i32);
        }
        let mut confs = self.confs.lock();
        confs.follow(&t);
        confs.of(of).map(|v| *v.of(s))
    }

    /// Sets it, from now on.
    ///
    /// # Errors
    ///
    /// `ENOENT`: there is no such device. `EINVAL`: a device's MTU is its own.
    pub fn set_conf(self: &Arc<Self>, of: ConfOf, s: Setting, value: i32) -> Result<()> {
        if s == Setting::MTU_V6 && matches!(of, ConfOf::Device(_)) {
            return Err(EINVAL);
        }
        let mut t = self.table.lock();
        let mut confs = self.confs.lock();
        confs.follow(&t);
        let changed = confs.set(&t, of, s, value)?;
        drop(confs);
        let mut news = Vec::new();
        if s == Setting::DISABLE_V6 {
            self.follow_v6(&mut t, &changed, value, &mut news);
        }
        self.apply(&t);
        drop(t);
        self.tell(&news);
        Ok(())
    }

    /// These devices have IPv6 from now on, or have none (`addrconf_ifdown`, `addrconf_notify`).
    fn follow_v6(&self, t: &mut Table, devices: &[i32], disabled: i32, news: &mut Vec<News>) {
        for i in devices {
            if disabled != 0 {
                forget_v6(t, *i, news);
            } else {
                gains_v6(t, *i, news);
            }
            if *i == LO_INDEX {
                self.lacks_loopback_v6
                    .store(disabled != 0, Ordering::Relaxed);
            }
        }
    }

    /// The settings for these devices.
    pub(super) fn confs_for(&self, t: &Table) -> parking_lot::MutexGuard<'_, Confs> {
        let mut confs = self.confs.lock();
        confs.follow(t);
        confs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A setting of IPv6 at the same place says nothing of IPv4's.
    #[test]
    fn versions_are_apart() {
        let v4 = Setting::ROUTE_LOCALNET;
        let v6 = Setting {
            version: Version::V6,
            ..v4
        };
        let mut c = Confs::default();
        c.devices.insert(7, Values::default());
        let t = Table::default();
        c.set(&t, ConfOf::Device(7), v6, 1).unwrap();
        c.set(&t, ConfOf::Default, v4, 5).unwrap();
        assert_eq!(c.device(7).get(v4), 5);
        c.set(&t, ConfOf::Device(7), v4, 6).unwrap();
        c.set(&t, ConfOf::Default, v4, 8).unwrap();
        assert_eq!(c.device(7).get(v4), 6);
    }
}
