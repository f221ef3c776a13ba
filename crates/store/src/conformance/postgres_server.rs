//! PostgreSQL servers for tests, in temporary folders, with a Unix socket.
//!
//! One server is shared by all test processes of a run, because each test has a process of its own and a
//! start takes seconds: the first process starts it, and a watcher stops it a few seconds after the last
//! process has ended, however it ended. Each test has its own database.

use std::fs::{File, OpenOptions, Permissions};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::PostgresUrl;

/// The settings of all servers. The shared one does not wait for the disk.
const SETTINGS: &str = "-c listen_addresses= -c max_connections=200 -c shared_buffers=32MB \
     -c unix_socket_permissions=0777 -c timezone=UTC";
const NO_SYNC: &str = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off";
/// Waits until no test process holds the lock for a while, and stops the server.
const WATCH: &str = r#"while :; do
    flock -x "$1/users" true
    sleep 5
    flock -n -x "$1/users" sh -c '"$0" -D "$1/data/cluster" -m immediate stop; rm -rf "$1/data"' "$2" "$1" && exit
done"#;

/// The server that all test processes share.
#[derive(Debug)]
pub struct SharedPostgres {
    folder: PathBuf,
    /// The watcher waits until all processes have released it.
    _users: File,
}

impl SharedPostgres {
    /// Starts the server, unless another process has done so.
    pub fn start() -> Self {
        let folder = shared_folder();
        std::fs::create_dir_all(&folder).unwrap();
        let users = lock_file(&folder.join("users"));
        users.lock_shared().unwrap();
        let starting = lock_file(&folder.join("starting"));
        starting.lock().unwrap();
        if !is_ready(&folder) {
            std::fs::remove_dir_all(folder.join("data")).ok();
            init(&folder);
            pg_ctl(&folder, NO_SYNC, "start");
            start_watcher(&folder);
        }
        Self {
            folder,
            _users: users,
        }
    }

    /// A new, empty database.
    pub fn database(self) -> TestDatabase {
        let name = format!("test_{:016x}", RandomState::new().hash_one(0));
        sql(&self.folder, "postgres", &format!("CREATE DATABASE {name}"));
        TestDatabase { server: self, name }
    }
}

/// A database of the shared server. Dropped with its contents.
#[derive(Debug)]
pub struct TestDatabase {
    server: SharedPostgres,
    name: String,
}

impl TestDatabase {
    /// Its URL, as text.
    pub fn address(&self) -> String {
        address(&self.server.folder, &self.name)
    }

    /// Its URL.
    pub fn url(&self) -> PostgresUrl {
        self.address().parse().unwrap()
    }

    /// Runs statements in the database.
    pub fn sql(&self, statements: &str) -> String {
        sql(&self.server.folder, &self.name, statements)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // Not `sql`: a panic here would hide the failure of the test.
        psql(&self.server.folder, "postgres", &drop).output().ok();
    }
}

/// A server of one test, which can be restarted. It waits for the disk like a production server.
#[derive(Debug)]
pub struct OwnPostgres {
    folder: PathBuf,
}

impl OwnPostgres {
    /// Starts a server in a new folder.
    pub fn start() -> Self {
        let name = format!("postgres-test-{:016x}", RandomState::new().hash_one(0));
        let server = Self {
            folder: std::env::temp_dir().join(name),
        };
        std::fs::create_dir(&server.folder).unwrap();
        init(&server.folder);
        pg_ctl(&server.folder, "", "start");
        server
    }

    /// The URL of its database.
    pub fn url(&self) -> PostgresUrl {
        address(&self.folder, "postgres").parse().unwrap()
    }

    /// Stops the server without letting it finish anything, and starts it again.
    pub fn restart_immediately(&self) {
        self.stop();
        self.start_again();
    }

    /// Starts the server after it was stopped.
    pub fn start_again(&self) {
        pg_ctl(&self.folder, "", "start");
    }

    /// Stops the server without letting it finish anything.
    pub fn stop(&self) {
        pg_ctl(&self.folder, "", "-m immediate stop");
    }
}

