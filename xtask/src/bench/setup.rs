//! What is built, found and installed before anything is measured.

use super::command::{Stop, output, run};
use super::experiments::Experiment;
use super::{Args, Plan, Result, peers, profile};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The modules whose imports are measured; `bench/programs/imports.py` has the same list.
const MODULES: &[&str] = &[
    "django",
    "flask",
    "jinja2",
    "matplotlib",
    "numpy",
    "pip",
    "requests",
    "setuptools",
    "werkzeug",
];
/// Where Python and its modules are the same for all: Debian's.
const PYTHON: &str = "/usr/bin/python3";
const PROGRAMS: &[&str] = &[
    "calls",
    "contention",
    "download",
    "files",
    "mallocs",
    "memory",
    "mmaps",
    "native",
    "nothing",
    "policy",
    "spawn",
    "swap",
    "switches",
    "uring",
    "wire",
];

/// What goes into the root file system.
#[derive(Serialize, Deserialize)]
pub struct Material {
    /// Has `bin` and `apps`.
    pub dir: PathBuf,
    pub site: Option<PathBuf>,
    pub tree: Option<PathBuf>,
    /// How often each module's import calls mmap, natively.
    pub mmaps: Vec<(String, usize)>,
}

/// Installs packages, if it may.
pub struct Installer {
    pub may: bool,
}

impl Installer {
    /// A program in PATH or at a path, from the package if it is missing.
    pub fn program(&self, program: &str, package: &str, stop: &Stop) -> Result<PathBuf> {
        if let Some(p) = which(program) {
            return Ok(p);
        }
        if self.may && which("apt-get").is_some() {
            eprintln!("bench: installing {package}");
            let install = || {
                let mut c = Command::new("apt-get");
                c.args(["install", "-q", "-y", "--no-install-recommends", package]);
                // In runlevel 1 a package's service is not started.
                c.env("DEBIAN_FRONTEND", "noninteractive")
                    .env("RUNLEVEL", "1");
                run(&mut c, Duration::from_secs(900), stop)?.ok("apt-get")
            };
            if install().is_err() {
                output("apt-get", &["update", "-q"], stop)?;
                install()?;
            }
        }
        which(program).ok_or_else(|| format!("{program} is not installed"))
    }
}

/// Go's own archive unpacks to a place that is in few people's PATH.
const ALSO: &[&str] = &["/usr/local/go/bin", "/usr/sbin", "/sbin"];

pub fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(ALSO.iter().map(PathBuf::from))
        .map(|d| d.join(program))
        .find(|p| p.exists())
}

/// What is kept from run to run.
pub fn cache() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|h| Path::new(&h).join(".cache")))
        .ok_or("neither HOME nor XDG_CACHE_HOME is set")?;
    let dir = base.join("cloister-bench");
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(dir)
}

