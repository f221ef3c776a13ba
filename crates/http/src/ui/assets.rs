//! The files of the web UI, embedded in the program: the page, its modules and its styles.
//!
//! All files except the page are below a folder whose name is a hash of them, so that browsers keep them
//! forever and never mix two versions.

use std::sync::LazyLock;

use ring::digest::{Context, SHA256};

/// The files, sorted by name. The build script writes the list.
static FILES: &[EmbeddedFile] = include!(concat!(env!("OUT_DIR"), "/ui_files.rs"));
/// A file of the web UI.
struct EmbeddedFile {
    name: &'static str,
    content: &'static [u8],
    /// The content compressed with gzip, if that is smaller.
    gzip: Option<&'static [u8]>,
}

/// The page that loads the modules.
const PAGE: &str = "index.html";
/// What the page has in place of the path of the folder.
const PLACEHOLDER: &str = "{{assets}}";
/// The deepest path of a page. The names of a router's models may have several parts; what a client sends
/// must not decide how long the page is.
const MAX_DEPTH: usize = 16;
/// How many bytes of the hash are in the name of the folder.
const HASH_BYTES: usize = 8;

/// The hash of all files.
static HASH: LazyLock<String> = LazyLock::new(|| {
    let mut context = Context::new(&SHA256);
    for file in FILES {
        // The lengths separate the files.
        for part in [file.name.as_bytes(), file.content] {
            context.update(&part.len().to_le_bytes());
            context.update(part);
        }
    }
    let hash = context.finish();
    let bytes = &hash.as_ref()[..HASH_BYTES];
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
});

/// A file that a browser loads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asset {
    pub(super) content: &'static [u8],
    /// The content compressed with gzip, if that is smaller.
    pub(super) gzip: Option<&'static [u8]>,
    pub(super) media_type: &'static str,
}

/// The file with this path below the folder of the assets: `HASH/NAME`.
pub(super) fn find(path: &str) -> Option<Asset> {
    let (hash, name) = path.split_once('/')?;
    if hash != *HASH || name == PAGE {
        return None;
    }
    let file = file(name)?;
    Some(Asset {
        content: file.content,
        gzip: file.gzip,
        media_type: media_type(name)?,
    })
}

/// The page for a browser that has opened this path below `/ui/`. Its URLs are relative, because the server
/// does not know the prefix of a proxy. `None` for a path that is deeper than any page.
pub(super) fn page(path: &str) -> Option<String> {
    let depth = path.matches('/').count();
    if depth > MAX_DEPTH {
        return None;
    }
    let page = String::from_utf8_lossy(file(PAGE)?.content);
    let folder = format!("{}assets/{}", "../".repeat(depth), *HASH);
    Some(page.replace(PLACEHOLDER, &folder))
}

fn file(name: &str) -> Option<&'static EmbeddedFile> {
    let index = FILES.binary_search_by_key(&name, |file| file.name).ok()?;
    Some(&FILES[index])
}

fn media_type(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    Some(match extension {
        "css" => "text/css; charset=utf-8",
        "html" => "text/html; charset=utf-8",
        "ico" => "image/x-icon",
        "js" => "text/javascript; charset=utf-8",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "woff2" => "font/woff2",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_can_be_found_and_has_a_media_type() {
        for file in FILES.iter().filter(|file| file.name != PAGE) {
            let name = file.name;
            let asset = find(&format!("{}/{name}", *HASH)).expect(name);
            assert_eq!(asset.content, file.content, "{name}");
        }
        assert!(
            find("0000000000000000/main.js").is_none(),
            "another version"
        );
        assert!(find(&format!("{}/{PAGE}", *HASH)).is_none());
        assert!(find(&format!("{}/../main.js", *HASH)).is_none());
    }

    #[test]
    fn tests_and_files_of_the_checks_are_not_embedded() {
        let is_served = |name: &str| !name.starts_with("tests/") && !name.ends_with(".json");
        assert!(FILES.iter().all(|file| is_served(file.name)));
    }

    #[test]
    fn the_files_are_less_than_half_their_size_when_they_are_compressed() {
        let sizes = FILES.iter().map(|file| {
            let compressed = file.gzip.unwrap_or(file.content);
            (file.content.len(), compressed.len())
        });
        let (all, compressed) = sizes.fold((0, 0), |sum, file| (sum.0 + file.0, sum.1 + file.1));
        assert!(2 * compressed < all, "{compressed} of {all} bytes");
    }

    #[test]
    fn the_page_finds_its_files_at_every_depth() {
        for (path, expected) in [
            ("", "\"assets/"),
            ("jobs", "\"assets/"),
            ("jobs/abc", "\"../assets/"),
            ("models/ann/echo", "\"../../assets/"),
            ("jobs/", "\"../assets/"),
        ] {
            let page = page(path).unwrap();
            assert!(page.contains(expected), "{path}: {page}");
            assert!(!page.contains(PLACEHOLDER));
        }
        assert!(page(&"a/".repeat(MAX_DEPTH)).is_some());
        assert!(page(&"a/".repeat(MAX_DEPTH + 1)).is_none());
    }
}
