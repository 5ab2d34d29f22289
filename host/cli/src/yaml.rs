//! YAML for `kubectl apply`: documents separated by `---`.

use anyhow::Context;
use serde::Serialize;

pub fn documents<T: Serialize>(objects: &[T]) -> anyhow::Result<String> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(object).context("writing YAML")?);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}
