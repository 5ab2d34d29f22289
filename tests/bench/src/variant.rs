//! Many plugins out of one: podset's component with another API group written over its own, so that each has a digest
//! and a kind of its own, and the code of a real plugin.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::programs::Host;

/// podset's group.
const GROUP: &[u8] = b"app.example.com";
/// Four digits have the number.
const MOST: usize = 10_000;

/// Writes the first variants into a folder.
pub(crate) fn write(host: &Host, folder: &Path, variants: usize) -> Result<()> {
    let component = host.plugin("podset")?;
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    for number in 0..variants {
        let path = folder.join(format!("p{number:04}.wasm"));
        fs::write(&path, of(&component, number)?).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// The variant of this number: its group is `p0000.bench.com` to `p9999.bench.com`.
fn of(component: &[u8], number: usize) -> Result<Vec<u8>> {
    ensure!(number < MOST, "there are {MOST} variants of a plugin at most");
    let group = format!("p{number:04}.bench.com").into_bytes();
    let mut variant = component.to_vec();
    let places = component.windows(GROUP.len()).enumerate().filter(|(_, window)| *window == GROUP).map(|(at, _)| at);
    let places = places.collect::<Vec<_>>();
    // If some were missed, two plugins would own one kind, and one of them would not become ready.
    ensure!(!places.is_empty(), "the component does not contain the text {}", String::from_utf8_lossy(GROUP));
    for at in places {
        variant[at..at + GROUP.len()].copy_from_slice(&group);
    }
    Ok(variant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_differs_in_its_group_alone() {
        let component = b"\0asm app.example.com/v1alpha1 app.example.com";
        assert_eq!(of(component, 7).unwrap(), b"\0asm p0007.bench.com/v1alpha1 p0007.bench.com");
        assert!(of(b"\0asm", 7).is_err());
        assert!(of(component, MOST).is_err());
    }
}
