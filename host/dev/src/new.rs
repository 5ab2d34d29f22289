//! `mortise new`: the folder of a plugin, from templates in the binary. Input: a name and a kind. Output: files. It must not
//! know how they are built.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// What to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPlugin {
    /// The package's name, such as `my-plugin`.
    pub name: String,
    /// The kind that it reconciles; made from the name unless given.
    pub kind: Option<String>,
    /// The kind's group.
    pub group: String,
    /// The value of `mortise-sdk` in Cargo.toml, such as `{ path = "../guest-sdk/rust" }`.
    pub sdk: String,
}

/// The files of a new plugin and their templates.
const FILES: [(&str, &str); 8] = [
    ("Cargo.toml", include_str!("../templates/Cargo.toml.template")),
    ("src/lib.rs", include_str!("../templates/lib.rs.template")),
    ("src/tests.rs", include_str!("../templates/tests.rs.template")),
    ("stories/kept.yaml", include_str!("../templates/kept.yaml.template")),
    ("sample.yaml", include_str!("../templates/sample.yaml.template")),
    ("README.md", include_str!("../templates/README.md.template")),
    (".gitignore", "target/\n.mortise/\n"),
    // Most of a call's memory is otherwise its stack.
    (".cargo/config.toml", "[target.wasm32-wasip2]\nrustflags = [\"-Clink-arg=-zstack-size=131072\"]\n"),
];

/// Makes the folder of a plugin below `parent`; returns its path.
///
/// # Errors
/// A name that cargo or Kubernetes would refuse, or a folder that is there.
pub fn create(parent: &Path, plugin: &NewPlugin) -> anyhow::Result<PathBuf> {
    let kind = plugin.kind.clone().unwrap_or_else(|| camel(&plugin.name));
    check(plugin, &kind)?;
    let folder = parent.join(&plugin.name);
    if folder.exists() {
        bail!("{} exists; choose another name, or remove it", folder.display());
    }
    let words = [
        ("{{name}}", plugin.name.clone()),
        ("{{kind}}", kind.clone()),
        ("{{lower}}", kind.to_lowercase()),
        ("{{group}}", plugin.group.clone()),
        ("{{sdk}}", plugin.sdk.clone()),
    ];
    for (file, template) in FILES {
        let text = words.iter().fold(template.to_owned(), |text, (word, value)| text.replace(word, value));
        let path = folder.join(file);
        let below = path.parent().context("a file lies in a folder")?;
        std::fs::create_dir_all(below).with_context(|| format!("cannot make {}", below.display()))?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(folder)
}

/// `my-plugin` as `MyPlugin`.
fn camel(name: &str) -> String {
    let part = |part: &str| {
        let mut letters = part.chars();
        letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
    };
    name.split('-').map(part).collect()
}

fn check(plugin: &NewPlugin, kind: &str) -> anyhow::Result<()> {
    let name = &plugin.name;
    let letters = name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-');
    let starts = name.starts_with(|letter: char| letter.is_ascii_lowercase());
    if !letters || !starts || name.ends_with('-') || name.contains("--") || name.len() > 63 {
        bail!(
            "{name:?} is no name of a plugin: lower-case letters, digits and single hyphens, beginning with a letter, 63 at most"
        );
    }
    if !kind.starts_with(|letter: char| letter.is_ascii_uppercase())
        || !kind.chars().all(|letter| letter.is_ascii_alphanumeric())
    {
        bail!("{kind:?} is no kind: letters and digits, beginning with a capital one, such as PodSet");
    }
    let label = |label: &str| {
        let letters =
            label.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-');
        !label.is_empty() && letters && !label.starts_with('-') && !label.ends_with('-')
    };
    if !plugin.group.contains('.') || !plugin.group.split('.').all(label) {
        bail!("{:?} is no group: a domain of yours, such as app.example.com", plugin.group);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str, kind: Option<&str>, group: &str) -> NewPlugin {
        let (name, kind, group) = (name.to_owned(), kind.map(str::to_owned), group.to_owned());
        NewPlugin { name, kind, group, sdk: "{ path = \"../sdk\" }".to_owned() }
    }

    #[test]
    fn a_new_plugin_has_no_word_of_its_template_left() {
        let parent = tempfile::tempdir().unwrap();
        let folder = create(parent.path(), &new("web-site", None, "example.com")).unwrap();
        for (file, _) in FILES {
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            assert!(!text.contains("{{"), "{file}: {text}");
        }
        let source = std::fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        assert!(source.contains("kind = \"WebSite\"") && source.contains("struct WebSiteSpec"), "{source}");
        let error = create(parent.path(), &new("web-site", None, "example.com")).unwrap_err().to_string();
        assert!(error.contains("exists"), "{error}");
    }

    #[test]
    fn names_that_cargo_or_kubernetes_refuses_are_refused_with_an_example() {
        let parent = tempfile::tempdir().unwrap();
        for (plugin, word) in [
            (new("Web", None, "example.com"), "lower-case"),
            (new("-a", None, "example.com"), "lower-case"),
            (new("a", Some("web site"), "example.com"), "PodSet"),
            (new("a", None, "example"), "app.example.com"),
        ] {
            let error = create(parent.path(), &plugin).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0, "nothing is left");
    }
}
