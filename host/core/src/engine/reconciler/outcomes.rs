//! How much memory the kept outcomes take. An outcome is kept so that a call whose inputs are unchanged is not repeated (W2);
//! one that does not fit is called again instead, at its plugin's expense.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of all kept outcomes of one plugin: 30,000 of the size of a PodSet's with three Pods, or sixty of the largest that
/// there may be.
const MAX_OF_PLUGIN: usize = 32 << 20;
/// Bytes of all plugins: an eighth of the memory that the Deployment in deploy/ allows the host.
const MAX_TOGETHER: usize = 256 << 20;

/// The bytes that are kept.
#[derive(Debug, Default)]
pub(super) struct OutcomeBytes {
    together: usize,
    of_plugin: BTreeMap<Arc<str>, usize>,
}

impl OutcomeBytes {
    /// Counts an outcome of a plugin, unless it does not fit.
    pub fn keep(&mut self, plugin: &Arc<str>, bytes: usize) -> bool {
        let of_plugin = self.of_plugin.get(plugin).copied().unwrap_or_default() + bytes;
        let fits = of_plugin <= MAX_OF_PLUGIN && self.together + bytes <= MAX_TOGETHER;
        if fits && bytes > 0 {
            self.together += bytes;
            self.of_plugin.insert(Arc::clone(plugin), of_plugin);
        }
        fits
    }

    /// An outcome that was counted is gone.
    pub fn release(&mut self, plugin: &str, bytes: usize) {
        let Some(of_plugin) = self.of_plugin.get_mut(plugin) else { return };
        *of_plugin = of_plugin.saturating_sub(bytes);
        self.together = self.together.saturating_sub(bytes);
        if *of_plugin == 0 {
            self.of_plugin.remove(plugin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_plugin_fills_its_own_share_and_all_together_no_more_than_there_is() {
        let mut bytes = OutcomeBytes::default();
        let name = |number: usize| Arc::<str>::from(number.to_string());
        assert!(bytes.keep(&name(0), MAX_OF_PLUGIN));
        assert!(!bytes.keep(&name(0), 1), "one byte beyond its share");
        let full = (1..20).filter(|number| bytes.keep(&name(*number), MAX_OF_PLUGIN)).count();
        assert_eq!(full, MAX_TOGETHER / MAX_OF_PLUGIN - 1);
        assert!(!bytes.keep(&name(30), 1));
        bytes.release("0", MAX_OF_PLUGIN);
        assert!(bytes.keep(&name(30), 1), "what is given back is another's to use");
        bytes.release("30", 1);
        assert_eq!((bytes.of_plugin.contains_key("30"), bytes.together), (false, MAX_TOGETHER - MAX_OF_PLUGIN));
    }
}
