//! Lists the files of the web UI in `ui/` that are served, so that `src/ui/assets.rs` embeds them.
//!
//! A list written here, and not a macro of a crate, because it decides what is served: no tests, and none of
//! the files of the checks.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of `ui/` that are for the checks only.
const UNSERVED_FOLDERS: [&str; 2] = ["tests", "node_modules"];
/// The extensions of files that are served. `src/ui/assets.rs` has their media types.
const SERVED: [&str; 7] = ["css", "html", "ico", "js", "png", "svg", "woff2"];

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("ui");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    list_files(&root, &mut files);
    let name_of = |file: &Path| {
        let name = file.strip_prefix(&root).expect("it is below the root");
        name.to_str().expect("names are UTF-8").to_owned()
    };
    // By the text, as the program searches; paths have another order.
    files.sort_by_cached_key(|file| name_of(file));
    let mut source = String::from("&[\n");
    for file in &files {
        let name = name_of(file);
        writeln!(source, "    ({name:?}, include_bytes!({file:?})),").expect("a string grows");
    }
    source.push(']');
    let target = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("ui_files.rs");
    fs::write(target, source).expect("the output folder can be written");
}

/// Adds the served files below a folder.
fn list_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder of the web UI exists") {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_name().and_then(|name| name.to_str());
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_dir() {
            if name.is_some_and(|name| !UNSERVED_FOLDERS.contains(&name)) {
                list_files(&path, files);
            }
        } else if extension.is_some_and(|extension| SERVED.contains(&extension)) {
            files.push(path);
        }
    }
}