pub fn plan(
    args: &Args,
    chosen: &[&'static Experiment],
    scratch: &Path,
    results: &Path,
    stop: &Stop,
) -> Result<Plan> {
    let installer = Installer {
        may: !args.no_install && !args.smoke,
    };
    // Other users' processes, in the sandboxes, look at it.
    output("chmod", &["755", &scratch.to_string_lossy()], stop)?;
    let mut material = Material {
        dir: scratch.join("material"),
        site: None,
        tree: None,
        mmaps: Vec::new(),
    };
    programs(&material.dir, stop)?;
    let cloister = scratch.join("cloister");
    std::fs::copy(build(args)?, &cloister).map_err(|e| format!("cloister: {e}"))?;
    let native = material.dir.join("bin/native");
    let mut all = Vec::new();
    for name in args.peers()? {
        let peer = peers::find(&name, &cloister, &native, &installer, stop)?;
        if let Some(why) = &peer.missing {
            eprintln!("bench: {name} is left out: {why}");
        }
        all.push(peer);
    }
    let mut left_out = Vec::new();
    for e in chosen {
        let missing = e
            .needs
            .iter()
            .find_map(|(p, package)| installer.program(p, package, stop).err());
        let more = match e.name {
            n if n.starts_with("imports") => material.add_site(&installer, scratch, stop),
            "app-git" => material.add_tree(args.smoke, stop),
            _ => Ok(()),
        };
        if let Some(why) = missing.or(more.err()) {
            eprintln!("bench: {} is left out: {why}", e.name);
            left_out.push((e.name.to_owned(), why));
        }
    }
    if stop.is_set() {
        return Err("interrupted".to_owned());
    }
    let profile = profiles(args, &installer, stop).unwrap_or_else(|why| {
        println!("bench: left out: profiles: {why}");
        left_out.push(("profiles".to_owned(), why));
        None
    });
    let out = |e: &&&Experiment| !left_out.iter().any(|(n, _)| n == e.name);
    Ok(Plan {
        peers: all,
        experiments: chosen
            .iter()
            .filter(out)
            .map(|e| e.name.to_owned())
            .collect(),
        left_out: left_out.clone(),
        runs: if args.smoke { 1 } else { args.runs },
        long_runs: if args.smoke {
            1
        } else {
            args.long_runs.unwrap_or(args.runs.min(3))
        },
        budget_ms: if args.smoke { 1 } else { args.budget },
        smoke: args.smoke,
        profile,
        scratch: scratch.to_owned(),
        material,
        results: results.to_owned(),
    })
}

/// What is to be profiled, or why it cannot be.
fn profiles(args: &Args, installer: &Installer, stop: &Stop) -> Result<Option<profile::Which>> {
    let smoke = args.smoke.then_some(profile::Which::Missed);
    let Some(which) = args.profile.or(smoke) else {
        return Ok(None);
    };
    if !args.smoke {
        installer.program("perf", "linux-perf", stop)?;
    }
    profile::usable(stop)?;
    Ok(Some(which))
}

/// The place of this source.
fn source() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The C programs, static: the same code in every sandbox; and the scripts.
fn programs(to: &Path, stop: &Stop) -> Result<()> {
    let from = source().join("bench");
    let bin = to.join("bin");
    std::fs::create_dir_all(&bin).map_err(|e| e.to_string())?;
    for name in PROGRAMS {
        let c = from.join("programs").join(format!("{name}.c"));
        let to = bin.join(name);
        let (c, to) = (c.to_string_lossy(), to.to_string_lossy());
        output("cc", &["-O2", "-static", "-pthread", "-o", &to, &c], stop)?;
    }
    std::fs::copy(from.join("programs/imports.py"), bin.join("imports.py"))
        .map_err(|e| e.to_string())?;
    let (apps, to) = (from.join("apps"), to.join("apps"));
    output(
        "cp",
        &["-r", &apps.to_string_lossy(), &to.to_string_lossy()],
        stop,
    )?;
    Ok(())
}

/// The command: as given, or built from this source.
fn build(args: &Args) -> Result<PathBuf> {
    if let Some(p) = args
        .cloister
        .clone()
        .or_else(|| std::env::var_os("CLOISTER").map(PathBuf::from))
    {
        return Ok(p);
    }
    eprintln!("bench: building cloister");
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let told = Command::new(cargo)
        .args([
            "build",
            "--release",
            "-p",
            "cli",
            "--message-format=json-render-diagnostics",
        ])
        .current_dir(source())
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if !told.status.success() {
        return Err("cloister does not build".to_owned());
    }
    let text = String::from_utf8_lossy(&told.stdout);
    text.lines()
        .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok())
        .filter(|v| v["target"]["name"] == "cloister")
        .find_map(|v| v["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| "cargo does not say where the command is".to_owned())
}

impl Material {
    /// The Python modules, and how often each maps memory.
    fn add_site(&mut self, installer: &Installer, scratch: &Path, stop: &Stop) -> Result<()> {
        if self.site.is_some() {
            return Ok(());
        }
        let site = cache()?.join("site");
        if !site.join("complete").exists() {
            if !installer.may {
                return Err("the Python modules are not installed yet".to_owned());
            }
            installer
                .program("/usr/share/python-wheels", "python3-pip", stop)
                .or_else(|_| installer.program("pip3", "python3-pip", stop))?;
            eprintln!("bench: installing the Python modules");
            let target = site.to_string_lossy().into_owned();
            let mut args = vec![
                "-m",
                "pip",
                "install",
                "-q",
                "--no-warn-script-location",
                "--upgrade",
                "--target",
                &target,
            ];
            args.extend(MODULES);
            output(PYTHON, &args, stop)?;
            trim(&site)?;
            output(PYTHON, &["-m", "compileall", "-q", &target], stop).or_else(|e| {
                if stop.is_set() {
                    Err(e)
                } else {
                    Ok(String::new())
                }
            })?;
            std::fs::write(site.join("complete"), "").map_err(|e| e.to_string())?;
        }
        // (A quick check does not count.)
        if installer.may && installer.program("strace", "strace", stop).is_ok() {
            let log = scratch.join("strace");
            for m in MODULES {
                let mut c = Command::new("strace");
                c.args(["-f", "-qq", "-e", "trace=mmap", "-o"]).arg(&log);
                c.args([PYTHON, "-S", "-B", "-c"])
                    .arg(format!("import {m}"))
                    .env("PYTHONPATH", &site);
                run(&mut c, Duration::from_secs(60), stop)?;
                let calls = std::fs::read_to_string(&log).unwrap_or_default();
                self.mmaps.push((
                    (*m).to_owned(),
                    calls.lines().filter(|l| l.contains("mmap(")).count(),
                ));
            }
        }
        self.site = Some(site);
        Ok(())
    }

    /// A made repository.
    fn add_tree(&mut self, smoke: bool, stop: &Stop) -> Result<()> {
        let tree = self.dir.join("tree");
        let wrong = |e: std::io::Error| e.to_string();
        for d in 0..if smoke { 2 } else { 100 } {
            let dir = tree.join(format!("part{}/sub{d}", d % 10));
            std::fs::create_dir_all(&dir).map_err(wrong)?;
            for f in 0..50 {
                let text = format!("file {f} of directory {d}\n").repeat(20 + (f * 7 + d) % 90);
                std::fs::write(dir.join(format!("file{f}.txt")), text).map_err(wrong)?;
            }
        }
        let at = tree.to_string_lossy();
        output("git", &["init", "-q", &at], stop)?;
        output("git", &["-C", &at, "add", "."], stop)?;
        let who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
        let mut args = who.to_vec();
        args.extend(["-C", &at, "commit", "-q", "-m", "a tree"]);
        output("git", &args, stop)?;
        self.tree = Some(tree);
        Ok(())
    }
}

/// Takes out what no import reads: thousands of files that would have to be copied.
fn trim(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir).map_err(|e| e.to_string())?.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if !entry.file_type().is_ok_and(|t| t.is_dir()) {
            continue;
        }
        let within = path
            .components()
            .filter(|c| c.as_os_str() == "django")
            .count()
            > 0;
        if name == "tests" || (within && (name == "locale" || name == "static")) {
            std::fs::remove_dir_all(&path).map_err(|e| e.to_string())?;
        } else {
            trim(&path)?;
        }
    }
    Ok(())
}
