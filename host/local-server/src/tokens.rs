//! The file of static tokens, in the form of kube-apiserver's `--token-auth-file`. Input: lines. Output: tokens with their
//! users. It must not know what users may do.

use std::path::Path;

use anyhow::{Context, Result, bail};
use mortise_local_cluster::User;

/// Reads lines of `token,user,uid` and optionally `,"group1,group2"`.
///
/// # Errors
/// The file that cannot be read, or the line that is no token.
pub fn read(path: &Path) -> Result<Vec<(String, User)>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read the token file {}", path.display()))?;
    parse(&text).with_context(|| format!("read the token file {}", path.display()))
}

fn parse(text: &str) -> Result<Vec<(String, User)>> {
    let mut tokens = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut parts = line.splitn(4, ',').map(str::trim);
        let (Some(token), Some(name), Some(uid)) = (parts.next(), parts.next(), parts.next()) else {
            bail!("line {}: it must be token,user,uid and may go on with ,\"group1,group2\"", index + 1);
        };
        if token.is_empty() {
            bail!("line {}: the token is empty", index + 1);
        }
        let groups = parts.next().unwrap_or_default().trim_matches('"').split(',').map(str::trim);
        let groups = groups.filter(|group| !group.is_empty()).map(str::to_owned).collect();
        tokens.push((token.to_owned(), User { name: name.to_owned(), uid: uid.to_owned(), groups, extra: Vec::new() }));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_token_with_its_user_and_groups() {
        let tokens = parse("t1,admin,1,system:masters\n\nt2, viewer ,2\nt3,c,3,\"a,b\"\n").unwrap();
        let found = tokens.iter().map(|(token, user)| format!("{token} {} {} {:?}", user.name, user.uid, user.groups));
        let found = found.collect::<Vec<_>>();
        assert_eq!(found, [r#"t1 admin 1 ["system:masters"]"#, "t2 viewer 2 []", r#"t3 c 3 ["a", "b"]"#]);
        for (text, why) in [("a,b", "line 1: it must be"), ("\n,b,c", "line 2: the token is empty")] {
            assert!(parse(text).unwrap_err().to_string().starts_with(why));
        }
    }
}
