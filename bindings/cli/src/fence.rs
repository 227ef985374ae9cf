//! `leasehold fence`: a guard for files. `FILE.fence`, beside the file, stores the greatest token seen. It is locked by
//! `flock` during a comparison, and replaced by a rename.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use leasehold::FencingToken;
use leasehold::fence::Gate;
use nix::fcntl::{Flock, FlockArg};
use tempfile::NamedTempFile;

use crate::args::FenceArgs;
use crate::exit::{FILE, Failure};

/// Records the token as seen, unless it is stale.
pub(crate) fn check(args: &FenceArgs) -> Result<u8, Failure> {
    let fenced = Fenced::new(&args.file)?;
    fenced.enter(args.token).map(|_guarded| 0)
}

/// Replaces the file with standard input, unless the token is stale.
pub(crate) fn write(args: &FenceArgs) -> Result<u8, Failure> {
    let fenced = Fenced::new(&args.file)?;
    // Refuse a stale token early, because reading the input may take long.
    drop(fenced.enter(args.token)?);
    let written = fenced.new_content(&mut io::stdin().lock());
    let written = written.map_err(|error| fenced.failed("writing beside", &error))?;
    let guarded = fenced.enter(args.token)?;
    let replaced = written.persist(&fenced.file).map_err(|error| error.error);
    let replaced = replaced.and_then(|_| fenced.sync_folder());
    replaced.map_err(|error| fenced.failed("replacing", &error))?;
    drop(guarded);
    Ok(0)
}

/// A file and its fence.
struct Fenced {
    /// The path with links resolved, so that two names of one file share one fence.
    file: PathBuf,
    folder: PathBuf,
    name: OsString,
    fence: PathBuf,
}

/// The locks on the fence as it was found, and on the one that replaces it. While they are held, nobody else compares
/// tokens.
struct Guarded(#[expect(dead_code, reason = "its drop unlocks")] Vec<Flock<File>>);

impl Fenced {
    fn new(file: &Path) -> Result<Self, Failure> {
        let resolved = fs::canonicalize(file).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound if !file.is_symlink() => new_file(file),
            _ => Err(error),
        });
        let failed = |error| Failure::new(FILE, format!("{}: {error}", file.display()));
        let file = resolved.map_err(failed)?;
        let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        };
        if file.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let mut fence = name.to_owned();
        fence.push(".fence");
        Ok(Self {
            folder: folder.to_owned(),
            name: name.to_owned(),
            fence: folder.join(fence),
            file,
        })
    }

    /// Compares the token, and stores it before anything is written under it.
    fn enter(&self, token: FencingToken) -> Result<Guarded, Failure> {
        let failed = |error: io::Error| self.failed("the fence of", &error);
        let mut found = self.lock().map_err(failed)?;
        let mut text = String::new();
        found.read_to_string(&mut text).map_err(failed)?;
        let gate = Gate::new();
        // The message names the file without its folder, because the names of resources are short.
        let resource: String = self.name.to_string_lossy().chars().take(100).collect();
        let highest = match text.trim() {
            "" => None,
            digits => Some(
                digits
                    .parse::<FencingToken>()
                    .map_err(|_| self.is_no_fence())?,
            ),
        };
        if let Some(highest) = highest {
            gate.check(&resource, highest)?;
        }
        gate.check(&resource, token)?;
        let mut locks = vec![found];
        if highest != Some(token) {
            locks.push(self.remember(token).map_err(failed)?);
        }
        Ok(Guarded(locks))
    }

    /// Returns the current fence, locked. If it is replaced while this waits for the lock, this tries again.
    fn lock(&self) -> io::Result<Flock<File>> {
        loop {
            let mut options = OpenOptions::new();
            let fence = options.read(true).write(true).create(true).truncate(false);
            let fence = lock(fence.open(&self.fence)?)?;
            match fs::metadata(&self.fence) {
                Ok(now) if now.ino() == fence.metadata()?.ino() => return Ok(fence),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }

    /// Writes a new fence, which is locked before others can see it.
    fn remember(&self, token: FencingToken) -> io::Result<Flock<File>> {
        let mut new = self.temporary(&self.fence)?;
        writeln!(new, "{token}")?;
        new.as_file().sync_all()?;
        let locked = lock(new.reopen()?)?;
        new.persist(&self.fence).map_err(|error| error.error)?;
        self.sync_folder()?;
        Ok(locked)
    }

    fn new_content(&self, from: &mut impl Read) -> io::Result<NamedTempFile> {
        let mut new = self.temporary(&self.file)?;
        io::copy(from, &mut new)?;
        new.as_file().sync_all()?;
        Ok(new)
    }

    /// Creates a file in the same folder, with the permissions of the file that it will replace, if there is one.
    fn temporary(&self, replaces: &Path) -> io::Result<NamedTempFile> {
        let mut prefix = OsString::from(".");
        prefix.push(&self.name);
        let mut builder = tempfile::Builder::new();
        builder.prefix::<OsStr>(&prefix);
        let rights = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        let file = builder.permissions(rights).tempfile_in(&self.folder)?;
        match fs::metadata(replaces) {
            Ok(found) => file.as_file().set_permissions(found.permissions())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(file)
    }

    /// Syncs the folder, which stores the rename.
    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    fn is_no_fence(&self) -> Failure {
        let what = format!("{} has no token in it", self.fence.display());
        Failure::new(FILE, what).advise("restore it; without it a stale token would pass")
    }

    fn failed(&self, doing: &str, error: &io::Error) -> Failure {
        Failure::new(FILE, format!("{doing} {}: {error}", self.file.display()))
    }
}

fn new_file(file: &Path) -> io::Result<PathBuf> {
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => fs::canonicalize(folder)?,
        _ => fs::canonicalize(".")?,
    };
    let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok(folder.join(name))
}

fn lock(file: File) -> io::Result<Flock<File>> {
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error.into())
}
