//! Lists the files of the web UI in `ui/` that are served, so that `src/ui/assets.rs` embeds them, and compresses
//! them, so that the server does not have to.
//!
//! A list written here, and not a macro of a crate, because it decides what is served: no tests, and none of
//! the files of the checks.

use std::env;
use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzEncoder;

/// Folders of `ui/` that are for the checks only.
const UNSERVED_FOLDERS: [&str; 2] = ["tests", "node_modules"];
/// The extensions of files that are served. `src/ui/assets.rs` has their media types.
const SERVED: [&str; 7] = ["css", "html", "ico", "js", "png", "svg", "woff2"];

/// The extensions of files that are compressed already.
const COMPRESSED: [&str; 2] = ["png", "woff2"];
/// A file is stored compressed as well if that saves at least one byte in this many.
const MIN_SAVING: u64 = 10;

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("ui");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
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
    for (number, file) in files.iter().enumerate() {
        let name = name_of(file);
        let gzip = match compress(file, &out.join(format!("{number}.gz"))) {
            Some(compressed) => format!("Some(include_bytes!({compressed:?}))"),
            None => "None".to_owned(),
        };
        writeln!(source, "    EmbeddedFile {{ name: {name:?}, content: include_bytes!({file:?}), gzip: {gzip} }},")
            .expect("a string grows");
    }
    source.push(']');
    fs::write(out.join("ui_files.rs"), source).expect("the output folder can be written");
}

/// Compresses a file, if it gets smaller.
fn compress<'a>(file: &Path, target: &'a Path) -> Option<&'a Path> {
    let extension = file.extension()?.to_str()?;
    if COMPRESSED.contains(&extension) {
        return None;
    }
    let content = File::open(file).expect("the file can be read");
    let size = content.metadata().expect("the file can be read").len();
    // The encoder writes no name and no time, so equal files are equal when they are compressed.
    let mut encoder = GzEncoder::new(content, Compression::best());
    let mut compressed = File::create(target).expect("the output folder can be written");
    let written = std::io::copy(&mut encoder, &mut compressed).expect("the file can be compressed");
    (written + size / MIN_SAVING < size).then_some(target)
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
