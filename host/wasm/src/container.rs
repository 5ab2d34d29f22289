//! The memory limit of the container and what is used of it: beyond it the kernel kills, since Kubernetes 1.28, all processes
//! of the container. Files of the cgroup, of either version, come in; bytes come out. Nothing here knows what the memory is
//! for.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug)]
pub(crate) struct Cgroup {
    /// The file that names this process's group.
    membership: PathBuf,
    /// The mount of the groups.
    root: PathBuf,
}

/// What a container uses of its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Without pages of files, which the kernel takes back before it kills.
    pub used_bytes: u64,
    /// The limit.
    pub limit_bytes: u64,
}

/// The names of one version's files.
struct Files {
    limit: &'static str,
    used: &'static str,
    inactive: &'static str,
    active: &'static str,
}

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    inactive: "total_inactive_file",
    active: "total_active_file",
};
const VERSION_2: Files =
    Files { limit: "memory.max", used: "memory.current", inactive: "inactive_file", active: "active_file" };
/// A limit beyond every machine's memory is none; version 1 knows no other way to say it.
const UNBOUNDED: u64 = 1 << 60;

/// One group's files.
struct Group {
    limit_bytes: u64,
    used_bytes: u64,
    inactive_file_bytes: u64,
    active_file_bytes: u64,
}

impl Default for Cgroup {
    fn default() -> Self {
        Self { membership: "/proc/self/cgroup".into(), root: "/sys/fs/cgroup".into() }
    }
}

impl Cgroup {
    /// Bytes that this process and its children may still take together; None when unbounded. Inactive file pages count as
    /// free: the kernel reclaims them first.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let free =
            |group: Group| group.limit_bytes.saturating_sub(group.used_bytes.saturating_sub(group.inactive_file_bytes));
        self.groups().into_iter().map(free).min()
    }

    /// What is used of the limit that is reached first; None when unbounded.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let usage = |group: Group| {
            let files = group.inactive_file_bytes + group.active_file_bytes;
            Usage { used_bytes: group.used_bytes.saturating_sub(files), limit_bytes: group.limit_bytes }
        };
        let groups = self.groups().into_iter().map(usage);
        groups.max_by_key(|usage| u128::from(usage.used_bytes) * 1_000 / u128::from(usage.limit_bytes.max(1)))
    }

    /// The groups with a limit. In a container the group's name may be the machine's, which is not mounted there: then the root
    /// of the mount, which is read last, is the container's own group.
    fn groups(&self) -> Vec<Group> {
        let membership = fs::read_to_string(&self.membership).unwrap_or_default();
        let own = |line: &str| match line.splitn(3, ':').collect::<Vec<_>>()[..] {
            [_, "", group] => Some((self.root.clone(), VERSION_2, group.to_owned())),
            [_, controllers, group] if controllers.split(',').any(|controller| controller == "memory") => {
                Some((self.root.join("memory"), VERSION_1, group.to_owned()))
            }
            _ => None,
        };
        let all = membership.lines().filter_map(own).flat_map(|(root, files, group)| {
            let above = Path::new(group.trim_start_matches('/')).ancestors();
            above.filter_map(|group| read(&root.join(group), &files)).collect::<Vec<_>>()
        });
        all.collect()
    }
}

/// Bytes that the container leaves to this process and its children; None when unbounded.
pub fn free_bytes() -> Option<u64> {
    Cgroup::default().free_bytes()
}

/// What this process's container uses of its limit; None when unbounded.
pub fn usage() -> Option<Usage> {
    Cgroup::default().usage()
}

