//! Two programs at the ends of a pair of devices, in network namespaces of their own: one in a
//! container, one outside.

use super::command::{Group, Output, output, run};
use super::peers::{Kind, Net};
use super::results::{Line, lines};
use super::turns::Turn;
use super::{Result, outside};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const OUTSIDE: &str = "10.77.0.1";
const INSIDE: &str = "10.77.0.2";
/// How long a server may take until it is ready.
const PATIENCE: Duration = Duration::from_secs(20);

/// What runs where.
pub struct Ends {
    pub inside: &'static [&'static str],
    pub outside: &'static [&'static str],
    pub tells: End,
    pub way: Way,
}

/// The end that measures, and is told the other's address. The other one serves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Inside,
    Outside,
}

/// How the container reaches the device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// It has the namespace with the device.
    Device,
    /// By a broker in that namespace (`--net=user`).
    Broker,
}

struct Pair {
    outside: Group,
    inside: Group,
}

impl Pair {
    fn new(turn: &Turn) -> Result<Pair> {
        let holder = || {
            let mut c = Command::new("unshare");
            Group::start(c.args(["--net", "sleep", "10000"]))
        };
        let pair = Pair {
            outside: holder()?,
            inside: holder()?,
        };
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let until = Instant::now() + PATIENCE;
        for g in [&pair.outside, &pair.inside] {
            while of(&g.0.id().to_string()) == of("self") {
                if Instant::now() > until {
                    return Err("no network namespace can be made".to_owned());
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        let ip = |g: &Group, words: &str| {
            let net = g.net();
            let words = ["ip"].into_iter().chain(words.split(' '));
            let args: Vec<&str> = [net.as_str()].into_iter().chain(words).collect();
            output("nsenter", &args, turn.stop).map(drop)
        };
        let inner = pair.inside.0.id();
        let made = format!("link add out0 type veth peer name eth0 netns {inner}");
        ip(&pair.outside, &made)?;
        let ends = [
            (&pair.outside, "out0", OUTSIDE),
            (&pair.inside, "eth0", INSIDE),
        ];
        for (g, device, address) in ends {
            ip(g, "link set lo up")?;
            ip(g, &format!("address add {address}/24 dev {device}"))?;
            ip(g, &format!("link set {device} up"))?;
        }
        ip(&pair.inside, &format!("route add default via {OUTSIDE}"))?;
        Ok(pair)
    }
}

impl Group {
    fn net(&self) -> String {
        format!("--net=/proc/{}/ns/net", self.0.id())
    }
}

/// The two commands, and the container's name.
struct Commands {
    inside: Command,
    outside: Command,
    id: String,
}

fn commands(turn: &Turn, pair: &Pair, e: &Ends) -> Result<Commands> {
    let args = |end: End| {
        let (words, peer) = match end {
            End::Inside => (e.inside, OUTSIDE),
            End::Outside => (e.outside, INSIDE),
        };
        let words = words.iter().map(|w| w.replace("ADDRESS", peer));
        words.collect::<Vec<String>>()
    };
    let net = Net::At(pair.inside.0.id());
    let (mut inside, id) = match (e.way, turn.peer.kind) {
        (Way::Broker, Kind::Cloister) => {
            let mut c = Command::new("nsenter");
            c.args([pair.inside.net().as_str(), "--"]);
            c.arg(&turn.peer.program).arg("do").args(&turn.peer.options);
            c.args(["--net=user", "--allow", OUTSIDE, "--"]);
            // It shows this machine's files.
            let at = turn.plan.material.dir.to_string_lossy();
            c.args(args(End::Inside).iter().map(|a| a.replace("/bench", &at)));
            (c, String::new())
        }
        _ => turn.command(&args(End::Inside), net, &[])?,
    };
    let native = turn.plan.material.dir.join("bin/native");
    let mut outside = Command::new("nsenter");
    outside.args([pair.outside.net().as_str(), "--"]);
    outside.arg(native).arg(turn.plan.scratch.join("native"));
    outside.arg("host").args(args(End::Outside));
    for c in [&mut inside, &mut outside] {
        c.envs(turn.place.env.iter().cloned());
    }
    Ok(Commands {
        inside,
        outside,
        id,
    })
}

/// Runs both, and gives what they tell.
pub fn ends(turn: &Turn, e: &Ends) -> Result<Vec<Line>> {
    let pair = Pair::new(turn)?;
    let mut c = commands(turn, &pair, e)?;
    let (serves, tells) = match e.tells {
        End::Inside => (&mut c.outside, &mut c.inside),
        End::Outside => (&mut c.inside, &mut c.outside),
    };
    let told = (|| {
        let server = Server::start(serves, turn)?;
        let told = run(tells, turn.limit, turn.stop)?;
        let told = Output::ok(told, &turn.peer.name)?;
        let mut found = lines(&told);
        if found.is_empty() {
            return Err("the program told nothing".to_owned());
        }
        found.extend(lines(&server.rest().join("\n")));
        Ok(found)
    })();
    if e.way == Way::Device {
        turn.peer.delete(turn.plan, &c.id);
    }
    told
}

/// CPU time that the container's processes spend while 100 connections are open and nothing comes.
pub fn idle(turn: &Turn) -> Result<Vec<Line>> {
    const SERVE: Ends = Ends {
        inside: &["/bench/bin/wire", "serve"],
        outside: &["/bench/bin/wire", "hold", "ADDRESS", "100"],
        tells: End::Outside,
        way: Way::Device,
    };
    let pair = Pair::new(turn)?;
    let before = outside::processes();
    let mut c = commands(turn, &pair, &SERVE)?;
    let told = (|| {
        let _server = Server::start(&mut c.inside, turn)?;
        let ours: BTreeSet<u32> = outside::processes().difference(&before).copied().collect();
        let _client = Server::start(&mut c.outside, turn)?;
        let spent = || ours.iter().map(|&p| outside::cpu_ms(p)).sum::<f64>();
        std::thread::sleep(Duration::from_millis(500));
        let (began, long) = (spent(), if turn.plan.smoke { 1 } else { 60 });
        for _ in 0..long {
            std::thread::sleep(Duration::from_secs(1));
            if turn.stop.is_set() {
                return Err("interrupted".to_owned());
            }
        }
        let name = "CPU of 100 idle connections, 60 s";
        let ms = (spent() - began) * 60.0 / f64::from(long);
        Ok(vec![Line::Value(name.to_owned(), ms, "ms".to_owned())])
    })();
    turn.peer.delete(turn.plan, &c.id);
    told
}

/// A program that says when it is ready.
struct Server {
    group: Group,
    told: Receiver<String>,
}

impl Server {
    fn start(command: &mut Command, turn: &Turn) -> Result<Server> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut group = Group::start(command)?;
        let told = told(&mut group.0)?;
        let until = Instant::now() + PATIENCE;
        while told.recv_timeout(Duration::from_millis(50)).as_deref() != Ok("ready") {
            if turn.stop.is_set()
                || Instant::now() > until
                || group.0.try_wait().is_ok_and(|s| s.is_some())
            {
                let mut why = String::new();
                drop(group.0.stdin.take());
                let err = group.0.stderr.take();
                drop(group);
                if let Some(mut e) = err {
                    let _ = std::io::Read::read_to_string(&mut e, &mut why);
                }
                let last = why.lines().last().unwrap_or("no message").to_owned();
                return Err(format!("the server does not start: {last}"));
            }
        }
        Ok(Server { group, told })
    }

    /// What it has told since it was ready.
    fn rest(self) -> Vec<String> {
        let told: Vec<String> = self.told.try_iter().collect();
        drop(self.group);
        told
    }
}

fn told(child: &mut Child) -> Result<Receiver<String>> {
    let out = child.stdout.take().ok_or("the server has no output")?;
    let (put, told) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(|l| l.ok()) {
            if put.send(line).is_err() {
                break;
            }
        }
    });
    Ok(told)
}

/// The experiments' words.
pub const fn wire(
    inside: &'static [&'static str],
    outside: &'static [&'static str],
    tells: End,
) -> Ends {
    Ends {
        inside,
        outside,
        tells,
        way: Way::Device,
    }
}

/// Whether a peer can take part in this.
pub fn takes_part(kind: Kind, way: Way) -> bool {
    match way {
        Way::Device => !matches!(kind, Kind::Do | Kind::Crun),
        Way::Broker => matches!(kind, Kind::Native | Kind::Cloister),
    }
}
