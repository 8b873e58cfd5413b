//! DESIGN.md against the code.

use std::collections::BTreeSet;
use std::path::Path;

/// Its table of crates names those that there are.
#[test]
fn the_table_of_crates_is_complete() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let design = std::fs::read_to_string(root.join("DESIGN.md")).unwrap();
    let row = |l: &str| Some(l.strip_prefix("| `")?.split_once("` |")?.0.to_owned());
    let told: BTreeSet<String> = design.lines().filter_map(row).collect();
    let name = |e: std::io::Result<std::fs::DirEntry>| e.unwrap().file_name().into_string();
    let there: BTreeSet<String> = std::fs::read_dir(root.join("crates"))
        .unwrap()
        .map(|e| name(e).unwrap())
        .collect();
    let missing: Vec<_> = there.difference(&told).collect();
    assert!(missing.is_empty(), "not in DESIGN.md: {missing:?}");
    let gone: Vec<_> = told
        .difference(&there)
        .filter(|n| !n.contains('/'))
        .collect();
    assert!(gone.is_empty(), "in DESIGN.md, and not there: {gone:?}");
}
