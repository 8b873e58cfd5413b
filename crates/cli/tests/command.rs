//! `cloister do` as a person uses it: exit statuses, signals, streams, and the end of its
//! processes.
//!
//! What programs see in the sandbox is tested elsewhere; here they are the plainest.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn cloister(args: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_cloister"));
    c.args(args).current_dir("/").stdin(Stdio::null());
    c
}

fn output(args: &[&str]) -> Output {
    cloister(args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A program that has said that it runs, and goes on.
fn waiting() -> Child {
    started("echo ready; exec sleep 100")
}

fn started(script: &str) -> Child {
    // The program inherits what is ignored here, such as SIGHUP under nohup(1): begin with the
    // defaults.
    let mut c = Command::new("env")
        .args([
            "--default-signal",
            env!("CARGO_BIN_EXE_cloister"),
            "do",
            "--",
        ])
        .args(["sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0u8; 6];
    c.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"ready\n");
    c
}

/// The children of a process.
fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    list.split_whitespace()
        .map(|p| p.parse().unwrap())
        .collect()
}

/// All that came from a process.
fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while next < all.len() {
        all.extend(children(all[next]));
        next += 1;
    }
    all
}

/// Whether it still runs. (A zombie whose new parent is slow does not.)
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, s)| !s.starts_with('Z') && !s.starts_with('X'))
}

fn kill(pid: u32, signal: i32) {
    hostcall::process::kill(pid as i32, signal).unwrap();
}

