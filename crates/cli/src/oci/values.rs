//! Values of options: users, sizes and signals.

pub fn user(s: &str) -> Result<(u32, Option<u32>), String> {
    let number = |s: &str| {
        s.parse()
            .map_err(|_| "write numbers, as in 1000 or 1000:1000".to_owned())
    };
    match s.split_once(':') {
        Some((u, g)) => Ok((number(u)?, Some(number(g)?))),
        None => Ok((number(s)?, None)),
    }
}

/// Signals by name.
const SIGNALS: [(&str, i32); 31] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

pub fn signal(s: &str) -> Result<i32, String> {
    if let Ok(n) = s.parse::<i32>() {
        return (0..=64)
            .contains(&n)
            .then_some(n)
            .ok_or_else(|| "signals are 0 to 64".into());
    }
    let upper = s.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some(n) = name
        .strip_prefix("RTMIN+")
        .and_then(|n| n.parse::<i32>().ok())
        && (0..=30).contains(&n)
    {
        return Ok(34 + n);
    }
    SIGNALS
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, n)| *n)
        .ok_or_else(|| format!("{s} is no signal"))
}
