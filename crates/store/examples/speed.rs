//! Measures the store on a disk: `cargo run -p tidegate-store --example speed [FOLDER]`.
//!
//! A single caller waits as long as a sync of the disk takes; many callers share one.
#![expect(clippy::print_stdout, reason = "its output is the point")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::store::{JobRecords, Store};
use tidegate_store::conformance::samples::{ann, finish_leased, id, lease, leased, spec};
use tidegate_store::{SqliteOptions, SqliteStore};
use tokio::task::JoinSet;

const KNOWN: &str = "known";
const TIME: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = std::env::args_os()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = parent.join(format!("tidegate-speed-{}", std::process::id()));
    let store = Arc::new(SqliteStore::open(&folder, &SqliteOptions::default())?);

    store.insert(spec(KNOWN)).await?;
    show(
        "sync of 4 KiB, file grows",
        1,
        sync_times(&folder, u64::MAX)?,
    );
    show("sync of 4 KiB, written over", 1, sync_times(&folder, 1)?);
    for callers in [1, 8, 64, 256] {
        show("insert", callers, many(&store, callers, insert).await);
    }
    show("insert, lease, finish", 64, many(&store, 64, whole).await);
    show("get", 1, many(&store, 1, get).await);
    show("get", 64, many(&store, 64, get).await);

    drop(store);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// Times of a sync, writing to the same `places` of a file in turn.
fn sync_times(folder: &Path, places: u64) -> std::io::Result<Vec<Duration>> {
    let file = File::create(folder.join("sync"))?;
    let mut times = Vec::new();
    for n in 0..500 {
        let start = Instant::now();
        file.write_all_at(&[7; 4096], n % places * 4096)?;
        file.sync_data()?;
        times.push(start.elapsed());
    }
    Ok(times)
}

async fn insert(store: Arc<SqliteStore>, name: String) {
    store.insert(spec(&name)).await.expect("room for a job");
}

async fn whole(store: Arc<SqliteStore>, name: String) {
    store.insert(spec(&name)).await.expect("room for a job");
    let fence = leased(&*store, lease(&name, 0, 1)).await;
    store
        .finish(finish_leased(&name, fence, 0))
        .await
        .expect("room for an end");
}

async fn get(store: Arc<SqliteStore>, _name: String) {
    store
        .get(&ann(), &id(KNOWN))
        .await
        .expect("the store")
        .expect("a known job");
}

/// The time of each call, with this many callers at once for a while.
async fn many<F>(
    store: &Arc<SqliteStore>,
    callers: usize,
    call: fn(Arc<SqliteStore>, String) -> F,
) -> Vec<Duration>
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut all = JoinSet::new();
    let begin = Instant::now();
    for caller in 0..callers {
        let store = Arc::clone(store);
        all.spawn(async move {
            let mut times = Vec::new();
            while begin.elapsed() < TIME {
                let start = Instant::now();
                let unique = begin.elapsed().as_nanos();
                call(
                    Arc::clone(&store),
                    format!("{callers}-{caller}-{}-{unique}", times.len()),
                )
                .await;
                times.push(start.elapsed());
            }
            times
        });
    }
    all.join_all().await.concat()
}

fn show(what: &str, callers: usize, mut times: Vec<Duration>) {
    times.sort();
    let total: Duration = times.iter().sum();
    let rate = times.len() as f64 * callers as f64 / total.as_secs_f64();
    let (median, late) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!(
        "{what:30} {callers:4} callers  {rate:9.0}/s   half under {median:9.1?}   99 % under {late:9.1?}"
    );
}