#[test]
fn the_exit_status_is_the_programs() {
    assert_eq!(output(&["do", "--", "true"]).status.code(), Some(0));
    assert_eq!(output(&["do", "--", "false"]).status.code(), Some(1));
    assert_eq!(
        output(&["do", "sh", "-c", "exit 77"]).status.code(),
        Some(77)
    );
    let o = output(&["do", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(o.status.signal(), Some(libc::SIGTERM));
    let o = output(&["do", "--", "sh", "-c", "kill -SEGV $$"]);
    assert_eq!(o.status.signal(), Some(libc::SIGSEGV));
    assert!(!o.status.core_dumped());
}

#[test]
fn mistakes_are_told() {
    for (args, want) in [
        (&["do", "--cwd", "here", "true"][..], "not an absolute path"),
        (&["do", "--cwd", "/no/such/place", "true"], "/no/such/place"),
        (
            &["do", "--writable", "/no/such/place", "true"],
            "/no/such/place",
        ),
        (&["do", "--user", "me", "true"], "write numbers"),
        (&["do"], "PROGRAM"),
        (&["do", "--writeable", ".", "true"], "--writable"),
        (&["do", "--memory", "1", "true"], "512M"),
        (&["do", "-p", "80:80", "true"], "'-p'"),
        (&["do", "--strace=nosuch", "true"], "nosuch"),
        (&["do", "--strace=%fiel", "true"], "%file"),
        (&["undo"], "undo"),
        (
            &["run", "--overlay", "none", "x"],
            "--overlay comes before the command",
        ),
        (&["update", "--memory", "5x", "x"], "50M"),
    ] {
        let o = output(args);
        assert_eq!(o.status.code(), Some(125), "{args:?}");
        assert!(
            text(&o.stderr).contains(want),
            "{args:?}: {}",
            text(&o.stderr)
        );
        assert_eq!(o.stdout, b"", "{args:?}");
    }
}

#[test]
fn a_program_that_cannot_run_is_told_as_shells_do() {
    for (program, want, status) in [
        ("/no/such/program", "no such file or directory", 127),
        ("no-such-program-in-path", "not found in $PATH", 127),
        ("/etc/passwd", "permission denied", 126),
        ("/etc", "", 126),
    ] {
        let o = output(&["do", "--", program]);
        assert_eq!(o.status.code(), Some(status), "{program}");
        assert!(
            text(&o.stderr).contains(want),
            "{program}: {}",
            text(&o.stderr)
        );
        assert_eq!(o.stdout, b"", "{program}");
    }
}

#[test]
fn what_may_have_been_meant_is_told() {
    let script = tempfile();
    let o = output(&["do", "--", &script]);
    assert_eq!(o.status.code(), Some(127));
    let want = format!("--volume {script}:{script}");
    assert!(text(&o.stderr).contains(&want), "{}", text(&o.stderr));
    std::fs::remove_file(&script).unwrap();
    let o = output(&["do", "-v", "/etc:/x", "ls", "/x"]);
    assert_eq!(o.status.code(), Some(127));
    let want = "--volume /etc:/x";
    assert!(text(&o.stderr).contains(want), "{}", text(&o.stderr));
}

/// An empty file in /tmp.
fn tempfile() -> String {
    let path = format!("/tmp/cloister-test-{}", std::process::id());
    std::fs::File::create_new(&path).unwrap();
    path
}

#[test]
fn too_little_address_space_is_told() {
    let me = env!("CARGO_BIN_EXE_cloister");
    let script = format!("ulimit -v 8000000; {me} do -- sh -c 'ulimit -v'");
    let o = Command::new("sh").args(["-c", &script]).output().unwrap();
    // (With CAP_SYS_RESOURCE the limit is raised for the sandbox; the program keeps its own.)
    match o.status.code() {
        Some(0) => assert_eq!(text(&o.stdout), "8000000\n"),
        other => {
            assert_eq!(other, Some(125));
            let want = "limited to 7812 MiB (ulimit -v)";
            assert!(text(&o.stderr).contains(want), "{}", text(&o.stderr));
        }
    }
}

#[test]
fn ignored_and_blocked_signals_are_kept() {
    // The caller is a shell: it ignores them, and execve keeps that. (The tests' own caller may
    // ignore some, too.)
    let me = env!("CARGO_BIN_EXE_cloister");
    let script = format!(
        "trap '' HUP PIPE USR1; {me} do -- sed -n 's/^SigIgn:.*000\\(....\\)$/\\1/p' /proc/self/status; \
         trap - PIPE; {me} do -- sed -n 's/^SigIgn:.*000\\(....\\)$/\\1/p' /proc/self/status; \
         env --block-signal=TERM {me} do -- sed -n 's/^SigBlk:.*000\\(....\\)$/\\1/p' /proc/self/status"
    );
    let o = Command::new("env")
        .args(["--default-signal", "sh", "-c", &script])
        .output()
        .unwrap();
    assert_eq!(text(&o.stdout), "1201\n0201\n4000\n", "{}", text(&o.stderr));
}

#[test]
fn streams_are_passed() {
    let mut c = cloister(&["do", "--", "sh", "-c", "cat; echo err >&2"]);
    let mut c = c
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    c.stdin.take().unwrap().write_all(b"through\n").unwrap();
    let o = c.wait_with_output().unwrap();
    assert_eq!((text(&o.stdout), text(&o.stderr)), ("through\n", "err\n"));
}

#[test]
fn the_caller_is_passed() {
    let script = "echo $A $B $C; umask; ulimit -n; pwd";
    let mut c = cloister(&["do", "--env", "B=2", "-e", "C=x y", "--", "sh", "-c"]);
    c.arg(script)
        .env("A", "1")
        .env("B", "old")
        .current_dir("/usr");
    let o = c.output().unwrap();
    let native = Command::new("sh")
        .args(["-c", "umask; ulimit -n"])
        .output()
        .unwrap();
    let want = format!("1 2 x y\n{}/usr\n", text(&native.stdout));
    assert_eq!(text(&o.stdout), want, "{}", text(&o.stderr));
    let o = output(&[
        "do",
        "--user",
        "1234:99",
        "--cwd",
        "/etc",
        "--",
        "sh",
        "-c",
        "id -u; id -g; pwd",
    ]);
    assert_eq!(text(&o.stdout), "1234\n99\n/etc\n", "{}", text(&o.stderr));
    let o = output(&["do", "--hostname", "box", "--", "uname", "-n"]);
    assert_eq!(text(&o.stdout), "box\n");
}

#[test]
fn a_terminal_is_joined() {
    // script(1) gives its command a terminal.
    let exe = env!("CARGO_BIN_EXE_cloister");
    let run = |what: &str| {
        let line = format!("stty rows 33 cols 44; {what}; stty -a | grep -o '[-]*icanon'");
        let o = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        // The end of script's input is typed in, too, and may be shown.
        text(&o.stdout).replace("\r\n", "\n").replace("^@", "")
    };
    let size = format!("{exe} do -- sh -c 'stty size; tty'");
    assert_eq!(run(&size), "33 44\n/dev/pts/0\nicanon\n");
    let errors = format!("{exe} do -- sh -c 'tty >&2; test -t 2 || echo file' 2>/dev/null");
    assert_eq!(run(&errors), "file\nicanon\n");
    // Put back, however it ends.
    let broken = format!("{exe} do -- sh -c 'kill -9 $$' 2>/dev/null");
    assert!(run(&broken).ends_with("\nicanon\n") || run(&broken) == "icanon\n");
    let broken = format!("{exe} do -- /no/such/program");
    assert!(
        run(&broken).ends_with("directory\nicanon\n"),
        "{}",
        run(&broken)
    );
    // Output in a pipe, as it is.
    let piped = format!("{exe} do -- sh -c 'test -t 1 || echo pipe' | cat");
    assert_eq!(run(&piped), "pipe\nicanon\n");
}

#[test]
fn it_stops_and_goes_on() {
    let state = |pid: u32| {
        let s = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        s.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    };
    let wait_for = |pid: u32, stopped: bool| {
        let at = Instant::now();
        while (state(pid) == 'T') != stopped {
            assert!(at.elapsed() < Duration::from_secs(5));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let mut c = waiting();
    kill(c.id(), libc::SIGTSTP);
    wait_for(c.id(), true);
    kill(c.id(), libc::SIGCONT);
    wait_for(c.id(), false);
    kill(c.id(), libc::SIGTERM);
    assert_eq!(c.wait().unwrap().signal(), Some(libc::SIGTERM));
}

#[test]
fn only_named_places_are_written() {
    let dir = std::env::temp_dir().join(format!("cloister-test-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("open")).unwrap();
    std::fs::write(dir.join("open/file"), "before\n").unwrap();
    let d = dir.to_str().unwrap();
    let open = format!("{d}/open");
    let script = "echo in > $D/open/file; echo new > $D/open/new; echo gone > /etc/cloister-test; \
                  cat $D/open/file /etc/cloister-test";
    let env = format!("D={d}");
    let o = output(&["do", "-w", &open, "-e", &env, "--", "sh", "-c", script]);
    assert_eq!(text(&o.stdout), "in\ngone\n", "{}", text(&o.stderr));
    assert_eq!(
        std::fs::read_to_string(dir.join("open/file")).unwrap(),
        "in\n"
    );
    assert_eq!(
        std::fs::read_to_string(dir.join("open/new")).unwrap(),
        "new\n"
    );
    assert!(!std::fs::exists("/etc/cloister-test").unwrap());
    let volume = format!("{open}:/mnt/data");
    let script = "cat /mnt/data/file; echo no > /mnt/data/file || echo refused";
    let o = output(&["do", "--volume", &volume, "--", "sh", "-c", script]);
    assert_eq!(text(&o.stdout), "in\nrefused\n", "{}", text(&o.stderr));
    let volume = format!("{open}:/mnt/data:rw");
    output(&[
        "do",
        "--volume",
        &volume,
        "--",
        "sh",
        "-c",
        "echo yes > /mnt/data/file",
    ]);
    assert_eq!(
        std::fs::read_to_string(dir.join("open/file")).unwrap(),
        "yes\n"
    );
    std::fs::remove_dir_all(&dir).unwrap();
}

/// The sandbox has a /tmp of its own, but a caller that works beneath it keeps its files.
#[test]
fn the_current_directory_beneath_tmp_is_there() {
    let dir = std::path::PathBuf::from(format!("/tmp/cloister-here-{}", std::process::id()));
    let here = dir.join("work");
    std::fs::create_dir_all(&here).unwrap();
    std::fs::write(here.join("given"), "given\n").unwrap();
    std::fs::write(dir.join("beside"), "").unwrap();
    let o = cloister(&[
        "do",
        "--",
        "sh",
        "-c",
        "pwd; cat given; echo gone > new; cat new; ls ..",
    ])
    .current_dir(&here)
    .output()
    .unwrap();
    let seen = format!("{}\ngiven\ngone\nwork\n", here.display());
    assert_eq!(text(&o.stdout), seen, "{}", text(&o.stderr));
    assert!(!here.join("new").exists());
    // /tmp itself.
    let script = format!(
        "cat {}; echo gone > new; cat new",
        here.join("given").display()
    );
    let o = cloister(&["do", "--", "sh", "-c", &script])
        .current_dir("/tmp")
        .output()
        .unwrap();
    assert_eq!(text(&o.stdout), "given\ngone\n", "{}", text(&o.stderr));
    assert!(!std::path::Path::new("/tmp/new").exists());
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn signals_reach_the_program() {
    for signal in [
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGPROF,
        libc::SIGPWR,
        libc::SIGABRT,
        // A real-time one.
        40,
    ] {
        let mut c = waiting();
        kill(c.id(), signal);
        assert_eq!(c.wait().unwrap().signal(), Some(signal));
    }
}

#[test]
fn whoever_is_killed_takes_all_with_it() {
    // The starter, its two children, and what the Sentry started: the zygote comes first.
    for victim in ["starter", "first child", "second child", "zygote"] {
        let mut c = waiting();
        let started = family(c.id());
        let pid = match victim {
            "starter" => c.id(),
            "first child" => children(c.id())[0],
            "second child" => children(c.id())[1],
            _ => children(c.id())
                .into_iter()
                .flat_map(children)
                .min()
                .unwrap(),
        };
        kill(pid, libc::SIGKILL);
        let at = Instant::now();
        let status = c.wait().unwrap();
        if victim == "starter" {
            assert_eq!(status.signal(), Some(libc::SIGKILL));
        } else {
            // The zygote's end is the Sentry's to tell.
            let want = if victim == "zygote" { 70 } else { 71 };
            assert_eq!(status.code(), Some(want), "{victim}");
            let mut told = String::new();
            c.stderr.take().unwrap().read_to_string(&mut told).unwrap();
            assert_eq!(told.lines().count(), 1, "{victim}: {told}");
            assert!(told.starts_with("cloister: "), "{victim}: {told}");
        }
        while started.iter().any(|p| runs(*p)) {
            assert!(at.elapsed() < Duration::from_secs(1), "{victim}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What the host ends, as when memory is used up, has ended as a process that the kernel killed.
/// The person is told.
#[test]
fn a_program_that_the_host_kills() {
    let mut c = started("echo ready; while :; do :; done");
    let grandchildren = || children(c.id()).into_iter().flat_map(children);
    // The zygote is the first, the program's process the second.
    let program = loop {
        let mut all: Vec<u32> = grandchildren().collect();
        all.sort_unstable();
        if let [_, .., last] = all[..] {
            break last;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    kill(program, libc::SIGKILL);
    assert_eq!(c.wait().unwrap().signal(), Some(libc::SIGKILL));
    let mut told = String::new();
    c.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains(" (sh) was ended on the host"), "{told}");
}

#[test]
fn an_option_of_others_before_a_command() {
    let o = output(&["--lanes=none", "do", "true"]);
    assert_eq!(o.status.code(), Some(125));
    let told = text(&o.stderr);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains("--lanes"), "{told}");
}

#[test]
fn the_tables_are_printed() {
    let o = output(&["debug", "host-calls"]);
    assert!(text(&o.stdout).contains("\nfutex "));
    let o = output(&["debug", "host-calls", "--json"]);
    assert!(
        text(&o.stdout).starts_with("[\n  {\"name\": \"read\", \"number\": 0, \"sentry\": true")
    );
    let o = output(&["debug", "syscalls", "--markdown"]);
    assert!(text(&o.stdout).contains("| 0 | `read` |"));
}

/// What a shell's script leaves in a file that is its standard output; `$C` runs a program in a
/// sandbox.
fn written_by(name: &str, script: &str) -> String {
    let path = std::env::temp_dir().join(format!("cloister-{name}.{}", std::process::id()));
    let file = std::fs::File::create(&path).unwrap();
    let status = Command::new("sh")
        .args(["-c", script])
        .env("C", format!("{} do --", env!("CARGO_BIN_EXE_cloister")))
        .current_dir("/")
        .stdout(file)
        .status()
        .unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(status.success(), "{script}: {text}");
    text
}

#[test]
fn a_file_as_output_keeps_what_others_write() {
    let lines = "$C sh -c 'for i in $(seq 200); do echo line $i; done' & ";
    let text = written_by("two", &format!("{lines}{lines}wait"));
    assert_eq!(text.lines().count(), 400, "{text}");
    // The other writes while the program waits for it.
    let dir = std::env::temp_dir().join(format!("cloister-fifos.{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    let (to, from) = (dir.join("to"), dir.join("from"));
    let text = written_by(
        "turns",
        &format!(
            "mkfifo {to} {from}; (read x < {from}; echo XXXX; echo go > {to}) & \
             $C sh -c 'echo a; echo done >&2; read x; echo b' 2> {from} <> {to}; wait; echo end",
            to = to.display(),
            from = from.display(),
        ),
    );
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(text, "a\nXXXX\nb\nend\n");
}

#[test]
fn a_file_as_input_is_read_once() {
    let script = "f=$(mktemp); seq 5 > $f; (read x; echo $x; $C head -c 2; read x; echo $x; \
                  $C sh -c 'read x; echo $x; grep pos: /proc/self/fdinfo/0'; read x; echo $x) < $f; rm $f";
    assert_eq!(written_by("input", script), "1\n2\n3\n4\npos:\t8\n5\n");
}

#[test]
fn seeks_and_appends_move_the_callers_position() {
    let program = r#"
import fcntl, os
os.write(1, b"0123456789")
os.pwrite(1, b"AB", 2)
os.lseek(1, -4, os.SEEK_END)
os.write(os.dup(1), b"wxyz")
old = fcntl.fcntl(1, fcntl.F_GETFL)
os.lseek(1, 0, 0)
fcntl.fcntl(1, fcntl.F_SETFL, old | os.O_APPEND)
os.write(1, b"END\n")
assert os.lseek(1, 0, 1) == 14
fcntl.fcntl(1, fcntl.F_SETFL, old)
os.lseek(1, 10, os.SEEK_DATA)
os.lseek(1, -2, os.SEEK_CUR)
assert open("/proc/self/fdinfo/1").readline() == "pos:\t8\n"
"#;
    let script = format!("$C python3 -c '{program}' && printf 12");
    assert_eq!(written_by("seeks", &script), "01AB45wx12END\n");
}