/// Bytes of memory that a process has; None when it has ended.
pub(crate) fn resident_bytes(process: u32) -> Option<u64> {
    let pages = fs::read_to_string(format!("/proc/{process}/statm")).ok()?.split(' ').nth(1)?.parse::<u64>().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// One group, if it has a limit.
fn read(group: &Path, files: &Files) -> Option<Group> {
    let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    // "max" is unbounded.
    let limit_bytes = number(files.limit).filter(|limit| *limit < UNBOUNDED)?;
    let used_bytes = number(files.used)?;
    let facts = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let fact = |name: &str| {
        let value = facts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
        value.unwrap_or_default()
    };
    let (inactive_file_bytes, active_file_bytes) = (fact(files.inactive), fact(files.active));
    Some(Group { limit_bytes, used_bytes, inactive_file_bytes, active_file_bytes })
}

#[cfg(test)]
pub(crate) mod tests {
    use tempfile::TempDir;

    use super::*;

    impl Cgroup {
        /// Unbounded, on any machine.
        pub(crate) fn nowhere() -> Self {
            Self { membership: "/no/such/file".into(), root: "/no/such/folder".into() }
        }
    }

    /// A mount of groups with these limits and uses; this process is in `own`.
    pub(crate) fn cgroup(own: &str, groups: &[(&str, &str, u64)]) -> (Cgroup, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let cgroup = Cgroup { membership: folder.path().join("cgroup"), root: folder.path().join("fs") };
        fs::create_dir(&cgroup.root).unwrap();
        fs::write(&cgroup.membership, format!("1:name=systemd:/other\n0::{own}\n")).unwrap();
        for (group, limit, used) in groups {
            let group = cgroup.root.join(group);
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join("memory.max"), format!("{limit}\n")).unwrap();
            fs::write(group.join("memory.current"), format!("{used}\n")).unwrap();
        }
        (cgroup, folder)
    }

    #[track_caller]
    fn check(own: &str, groups: &[(&str, &str, u64)], expected: Option<u64>) {
        let (cgroup, _folder) = cgroup(own, groups);
        assert_eq!(cgroup.free_bytes(), expected, "{own} in {groups:?}");
    }

    #[test]
    fn the_tightest_group_on_the_way_up_decides() {
        check("/pod/own", &[("pod/own", "1000", 300), ("pod", "2000", 1500), ("other", "10", 10)], Some(500));
        check("/pod/own", &[("pod/own", "max", 300), ("pod", "2000", 1500)], Some(500));
        check("/own", &[("own", "100", 300)], Some(0));
    }

    #[test]
    fn in_a_container_the_root_of_the_mount_is_its_own_group() {
        check("/", &[("", "1000", 400)], Some(600));
        check("/kubepods/pod1/main", &[("", "1000", 400)], Some(600));
    }

    #[test]
    fn without_a_limit_there_is_no_bound() {
        check("/own", &[("own", "max", 300)], None);
        check("/own", &[], None);
        assert_eq!(Cgroup::nowhere().free_bytes(), None);
    }

    #[test]
    fn inactive_file_pages_are_free() {
        let (cgroup, folder) = cgroup("/", &[("", "1000", 900)]);
        fs::write(folder.path().join("fs/memory.stat"), "anon 300\ninactive_file 500\nactive_file 100\n").unwrap();
        assert_eq!(cgroup.free_bytes(), Some(600));
    }

    #[test]
    fn what_is_used_of_the_limit_is_without_pages_of_files() {
        let (cgroup, folder) = cgroup("/pod", &[("pod", "1000", 900), ("", "4000", 3000)]);
        fs::write(folder.path().join("fs/pod/memory.stat"), "inactive_file 100\nactive_file 200\nfile 300\n").unwrap();
        // The pod's is not used as far as the one above it.
        assert_eq!(cgroup.usage(), Some(Usage { used_bytes: 3000, limit_bytes: 4000 }));
        fs::write(folder.path().join("fs/memory.current"), "2000").unwrap();
        assert_eq!(cgroup.usage(), Some(Usage { used_bytes: 600, limit_bytes: 1000 }));
        assert_eq!(Cgroup::nowhere().usage(), None);
    }

    #[test]
    fn groups_of_version_1_have_limits_too() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("fs/memory/docker/one");
        fs::create_dir_all(&group).unwrap();
        let cgroup = Cgroup { membership: folder.path().join("cgroup"), root: folder.path().join("fs") };
        fs::write(&cgroup.membership, "5:cpu,cpuacct:/docker/one\n4:memory:/docker/one\n").unwrap();
        for (file, text) in [
            ("memory.limit_in_bytes", "1000"),
            ("memory.usage_in_bytes", "900"),
            ("memory.stat", "inactive_file 1\ntotal_inactive_file 300\ntotal_active_file 100\n"),
        ] {
            fs::write(group.join(file), text).unwrap();
        }
        assert_eq!(cgroup.usage(), Some(Usage { used_bytes: 500, limit_bytes: 1000 }));
        assert_eq!(cgroup.free_bytes(), Some(400));
        fs::write(group.join("memory.limit_in_bytes"), "9223372036854771712").unwrap();
        assert_eq!((cgroup.usage(), cgroup.free_bytes()), (None, None));
    }
}
