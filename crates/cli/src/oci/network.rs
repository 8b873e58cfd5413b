//! `cloister network`.

use super::show::{pretty_and_plain, print, table_text};
use clap::{Args, Subcommand};
use net::report::{Device, Mode, Policy, Protocol, Report, Route, Socket};
use oci::Runtime;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub enum NetworkCommand {
    /// Shows a container's sockets, devices and routes, and its rules with what they counted
    Show(ShowArgs),
    /// Changes the rules of a running container
    Set(SetArgs),
    /// Has a running container follow devices that have come, changed or gone
    Refresh(RefreshArgs),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Devices of a container's network namespace are taken over when it starts. What has changed there
since is found and told the programs inside: devices that have come, with their addresses and
routes, or gone; addresses, routes and permanent neighbours that a device has been given; another
MTU.

Examples:
  ip link set eth1 netns web && cloister network refresh web
  docker network connect back web && cloister --root /run/docker/runtime-runc/moby network refresh \
    $(docker inspect -f '{{.Id}}' web)")]
pub struct RefreshArgs {
    id: String,
}

#[derive(Args, Debug)]
#[command(after_help = "\
The rules that are given take the place of all before; without any, all may leave. Connections that they
do not allow end at once. What a rule is, cloister do --help tells at --allow. A container without devices
of its own (--net=none, --net=host) has no rules.

Examples:
  cloister network set web --allow pypi.org:443,*.pythonhosted.org:443
  cloister network set web --deny 10.0.0.0/8
  cloister network set web")]
pub struct SetArgs {
    /// What may be reached, and nothing else
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    allow: Vec<egress::Rule>,
    /// What may not be reached; goes before --allow
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    deny: Vec<egress::Rule>,
    /// A file with more rules
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    id: String,
}

#[derive(Args, Debug)]
#[command(after_help = "\
What is shown of sockets: the protocol and state, local and peer address, bytes that wait to be read
and to be sent (of a listener: connections that wait, and how many may), segments that were sent
again, the maker's user, and the processes that have it open, all as they are known inside.

Examples:
  cloister network show web
  cloister network show --json web | jq '.sockets[] | select(.retransmits > 0)'")]
pub struct ShowArgs {
    /// As JSON
    #[arg(long)]
    json: bool,
    id: String,
}

pub fn run(rt: &Runtime, command: &NetworkCommand) -> oci::Result<()> {
    match command {
        NetworkCommand::Show(a) => {
            let report = oci::network_report(rt, &a.id)?;
            if a.json {
                print(&pretty_and_plain(&as_json(&report)));
            } else {
                print(plain(&as_text(&report)).trim_end());
            }
        }
        NetworkCommand::Set(a) => {
            let rules = crate::network::rules(&a.allow, &a.deny, a.policy.as_deref())?;
            oci::set_rules(rt, &a.id, rules)?;
        }
        NetworkCommand::Refresh(a) => oci::refresh_network(rt, &a.id)?,
    }
    Ok(())
}

/// What the Sentry tells may be a program's text.
fn plain(text: &str) -> String {
    let is_fine = |c: &char| !c.is_control() || *c == '\n';
    text.chars().filter(is_fine).collect()
}

fn hex(mac: [u8; 6]) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}

fn net((ip, prefix): (IpAddr, u8)) -> String {
    format!("{ip}/{prefix}")
}

fn end((ip, port): (IpAddr, u16)) -> String {
    std::net::SocketAddr::new(ip, port).to_string()
}

fn device_name(r: &Report, index: i32) -> String {
    let found = r.devices.iter().find(|d| d.index == index);
    found.map_or_else(|| index.to_string(), |d| d.name.clone())
}

/// The word of `--net`.
fn mode(m: Mode) -> &'static str {
    match m {
        Mode::None => "none",
        Mode::Sandbox => "sandbox",
        Mode::User => "user",
        Mode::Host => "host",
    }
}

fn protocol(p: Protocol) -> &'static str {
    match p {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Raw => "raw",
    }
}

fn as_json(r: &Report) -> Value {
    let devices = r.devices.iter().map(|d| {
        json!({
            "name": d.name, "index": d.index, "up": d.up, "mtu": d.mtu, "mac": hex(d.mac),
            "addresses": d.addresses.iter().map(|a| net(*a)).collect::<Vec<_>>(),
            "counters": d.counters,
        })
    });
    let routes = r.routes.iter().map(|x| {
        json!({
            "to": net(x.to), "via": x.via, "device": device_name(r, x.device), "source": x.source,
            "metric": x.metric, "mtu": x.mtu,
        })
    });
    let neighbours = r.neighbours.iter().map(|n| {
        let device = device_name(r, n.device as i32);
        json!({"device": device, "ip": n.ip, "mac": n.mac.map(hex)})
    });
    let sockets = r.sockets.iter().map(|s| {
        json!({
            "protocol": s.protocol, "state": s.state, "local": end(s.local), "peer": s.peer.map(end),
            "receiveQueue": s.receive_queue, "sendQueue": s.send_queue,
            "retransmits": s.retransmits, "uid": s.uid, "inode": s.inode, "owners": s.owners,
        })
    });
    json!({
        "mode": r.mode,
        "devices": devices.collect::<Vec<_>>(),
        "routes": routes.collect::<Vec<_>>(),
        "neighbours": neighbours.collect::<Vec<_>>(),
        "sockets": sockets.collect::<Vec<_>>(),
        "policy": r.policy.as_ref().map(|p| json!({
            "allow": p.rules.allow, "deny": p.rules.deny, "resolvers": p.rules.resolvers,
            "counts": p.counts,
        })),
        "socketsLeftOut": r.sockets_left_out,
        "othersLeftOut": r.others_left_out,
    })
}

