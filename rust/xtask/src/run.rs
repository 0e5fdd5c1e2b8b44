//! Runs commands: output goes to `build/logs/NAME.log`, and to the terminal where it is asked for.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Failure;

/// Returns the root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The log file of one part.
pub(crate) struct Log {
    path: PathBuf,
    show: bool,
}

impl Log {
    /// Starts `build/logs/NAME.log` anew; what is logged is shown too.
    pub(crate) fn open(name: &str) -> Result<Self, Failure> {
        Self::create(name, true)
    }

    /// Starts `build/logs/NAME.log` anew; nothing is shown.
    pub(crate) fn quiet(name: &str) -> Result<Self, Failure> {
        Self::create(name, false)
    }

    fn create(name: &str, show: bool) -> Result<Self, Failure> {
        let folder = root().join("build/logs");
        fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        let path = folder.join(format!("{name}.log"));
        File::create(&path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(Log { path, show })
    }

    /// Where the log is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds one line.
    pub(crate) fn line(&self, line: &str) -> Result<(), Failure> {
        if self.show {
            println!("{line}");
        }
        File::options()
            .append(true)
            .open(&self.path)
            .and_then(|mut file| writeln!(file, "{line}"))
            .map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }

    /// Adds all of another log, which has been shown already.
    pub(crate) fn append(&self, other: &Log) -> Result<(), Failure> {
        let broken = |error| format!("cannot append to {}: {error}", self.path.display());
        let text = fs::read(&other.path).map_err(broken)?;
        let mut file = File::options()
            .append(true)
            .open(&self.path)
            .map_err(broken)?;
        file.write_all(&text).map_err(broken)
    }

    /// Returns all lines.
    pub(crate) fn lines(&self) -> Result<Vec<String>, Failure> {
        let bytes = fs::read(&self.path)
            .map_err(|error| format!("cannot read {}: {error}", self.path.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Runs a command in the root of the repository and tells whether it succeeded.
    pub(crate) fn run(&self, command: &mut Command) -> Result<bool, Failure> {
        let program = command.get_program().to_string_lossy().into_owned();
        let broken = |error: std::io::Error| format!("cannot run {program}: {error}");
        let (reader, writer) = std::io::pipe().map_err(broken)?;
        let errors = writer.try_clone().map_err(broken)?;
        // What `cargo run` told this program about itself would make build scripts of dependencies
        // run again, and the dependencies compile twice: once under xtask, once outside.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        let mut child = command
            .current_dir(root())
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(errors)
            .spawn()
            .map_err(broken)?;
        // The command holds the other ends of the pipe: without this the reader never ends.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut file = File::options()
            .append(true)
            .open(&self.path)
            .map_err(broken)?;
        let mut line = Vec::new();
        let mut reader = BufReader::new(reader);
        while reader.read_until(b'\n', &mut line).map_err(broken)? > 0 {
            file.write_all(&line).map_err(broken)?;
            if self.show {
                let mut out = std::io::stdout().lock();
                out.write_all(&line)
                    .and_then(|()| out.flush())
                    .map_err(broken)?;
            }
            line.clear();
        }
        child.wait().map(|status| status.success()).map_err(broken)
    }
}
