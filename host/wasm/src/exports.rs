//! Looks up a component's optional exports by name.

use wasmtime::component::{Component, ComponentExportIndex};

/// The indices of an interface's functions. None when the component does not export it; the error says what it lacks.
pub(crate) fn optional_export<const N: usize>(
    component: &Component,
    interface: &str,
    functions: [&str; N],
) -> Result<Option<[ComponentExportIndex; N]>, String> {
    let Some(exported) = component.get_export_index(None, interface) else { return Ok(None) };
    let indices = functions.map(|name| component.get_export_index(Some(&exported), name));
    let lacking = functions.iter().zip(&indices).find(|(_, index)| index.is_none());
    if let Some((name, _)) = lacking {
        return Err(format!("the component exports {interface} without its function {name}"));
    }
    Ok(Some(indices.map(|index| index.expect("none is lacking"))))
}