fn device_row(d: &Device) -> Vec<String> {
    let count = |f: fn(&netstack::ip::DeviceCounts) -> u64| {
        d.counters
            .as_ref()
            .map_or_else(|| "-".into(), |c| f(c).to_string())
    };
    let addresses: Vec<String> = d.addresses.iter().map(|a| net(*a)).collect();
    vec![
        d.name.clone(),
        if d.up { "up" } else { "down" }.into(),
        d.mtu.to_string(),
        count(|c| c.rx_packets),
        count(|c| c.rx_bytes),
        count(|c| c.rx_errors + c.rx_dropped),
        count(|c| c.tx_packets),
        count(|c| c.tx_bytes),
        count(|c| c.tx_dropped),
        addresses.join(" "),
    ]
}

fn route_row(r: &Report, x: &Route) -> Vec<String> {
    let or_none = |ip: Option<IpAddr>| ip.map_or_else(|| "-".into(), |ip| ip.to_string());
    vec![
        net(x.to),
        or_none(x.via),
        device_name(r, x.device),
        or_none(x.source),
        x.metric.to_string(),
    ]
}

fn socket_row(s: &Socket) -> Vec<String> {
    let mut owners: Vec<String> = s
        .owners
        .iter()
        .map(|o| format!("{}/{}", o.pid, o.command))
        .collect();
    owners.dedup();
    vec![
        protocol(s.protocol).into(),
        s.state.clone(),
        s.receive_queue.to_string(),
        s.send_queue.to_string(),
        end(s.local),
        s.peer.map_or_else(|| "*".into(), end),
        s.retransmits.map_or_else(|| "-".into(), |n| n.to_string()),
        s.uid.to_string(),
        owners.join(" "),
    ]
}

fn policy_text(p: &Policy) -> String {
    let c = &p.counts;
    let list = |rules: &[egress::Rule]| {
        let all: Vec<String> = rules.iter().map(ToString::to_string).collect();
        all.join(",")
    };
    let mut t = format!(
        "allow: {}\ndeny: {}\n",
        list(&p.rules.allow),
        list(&p.rules.deny)
    );
    t += &format!(
        "names: {} asked, {} refused; peers: {} allowed, {} refused\n",
        c.names_asked, c.names_refused, c.peers_allowed, c.peers_refused
    );
    if !c.by_name.is_empty() {
        let row = |(name, n): (&String, &egress::counts::OfName)| {
            let numbers = [n.asked, n.allowed, n.refused].map(|n| n.to_string());
            [vec![name.clone()], numbers.to_vec()].concat()
        };
        t += &table_text(
            &["NAME", "ASKED", "ALLOWED", "REFUSED"],
            c.by_name.iter().map(row),
        );
    }
    t
}

fn as_text(r: &Report) -> String {
    let mut t = format!("network: {}\n\n", mode(r.mode));
    let head = [
        "DEVICE",
        "STATE",
        "MTU",
        "RX",
        "BYTES",
        "LOST",
        "TX",
        "BYTES",
        "LOST",
        "ADDRESSES",
    ];
    t += &table_text(&head, r.devices.iter().map(device_row));
    if !r.routes.is_empty() {
        t += "\n";
        let head = ["ROUTE", "VIA", "DEVICE", "SOURCE", "METRIC"];
        t += &table_text(&head, r.routes.iter().map(|x| route_row(r, x)));
    }
    t += "\n";
    let head = [
        "SOCKET",
        "STATE",
        "RECV",
        "SEND",
        "LOCAL",
        "PEER",
        "RETRANS",
        "UID",
        "PROCESSES",
    ];
    t += &table_text(&head, r.sockets.iter().map(socket_row));
    if let Some(p) = &r.policy {
        t += "\n";
        t += &policy_text(p);
    }
    if r.sockets_left_out > 0 {
        t += &format!("and {} more sockets\n", r.sockets_left_out);
    }
    if r.others_left_out > 0 {
        let n = r.others_left_out;
        t += &format!("and {n} more devices, routes and neighbours\n");
    }
    t
}
