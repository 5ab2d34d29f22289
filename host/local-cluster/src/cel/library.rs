//! The table of the functions that Kubernetes adds to CEL: which there are, and for how many arguments. It must not know what
//! they do.

use cel::common::types::{DYN_TYPE, LIST_TYPE, Type};
use cel::common::value::{CowVal, Val};
use cel::{DeclarationError, Env, ExecutionError, Value};

use super::functions::call;

/// An overload: it is a function pointer, so each name has one of its own.
type Function = for<'b, 'v> fn(Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError>;

fn by_name<'b, 'v>(name: &str, args: &[CowVal<'b, 'v>]) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let args: Result<Vec<Value>, _> = args.iter().map(|arg| Value::try_from(arg.as_ref())).collect();
    let value: Box<dyn Val> = call(name, &args?)?.try_into()?;
    Ok(CowVal::Owned(value))
}

macro_rules! table {
    ($($name:literal),* $(,)?) => { [$({
        fn function<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<CowVal<'b, 'v>, ExecutionError> {
            by_name($name, &args)
        }
        ($name, function as Function)
    }),*] };
}

/// Adds the functions to an environment.
pub(super) fn extend(env: &mut Env) -> Result<(), DeclarationError> {
    let global = table![
        "isURL",
        "url",
        "isIP",
        "ip",
        "ip.isCanonical",
        "isCIDR",
        "cidr",
        "quantity",
        "isQuantity",
        "jsonpatch.escapeKey"
    ];
    for (name, function) in global {
        env.add_overload(name, &format!("kubernetes_{name}"), vec![DYN_TYPE], function)?;
    }
    for (name, function) in table!["sets.contains", "sets.intersects", "sets.equivalent"] {
        env.add_overload(name, &format!("kubernetes_{name}"), vec![LIST_TYPE, LIST_TYPE], function)?;
    }
    let mut methods = |target: fn() -> Type, arguments: usize, table: &[(&str, Function)]| {
        for (name, function) in table {
            let id = format!("kubernetes_{name}_{arguments}_{}", target().name());
            let arguments = (0..arguments).map(|_| DYN_TYPE).collect();
            env.add_member_overload(name, &id, target(), arguments, *function)?;
        }
        Ok::<(), DeclarationError>(())
    };
    methods(|| LIST_TYPE, 0, &table!["sum", "min", "max", "isSorted"])?;
    methods(|| LIST_TYPE, 1, &table!["indexOf", "lastIndexOf"])?;
    methods(|| DYN_TYPE, 1, &table!["find", "findAll"])?;
    methods(|| DYN_TYPE, 2, &table!["findAll"])?;
    let of_nothing = table![
        "getScheme",
        "getHost",
        "getHostname",
        "getPort",
        "getEscapedPath",
        "getQuery",
        "isInteger",
        "asInteger",
        "asApproximateFloat",
        "sign",
        "family",
        "isUnspecified",
        "isLoopback",
        "isLinkLocalMulticast",
        "isLinkLocalUnicast",
        "isGlobalUnicast",
        "prefixLength",
        "masked",
        "ip",
    ];
    methods(|| DYN_TYPE, 0, &of_nothing)?;
    let of_one = table!["add", "sub", "isLessThan", "isGreaterThan", "compareTo", "containsIP", "containsCIDR"];
    methods(|| DYN_TYPE, 1, &of_one)
}
