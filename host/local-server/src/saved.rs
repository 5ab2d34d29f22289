//! The cluster in a file: one line for each change, written before the change is seen, so that a killed process loses
//! nothing. Input: a cluster and what was saved of it. Output: lines. It must not know what is in them.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, anyhow};
use mortise_local_cluster::{Cluster, Options};
use serde_json::{Value, json};

use crate::{clock, file, seed};

/// The name of the file in its folder.
const FILE: &str = "cluster.jsonl";
/// The file is written anew when it is larger than this and has doubled: a change is some kilobytes, and a thousand of them
/// take longer to read back than the file takes to write.
const LEAST_BYTES_TO_COMPACT: u64 = 16 << 20;

/// An open file.
#[derive(Debug)]
pub(crate) struct Saved {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// How many it had when it was written anew.
    bytes_at_first: u64,
    token_key: u64,
}

impl Saved {
    /// The cluster that a folder keeps, or a new one; its file holds nothing but its objects then.
    pub(crate) fn open(folder: &Path, mut options: Options) -> Result<(Cluster, Self)> {
        file::folder(folder)?;
        let path = folder.join(FILE);
        let cluster = if path.is_file() {
            let damaged = || format!("read the saved cluster {}: remove the file to begin anew", path.display());
            let text = std::fs::read(&path).with_context(damaged)?;
            let mut records = records(&text).with_context(damaged)?;
            let head = records.next().transpose().with_context(damaged)?.unwrap_or_default();
            let key = head["key"].as_u64().context("its first line has no key").with_context(damaged)?;
            (options.seed, options.token_key) = (seed::random()?, key);
            let records = records.collect::<Result<Vec<Value>>>().with_context(damaged)?;
            Cluster::restore(options.clone(), records).map_err(Error::msg).with_context(damaged)?
        } else {
            (options.seed, options.token_key) = (seed::random()?, seed::random()?);
            Cluster::new(options.clone(), clock::now())
        };
        let (file, token_key) = (append(folder, &path)?, options.token_key);
        let mut saved = Self { file, path, bytes: 0, bytes_at_first: 0, token_key };
        saved.compact(&cluster)?;
        Ok((cluster, saved))
    }

    /// Writes the changes after a version.
    pub(crate) fn write(&mut self, cluster: &Cluster, since: u64) -> Result<()> {
        let records = cluster.saved_since(since);
        let full = self.bytes > LEAST_BYTES_TO_COMPACT.max(2 * self.bytes_at_first);
        let Some(records) = records.filter(|_| !full) else { return self.compact(cluster) };
        let lines = lines(&records);
        self.file.write_all(&lines).with_context(|| self.failed())?;
        self.bytes += lines.len() as u64;
        Ok(())
    }

    /// Writes the file anew.
    fn compact(&mut self, cluster: &Cluster) -> Result<()> {
        let mut records = vec![json!({"key": self.token_key})];
        records.extend(cluster.saved());
        let lines = lines(&records);
        file::replace(&self.path, &lines)?;
        let folder = self.path.parent().ok_or_else(|| anyhow!("the file has no folder"))?;
        self.file = append(folder, &self.path)?;
        (self.bytes, self.bytes_at_first) = (lines.len() as u64, lines.len() as u64);
        Ok(())
    }

    fn failed(&self) -> String {
        format!("save the cluster to {}: is the disk full?", self.path.display())
    }
}

fn append(folder: &Path, path: &Path) -> Result<File> {
    file::append(path).with_context(|| format!("open {} in {}: may the folder be written?", FILE, folder.display()))
}

/// The records of complete lines. A process that was killed in the middle of a line had not answered the request.
fn records(text: &[u8]) -> Result<impl Iterator<Item = Result<Value>>> {
    let whole = text.iter().rposition(|byte| *byte == b'\n').context("it has no complete line")?;
    let lines = text.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n').enumerate();
    Ok(lines.map(|(index, line)| serde_json::from_slice(line).with_context(|| format!("line {}", index + 1))))
}

fn lines(records: &[Value]) -> Vec<u8> {
    let mut lines = Vec::new();
    for record in records {
        serde_json::to_writer(&mut lines, record).expect("a JSON value is written to memory");
        lines.push(b'\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use mortise_local_cluster::{Credentials, Method, Reply, Request, Response, User};

    use super::*;

    /// Creates a ConfigMap, and gives its UID.
    fn create(cluster: &mut Cluster, name: &str) -> String {
        let groups = vec!["system:masters".to_owned()];
        let request = Request {
            method: Method::Post,
            path: "/api/v1/namespaces/default/configmaps".to_owned(),
            query: Vec::new(),
            headers: Vec::new(),
            credentials: Credentials::User(User { name: "a".to_owned(), groups, ..User::default() }),
            body: json!({"metadata": {"name": name}}).to_string().into_bytes(),
        };
        match cluster.request(&request, &[], clock::now()) {
            Reply::Done(Response { body, .. }) => body.document().unwrap()["metadata"]["uid"].to_string(),
            Reply::Call(call) => panic!("{call:?}"),
        }
    }

    #[test]
    fn a_killed_cluster_comes_back_with_all_that_was_answered() {
        let folder = tempfile::tempdir().unwrap();
        let (mut cluster, mut saved) = Saved::open(folder.path(), Options::default()).unwrap();
        let before = cluster.revision();
        create(&mut cluster, "a");
        saved.write(&cluster, before).unwrap();
        let path = folder.path().join(FILE);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole, &b"{\"group\": \"\", \"pl"[..]].concat()).unwrap();
        let (again, _) = Saved::open(folder.path(), Options::default()).unwrap();
        assert_eq!(again.saved(), cluster.saved());
        // A line that is broken in the middle is no cluster.
        std::fs::write(&path, [&b"{\"key\": 1}\n{\n"[..], &whole].concat()).unwrap();
        let error = format!("{:#}", Saved::open(folder.path(), Options::default()).unwrap_err());
        assert!(error.contains("cluster.jsonl: remove the file to begin anew: line 2"), "{error}");
    }

    #[test]
    fn a_restored_backup_makes_no_uid_that_was_made_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let (mut cluster, mut saved) = Saved::open(folder.path(), Options::default()).unwrap();
        let path = folder.path().join(FILE);
        let (backup, before) = (std::fs::read(&path).unwrap(), cluster.revision());
        let first = create(&mut cluster, "a");
        saved.write(&cluster, before).unwrap();
        std::fs::write(&path, backup).unwrap();
        let (mut restored, _) = Saved::open(folder.path(), Options::default()).unwrap();
        assert_eq!(restored.revision(), before);
        assert_ne!(create(&mut restored, "a"), first);
    }
}
