//! How much memory the process may use: what its control group says, or else what the machine has.

use std::fs;
use std::path::{Path, PathBuf};

use frazil_core::memory::{Limit, LimitKind};

/// A mounted hierarchy of control groups that limits memory.
struct Hierarchy {
    /// The group that is seen at the mount point.
    root: PathBuf,
    mount_point: PathBuf,
    /// The file of a group that has its limit.
    file: &'static str,
    /// How `/proc/self/cgroup` marks it: nothing in version 2.
    controller: &'static str,
}

/// Returns the limit of the system below `root`, which is `/` but in tests. `None` where there is no
/// `/proc`.
pub(super) fn find(root: &Path) -> Option<Limit> {
    let machine = machine(root)?;
    let groups = read(&root.join("proc/self/cgroup"));
    let mounts = read(&root.join("proc/self/mountinfo"));
    let limits = mounts.lines().filter_map(hierarchy);
    let container = limits.filter_map(|one| limit_in(root, &one, &groups)).min();
    Some(match container.filter(|bytes| *bytes < machine) {
        Some(bytes) => Limit {
            bytes,
            kind: LimitKind::Container,
        },
        None => Limit {
            bytes: machine,
            kind: LimitKind::Machine,
        },
    })
}

/// What cannot be read says nothing.
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn machine(root: &Path) -> Option<u64> {
    let info = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let total = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Reads a line of `mountinfo`: `id parent device root point options … - type source options`.
fn hierarchy(line: &str) -> Option<Hierarchy> {
    let (before, after) = line.split_once(" - ")?;
    let mut words = before.split(' ').skip(3);
    let (root, mount_point) = (unescaped(words.next()?), unescaped(words.next()?));
    let mut after = after.split(' ');
    let (file, controller) = match after.next()? {
        "cgroup2" => ("memory.max", ""),
        "cgroup" if after.nth(1)?.split(',').any(|word| word == "memory") => {
            ("memory.limit_in_bytes", "memory")
        }
        _ => return None,
    };
    Some(Hierarchy {
        root,
        mount_point,
        file,
        controller,
    })
}

fn unescaped(path: &str) -> PathBuf {
    PathBuf::from(path.replace("\\040", " "))
}

/// Returns the least limit of the group and all groups around it that can be seen.
fn limit_in(root: &Path, hierarchy: &Hierarchy, groups: &str) -> Option<u64> {
    let group = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let mut controllers = controllers.split(',');
        controllers
            .any(|one| one == hierarchy.controller)
            .then_some(path)
    })?;
    // A group that is not below the mounted one: a container sees its own at the mount point.
    let below = Path::new(group).strip_prefix(&hierarchy.root);
    let below = below.unwrap_or_else(|_| Path::new(""));
    let limits = below.ancestors().filter_map(|path| {
        let point = hierarchy.mount_point.strip_prefix("/").ok()?;
        let file = root.join(point).join(path).join(hierarchy.file);
        read(&file).trim().parse::<u64>().ok()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      35 31 0:32 /pods /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    /// A system of 8 GiB with these files.
    fn system(files: &[(&str, &str)]) -> Option<Limit> {
        let root = tempfile::tempdir().unwrap();
        let memory = ("proc/meminfo", "MemTotal:  8388608 kB\nMemFree: 1 kB\n");
        for (path, text) in files.iter().chain([&memory]) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        find(root.path())
    }

    fn container(bytes: u64) -> Option<Limit> {
        let kind = LimitKind::Container;
        Some(Limit { bytes, kind })
    }

    fn machine() -> Option<Limit> {
        let (bytes, kind) = (8 * GIB, LimitKind::Machine);
        Some(Limit { bytes, kind })
    }

    #[test]
    fn version_2_has_the_least_limit_of_all_groups_around() {
        let limit = system(&[
            ("proc/self/mountinfo", V2),
            ("proc/self/cgroup", "0::/pods/one\n"),
            ("sys/fs/cgroup/memory.max", "max\n"),
            ("sys/fs/cgroup/pods/memory.max", "2147483648\n"),
            ("sys/fs/cgroup/pods/one/memory.max", "4294967296\n"),
        ]);
        assert_eq!(limit, container(2 * GIB));
    }

    #[test]
    fn a_container_of_version_2_sees_its_own_group_at_the_mount_point() {
        let limit = system(&[
            ("proc/self/mountinfo", V2),
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "1073741824\n"),
        ]);
        assert_eq!(limit, container(GIB));
    }

    #[test]
    fn version_1_is_read_below_the_group_that_is_mounted() {
        let files = [
            ("proc/self/mountinfo", V1),
            ("proc/self/cgroup", "4:memory:/pods/one\n1:cpu:/\n0::/\n"),
            (
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            (
                "sys/fs/cgroup/memory/one/memory.limit_in_bytes",
                "3221225472\n",
            ),
        ];
        assert_eq!(system(&files), container(3 * GIB));
        assert_eq!(system(&files[..3]), machine(), "no limit is no container");
        let elsewhere = ("proc/self/cgroup", "4:memory:/docker/0123\n");
        let mount = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
        assert_eq!(system(&[files[0], elsewhere, mount]), container(GIB));
    }

    #[test]
    fn without_groups_the_machine_counts_and_without_proc_nothing() {
        assert_eq!(system(&[]), machine());
        assert_eq!(find(tempfile::tempdir().unwrap().path()), None);
    }

    #[test]
    fn this_system_has_a_limit() {
        let limit = find(Path::new("/")).expect("Linux has /proc");
        assert!(limit.bytes > 64 << 20, "{limit:?}");
    }
}
