//! Many plugins out of one: podset's component with another API group written over its own, so that each is a component
//! of its own digest that claims a kind of its own, and yet the code of a real plugin.

use anyhow::{Result, ensure};

/// The group that podset has.
const GROUP: &[u8] = b"app.example.com";
/// Two digits stand for the number.
pub(crate) const MOST: usize = 100;

/// The variant of this number: its group is `p00.example.com` to `p99.example.com`.
pub(crate) fn of(component: &[u8], number: usize) -> Result<Vec<u8>> {
    ensure!(number < MOST, "there are {MOST} variants of a plugin at most");
    let group = format!("p{number:02}.example.com").into_bytes();
    let mut variant = component.to_vec();
    let places = component.windows(GROUP.len()).enumerate().filter(|(_, window)| *window == GROUP).map(|(at, _)| at);
    let places = places.collect::<Vec<_>>();
    // The host says so if these were not all: two plugins would claim one kind, and one of them would not become ready.
    ensure!(!places.is_empty(), "the component does not hold the text {}", String::from_utf8_lossy(GROUP));
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
        assert_eq!(of(component, 7).unwrap(), b"\0asm p07.example.com/v1alpha1 p07.example.com");
        assert!(of(b"\0asm", 7).is_err());
        assert!(of(component, MOST).is_err());
    }
}
