//! A process's own code can be unmapped while it runs.

/// Pages of files that this process has mapped now (`proc(5)`, statm's third number).
fn mapped() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(2).unwrap().parse().unwrap()
}

#[test]
fn a_program_is_unmapped_and_runs_on() {
    let before = mapped();
    hostcall::mem::unmap_program();
    let after = mapped();
    assert!(
        after + 32 < before,
        "{after} pages of {before} are mapped still"
    );
}
