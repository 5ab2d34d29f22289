//! Objects in expressions: `Object.spec{replicas: 1}` and `JSONPatch{op: "add"}` are maps with the names of types. Input: a
//! parsed expression. Output: the same with maps in their place, or what is wrong with their types. It must not know policies.

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, LiteralValue, MapEntryExpr, MapExpr, StructExpr};

/// Replaces objects by maps. The type of an object in a field is the one around it with the field's name.
pub(super) fn as_maps(expression: &mut IdedExpr) -> Result<(), String> {
    walk(expression, None)
}

fn walk(expression: &mut IdedExpr, wanted: Option<&str>) -> Result<(), String> {
    match &mut expression.expr {
        Expr::Struct(object) => {
            let map = map(std::mem::take(object), wanted)?;
            expression.expr = Expr::Map(map);
            Ok(())
        }
        Expr::List(list) => list.elements.iter_mut().try_for_each(|item| walk(item, wanted)),
        Expr::Map(map) => map.entries.iter_mut().try_for_each(|entry| match &mut entry.expr {
            EntryExpr::MapEntry(entry) => walk(&mut entry.value, wanted),
            EntryExpr::StructField(_) => Ok(()),
        }),
        Expr::Call(call) => {
            let target = call.target.as_deref_mut().into_iter();
            target.chain(&mut call.args).try_for_each(|part| walk(part, None))
        }
        Expr::Select(select) => walk(&mut select.operand, None),
        Expr::Comprehension(of) => {
            let parts = [&mut of.iter_range, &mut of.accu_init, &mut of.loop_cond, &mut of.loop_step, &mut of.result];
            parts.into_iter().try_for_each(|part| walk(part, None))
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Ok(()),
    }
}

fn map(object: StructExpr, wanted: Option<&str>) -> Result<MapExpr, String> {
    let name = object.type_name;
    if let Some(wanted) = wanted.filter(|wanted| *wanted != name) {
        let rule = "which matches field name path from root Object type";
        return Err(format!("type mismatch: unexpected type name {name:?}, expected {wanted:?}, {rule}"));
    }
    let mut entries = Vec::new();
    for IdedEntryExpr { id, expr } in object.entries {
        let EntryExpr::StructField(mut field) = expr else { continue };
        let below = (name != "JSONPatch").then(|| format!("{name}.{}", field.field));
        walk(&mut field.value, below.as_deref())?;
        let key = IdedExpr { id, expr: Expr::Literal(LiteralValue::String(field.field.as_str().to_owned().into())) };
        let entry = MapEntryExpr { key, value: field.value, optional: field.optional };
        entries.push(IdedEntryExpr { id, expr: EntryExpr::MapEntry(entry) });
    }
    Ok(MapExpr { entries })
}