impl Drop for OwnPostgres {
    fn drop(&mut self) {
        let mut stop = Command::new(pg_ctl_script(&self.folder));
        stop.arg("-D").arg(self.folder.join("data/cluster"));
        stop.args(["-m", "immediate", "stop"]).output().ok();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// The folder of the shared server: one for each build folder, with a path that is short enough for a
/// socket. Its name does not begin like that of a scratch folder, which a server may remove.
fn shared_folder() -> PathBuf {
    let mut hasher = DefaultHasher::new();
    std::env::current_exe().unwrap().parent().hash(&mut hasher);
    std::env::temp_dir().join(format!("postgres-test-{:016x}", hasher.finish()))
}

/// The watcher outlives this process: `setsid --fork` detaches it.
fn start_watcher(folder: &Path) {
    let mut watcher = Command::new("setsid");
    watcher.args(["--fork", "sh", "-c", WATCH, "watch"]);
    watcher.arg(folder).arg(pg_ctl_script(folder));
    watcher.stdin(Stdio::null()).stdout(Stdio::null());
    let status = watcher.stderr(Stdio::null()).status().unwrap();
    assert!(status.success(), "{watcher:?} failed");
}

fn lock_file(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    options.open(path).unwrap()
}

fn address(folder: &Path, database: &str) -> String {
    let socket = folder.join("run");
    format!(
        "postgresql://postgres@/{database}?host={}",
        socket.display()
    )
}

/// The folder of the programs: of the newest version that is installed, or in `PATH`.
fn programs() -> PathBuf {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"))
        .filter(|folder| folder.join("initdb").exists())
        .collect();
    versions.sort();
    versions.pop().unwrap_or_default()
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| {
        use std::os::unix::fs::MetadataExt;
        process.uid() == 0
    })
}

/// PostgreSQL refuses to run as root.
fn as_postgres(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    command.arg(program);
    command
}

fn run(mut command: Command) -> String {
    command.stdin(Stdio::null()).process_group(0);
    let output = command.output().unwrap_or_else(|error| {
        panic!("failed to run {command:?}: {error}; install PostgreSQL (`apt install postgresql`)")
    });
    assert!(output.status.success(), "{command:?} failed: {output:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Creates the files of a server, and a script that runs `pg_ctl` as its owner.
fn init(folder: &Path) {
    let (data, socket) = (folder.join("data"), folder.join("run"));
    for part in [&data, &socket] {
        std::fs::create_dir_all(part).unwrap();
        std::fs::set_permissions(part, Permissions::from_mode(0o777)).unwrap();
    }
    std::fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    let script = as_postgres(&programs().join("pg_ctl"));
    let words: Vec<_> = std::iter::once(script.get_program())
        .chain(script.get_args())
        .map(|word| word.to_string_lossy())
        .collect();
    let path = pg_ctl_script(folder);
    std::fs::write(
        &path,
        format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" ")),
    )
    .unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    // Only the owner of a folder can restrict it, so PostgreSQL creates its own one inside.
    let mut initdb = as_postgres(&programs().join("initdb"));
    initdb.args([
        "-A",
        "trust",
        "-U",
        "postgres",
        "-E",
        "UTF8",
        "--no-locale",
        "-N",
    ]);
    initdb.arg("-D").arg(data.join("cluster"));
    run(initdb);
}

fn pg_ctl_script(folder: &Path) -> PathBuf {
    folder.join("pg_ctl")
}

fn pg_ctl(folder: &Path, settings: &str, action: &str) {
    let socket = folder.join("run");
    let mut command = Command::new(pg_ctl_script(folder));
    command.arg("-D").arg(folder.join("data/cluster"));
    command.arg("-l").arg(folder.join("run/log")).arg("-w");
    let directories = format!("-c unix_socket_directories={}", socket.display());
    if action == "start" {
        command.arg("-o");
        command.arg(format!("{SETTINGS} {settings} {directories}"));
    }
    command.args(action.split(' '));
    // The server inherits the output, and would keep a pipe open.
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).process_group(0);
    let status = command.status().unwrap();
    let log = std::fs::read_to_string(folder.join("run/log"));
    assert!(status.success(), "{command:?} failed: {log:?}");
}

fn is_ready(folder: &Path) -> bool {
    let output = psql(folder, "postgres", "SELECT 1").output();
    output.is_ok_and(|output| output.status.success())
}

fn psql(folder: &Path, database: &str, statements: &str) -> Command {
    let mut command = Command::new(programs().join("psql"));
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
    command
        .arg(address(folder, database))
        .args(["-c", statements]);
    command.stdin(Stdio::null());
    command
}

fn sql(folder: &Path, database: &str, statements: &str) -> String {
    run(psql(folder, database, statements))
}
