//! `cargo xtask gen`: the generated parts of deploy/, and the local cluster's documents of Kubernetes. The host and the
//! pinned Kubernetes module print them, git stores them, and the check finds differences.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::checkout::{Checkout, line, start};
use crate::kubernetes_documents;

/// Arguments of `mortise`, and the file of its output.
const PARTS: &[(&[&str], &str)] = &[(&["crd"], "deploy/base/crd.yaml"), (&["rbac", "--host"], "deploy/base/rbac.yaml")];

pub(crate) fn write(checkout: &Checkout) -> Result<()> {
    let host = checkout.build_host(&[])?;
    for (args, file) in PARTS {
        let wanted = print(checkout, &host, args)?;
        let path = checkout.path(file);
        let same = fs::read_to_string(&path).is_ok_and(|found| found == wanted);
        if !same {
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
            }
            fs::write(&path, wanted).with_context(|| format!("write {}", path.display()))?;
        }
        println!("{file}: {}", if same { "unchanged" } else { "written" });
    }
    write_documents(checkout)
}

/// Packs again only what changed: two builds of the packer may write the same bytes in different ways.
fn write_documents(checkout: &Checkout) -> Result<()> {
    let file = kubernetes_documents::FILE;
    let wanted = kubernetes_documents::print(checkout)?;
    let same = kubernetes_documents::unpack(&checkout.path(file)).is_ok_and(|found| found == wanted);
    if !same {
        fs::write(checkout.path(file), kubernetes_documents::pack(&wanted)?)
            .with_context(|| format!("write {file}"))?;
    }
    println!("{file}: {}", if same { "unchanged" } else { "written" });
    Ok(())
}

/// Fails, with the differing lines, when a file is not what the host prints.
pub(crate) fn check(checkout: &Checkout) -> Result<()> {
    let host = checkout.build_host(&[])?;
    let mut stale = Vec::new();
    for (args, file) in PARTS {
        let wanted = print(checkout, &host, args)?;
        let found = fs::read_to_string(checkout.path(file)).unwrap_or_default();
        match difference(&found, &wanted) {
            None => println!("{file}: up to date"),
            Some(lines) => {
                println!("{file} differs from what `mortise {}` prints:\n{lines}", args.join(" "));
                stale.push(*file);
            }
        }
    }
    let file = kubernetes_documents::FILE;
    if kubernetes_documents::unpack(&checkout.path(file))? == kubernetes_documents::print(checkout)? {
        println!("{file}: up to date");
    } else {
        println!("{file} differs from what the pinned module k8s.io/kubernetes publishes");
        stale.push(file);
    }
    if !stale.is_empty() {
        bail!("{} must be regenerated: run `cargo xtask gen` and commit the result", stale.join(" and "));
    }
    Ok(())
}

fn print(checkout: &Checkout, host: &Path, args: &[&str]) -> Result<String> {
    let mut command = checkout.tool(host);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped());
    let output = start(&mut command)?.wait_with_output().with_context(|| format!("run `{}`", line(&command)))?;
    if !output.status.success() {
        bail!("`{}` failed ({})", line(&command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{}` printed no UTF-8", line(&command)))
}

/// The differing lines, as `-` found and `+` wanted, without the common beginning and end.
fn difference(found: &str, wanted: &str) -> Option<String> {
    if found == wanted {
        return None;
    }
    let (old, new) = (found.lines().collect::<Vec<_>>(), wanted.lines().collect::<Vec<_>>());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[head..], &new[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let removed = old[..old.len() - tail].iter().map(|line| format!("-{line}"));
    let added = new[..new.len() - tail].iter().map(|line| format!("+{line}"));
    let lines = removed.chain(added).collect::<Vec<_>>().join("\n");
    Some(if lines.is_empty() {
        "only the line ends differ".to_owned()
    } else {
        format!("@@ from line {} on\n{lines}", head + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_the_changed_lines_alone() {
        let found = difference("a\nb\nc\n", "a\nx\ny\nc\n").unwrap();
        assert_eq!(found, "@@ from line 2 on\n-b\n+x\n+y");
        assert_eq!(difference("a\n", "a\n"), None);
        assert_eq!(difference("", "a\n").unwrap(), "@@ from line 1 on\n+a");
        assert_eq!(difference("a\na\n", "a\n").unwrap(), "@@ from line 2 on\n-a");
        assert_eq!(difference("a", "a\n").unwrap(), "only the line ends differ");
    }
}
