//! The text files of the repository.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::Failure;
use crate::run::root;

/// One text file: its path from the root with slashes, and its content.
pub(crate) struct TextFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl TextFile {
    /// Tells whether the file is Rust, Java or Python source.
    pub(crate) fn is_source(&self) -> bool {
        [".rs", ".java", ".py"]
            .iter()
            .any(|ending| self.path.ends_with(ending))
    }

    /// Returns the file's name without folders.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// Returns the paths of all files that git tracks or would track, from the root with slashes.
pub(crate) fn tracked() -> Result<Vec<String>, Failure> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .map_err(|error| format!("cannot run git: {error}"))?;
    if !listed.status.success() {
        return Err("`git ls-files` failed: is this a clone?".to_owned());
    }
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    // A file that is deleted but not yet staged is still listed.
    let there = names.lines().filter(|path| root().join(path).is_file());
    Ok(there.map(str::to_owned).collect())
}

/// Reads all files that git tracks or would track; files that are not UTF-8 are left out.
pub(crate) fn read_all() -> Result<Vec<TextFile>, Failure> {
    let mut files = Vec::new();
    for path in tracked()? {
        let whole: PathBuf = root().join(&path);
        let bytes = fs::read(&whole).map_err(|error| format!("cannot read {path}: {error}"))?;
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(TextFile { path, text });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}
