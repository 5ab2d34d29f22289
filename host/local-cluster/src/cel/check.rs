//! The types of expressions: fields that a schema does not have, names that nobody declared, operands that do not fit. Input: a
//! parsed expression, and the types of its variables. Output: the type of its value, or what is wrong in the words of
//! Kubernetes' CEL. It must not know schemas.
//!
//! It finds no fault where it does not know a type, and of most functions it knows the result alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SourceInfo};

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Any type.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    List(Arc<Kind>),
    Map(Arc<Kind>, Arc<Kind>),
    /// An object with these fields, as expressions write their names.
    Object(Arc<BTreeMap<String, Kind>>),
    Optional(Arc<Kind>),
}

impl Kind {
    pub(crate) fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    /// A map whose keys are texts.
    pub(crate) fn map(of: Self) -> Self {
        Self::Map(Arc::new(Self::String), Arc::new(of))
    }

    /// Whether nothing is said of what fits it.
    fn is_open(&self) -> bool {
        matches!(self, Self::Dyn | Self::Null | Self::Object(_) | Self::Optional(_))
    }

    /// Whether a value of this type may be one of the other.
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(left), Self::List(right)) => left.may_be(right),
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                key.may_be(other_key) && value.may_be(other_value)
            }
            _ => self.is_open() || other.is_open() || self == other,
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// The type of one of two values.
    fn or(&self, other: &Self) -> Self {
        if self == other { self.clone() } else { Self::Dyn }
    }

    /// How messages name it; objects have names that nobody reads.
    fn name(&self) -> Option<String> {
        Some(match self {
            Self::Dyn => "dyn".to_owned(),
            Self::Null => "null".to_owned(),
            Self::Bool => "bool".to_owned(),
            Self::Int => "int".to_owned(),
            Self::Uint => "uint".to_owned(),
            Self::Double => "double".to_owned(),
            Self::String => "string".to_owned(),
            Self::Bytes => "bytes".to_owned(),
            Self::Timestamp => "timestamp".to_owned(),
            Self::Duration => "duration".to_owned(),
            Self::List(of) => format!("list({})", of.name()?),
            Self::Map(key, value) => format!("map({}, {})", key.name()?, value.name()?),
            Self::Object(_) | Self::Optional(_) => return None,
        })
    }
}

/// Names that are types, or begin the names of some.
const TYPES: [&str; 11] =
    ["bool", "bytes", "double", "google", "int", "list", "map", "null_type", "string", "type", "uint"];
/// What functions with two names begin with.
const SPACES: [&str; 8] = ["sets", "math", "optional", "format", "ip", "jsonpatch", "base64", "lists"];

/// The functions by their results; of some the arguments are looked at before.
const FUNCTIONS: &[(Kind, &[&str])] = &[
    (
        Kind::Bool,
        &[
            "bool",
            "isURL",
            "isIP",
            "isCIDR",
            "isQuantity",
            "isSemver",
            "isInteger",
            "isSorted",
            "isLessThan",
            "isGreaterThan",
            "isUnspecified",
            "isLoopback",
            "isLinkLocalMulticast",
            "isLinkLocalUnicast",
            "isGlobalUnicast",
            "containsIP",
            "containsCIDR",
            "hasValue",
        ],
    ),
    (
        Kind::Int,
        &[
            "int",
            "indexOf",
            "lastIndexOf",
            "compareTo",
            "asInteger",
            "sign",
            "family",
            "prefixLength",
            "getFullYear",
            "getMonth",
            "getDate",
            "getDayOfMonth",
            "getDayOfWeek",
            "getDayOfYear",
            "getHours",
            "getMinutes",
            "getSeconds",
            "getMilliseconds",
            "major",
            "minor",
            "patch",
        ],
    ),
    (Kind::Uint, &["uint"]),
    (Kind::Double, &["double", "asApproximateFloat"]),
    (
        Kind::String,
        &[
            "string",
            "charAt",
            "lowerAscii",
            "upperAscii",
            "replace",
            "substring",
            "trim",
            "format",
            "join",
            "find",
            "reverse",
            "quote",
            "getScheme",
            "getHost",
            "getHostname",
            "getPort",
            "getEscapedPath",
        ],
    ),
    (Kind::Bytes, &["bytes"]),
    (Kind::Timestamp, &["timestamp"]),
    (Kind::Duration, &["duration"]),
    (
        Kind::Dyn,
        &[
            "dyn",
            "type",
            "url",
            "ip",
            "cidr",
            "quantity",
            "semver",
            "add",
            "sub",
            "sum",
            "min",
            "max",
            "findAll",
            "split",
            "getQuery",
            "masked",
            "value",
            "orValue",
            "or",
            "optMap",
            "optFlatMap",
            "validate",
            "slice",
            "flatten",
            "distinct",
            "sort",
            "first",
            "last",
            "_?._",
            "_[?_]",
        ],
    ),
];

/// The type of an expression, or all its faults.
pub(super) fn kind(expression: &IdedExpr, source: &SourceInfo, variables: &[(&str, Kind)]) -> Result<Kind, String> {
    let variables = variables.iter().map(|(name, kind)| ((*name).to_owned(), kind.clone())).collect();
    let mut checker = Checker { variables, faults: Vec::new() };
    let kind = checker.kind(expression);
    if checker.faults.is_empty() {
        return Ok(kind);
    }
    let place = |id: u64| source.offset_for(id).map_or(0, |(start, _)| start as usize);
    let mut faults: Vec<(usize, String)> = checker.faults.into_iter().map(|(id, words)| (place(id), words)).collect();
    faults.sort();
    faults.dedup();
    let shown: Vec<String> = faults.iter().map(|(at, words)| pointed(&source.source, *at, words)).collect();
    Err(shown.join("\n"))
}

/// A fault with the line that it is in, and a pointer below.
fn pointed(source: &str, at: usize, words: &str) -> String {
    let before: String = source.chars().take(at).collect();
    let line = before.matches('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    let text = source.lines().nth(line).unwrap_or_default();
    format!("ERROR: <input>:{}:{}: {words}\n | {text}\n | {}^", line + 1, column + 1, ".".repeat(column))
}

struct Checker {
    /// The innermost last.
    variables: Vec<(String, Kind)>,
    /// With the expressions that they are in.
    faults: Vec<(u64, String)>,
}

impl Checker {
    fn fault(&mut self, id: u64, words: String) -> Kind {
        self.faults.push((id, words));
        Kind::Dyn
    }

    fn find(&self, name: &str) -> Option<&Kind> {
        self.variables.iter().rev().find(|(known, _)| known == name).map(|(_, kind)| kind)
    }

    fn kind(&mut self, expression: &IdedExpr) -> Kind {
        match &expression.expr {
            Expr::Unspecified | Expr::Struct(_) => Kind::Dyn,
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Kind::Bool,
                LiteralValue::Bytes(_) => Kind::Bytes,
                LiteralValue::Double(_) => Kind::Double,
                LiteralValue::Int(_) => Kind::Int,
                LiteralValue::Null => Kind::Null,
                LiteralValue::String(_) => Kind::String,
                LiteralValue::UInt(_) => Kind::Uint,
            },
            Expr::Ident(name) => match self.find(name) {
                Some(kind) => kind.clone(),
                None if TYPES.contains(&name.as_str()) => Kind::Dyn,
                None => self.undeclared(name, expression.id),
            },
            Expr::Select(select) => {
                let operand = self.kind(&select.operand);
                let field = self.field(&operand, &select.field, expression.id);
                if select.test { Kind::Bool } else { field }
            }
            Expr::List(list) => {
                let kinds: Vec<Kind> = list.elements.iter().map(|element| self.kind(element)).collect();
                let known = list.optional_indices.is_empty();
                let of = kinds.into_iter().reduce(|left, right| left.or(&right)).filter(|_| known);
                Kind::list(of.unwrap_or(Kind::Dyn))
            }
            Expr::Map(map) => {
                let mut kinds: Option<(Kind, Kind)> = None;
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    let (key, value) = (self.kind(&entry.key), self.kind(&entry.value));
                    kinds = Some(
                        kinds.map_or((key.clone(), value.clone()), |(keys, values)| (keys.or(&key), values.or(&value))),
                    );
                }
                let (key, value) = kinds.unwrap_or((Kind::Dyn, Kind::Dyn));
                Kind::Map(Arc::new(key), Arc::new(value))
            }
            Expr::Call(call) => self.call(call, expression.id),
            Expr::Comprehension(of) => self.comprehension(of),
        }
    }

    fn undeclared(&mut self, name: &str, id: u64) -> Kind {
        self.fault(id, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn field(&mut self, operand: &Kind, field: &str, id: u64) -> Kind {
        match operand {
            Kind::Object(fields) => match fields.get(field) {
                Some(kind) => kind.clone(),
                None => self.fault(id, format!("undefined field '{field}'")),
            },
            Kind::Map(_, value) => (**value).clone(),
            Kind::Dyn | Kind::Null | Kind::Optional(_) => Kind::Dyn,
            other => {
                let name = other.name().unwrap_or_default();
                self.fault(id, format!("type '{name}' does not support field selection"))
            }
        }
    }

    fn call(&mut self, call: &CallExpr, id: u64) -> Kind {
        let name = call.func_name.as_str();
        let space = call.target.as_deref().and_then(|target| match &target.expr {
            Expr::Ident(space) if self.find(space).is_none() && SPACES.contains(&space.as_str()) => {
                Some(space.as_str())
            }
            _ => None,
        });
        let target = match (&call.target, space) {
            (Some(target), None) => Some(self.kind(target)),
            _ => None,
        };
        let arguments: Vec<Kind> = call.args.iter().map(|argument| self.kind(argument)).collect();
        if let Some(space) = space {
            return if space == "sets" { Kind::Bool } else { Kind::Dyn };
        }
        let all: Vec<&Kind> = target.iter().chain(&arguments).collect();
        if let Some(kind) = operator(name, &all) {
            return kind;
        }
        match FUNCTIONS.iter().find(|(_, names)| names.contains(&name)) {
            Some((kind, _)) => kind.clone(),
            None if !is_checked(name) => self.undeclared(name, id),
            None => {
                let names: Option<Vec<String>> = arguments.iter().map(Kind::name).collect();
                let (Some(names), Some(target)) =
                    (names, target.as_ref().map_or(Some(None), |kind| kind.name().map(Some)))
                else {
                    return Kind::Dyn;
                };
                let target = target.map(|target| format!("{target}.")).unwrap_or_default();
                let applied = format!("{target}({})", names.join(", "));
                self.fault(id, format!("found no matching overload for '{name}' applied to '{applied}'"))
            }
        }
    }

    /// What macros such as `all` are made of.
    fn comprehension(&mut self, of: &ComprehensionExpr) -> Kind {
        let range = self.kind(&of.iter_range);
        let (first, second) = match (&range, &of.iter_var2) {
            (Kind::List(item), Some(_)) => (Kind::Int, (**item).clone()),
            (Kind::List(item), None) => ((**item).clone(), Kind::Dyn),
            (Kind::Map(key, value), _) => ((**key).clone(), (**value).clone()),
            (open, _) if open.is_open() => (Kind::Dyn, Kind::Dyn),
            (other, _) => {
                let name = other.name().unwrap_or_default();
                let rule = "cannot be range of a comprehension (must be list, map, or dynamic)";
                self.fault(of.iter_range.id, format!("expression of type '{name}' {rule}"));
                (Kind::Dyn, Kind::Dyn)
            }
        };
        let begun = self.kind(&of.accu_init);
        let outside = self.variables.len();
        self.variables.push((of.iter_var.clone(), first));
        self.variables.extend(of.iter_var2.iter().map(|name| (name.clone(), second.clone())));
        self.variables.push((of.accu_var.clone(), begun.clone()));
        self.kind(&of.loop_cond);
        let step = self.kind(&of.loop_step);
        self.variables.truncate(outside);
        // A list that is begun empty says nothing of its items.
        let gathered = if begun == Kind::list(Kind::Dyn) { step } else { begun };
        self.variables.push((of.accu_var.clone(), gathered));
        let result = self.kind(&of.result);
        self.variables.truncate(outside);
        result
    }
}

/// Whether `operator` knows all that a function may be given.
fn is_checked(name: &str) -> bool {
    matches!(name, "size" | "contains" | "startsWith" | "endsWith" | "matches")
        || name.starts_with(['_', '!', '-', '@'])
}

/// The type of an operator's value, or of a function's whose arguments are looked at; none if they do not fit.
fn operator(name: &str, all: &[&Kind]) -> Option<Kind> {
    use Kind::{Bool, Double, Duration, Dyn, Int, List, Map, String, Timestamp, Uint};
    let fit = |kind: &Kind| all.iter().all(|one| one.may_be(kind));
    let open = all.iter().any(|one| one.is_open());
    match (name, all) {
        ("_&&_" | "_||_" | "!_", _) => fit(&Bool).then_some(Bool),
        ("@not_strictly_false", _) => Some(Bool),
        ("_==_" | "_!=_", [left, right]) => left.may_be(right).then_some(Bool),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [left, right]) => {
            let comparable = left == right && !matches!(left, List(_) | Map(..));
            (open || comparable || left.is_number() && right.is_number()).then_some(Bool)
        }
        ("_?:_" | "_?_:_", [condition, left, right]) => {
            (condition.may_be(&Bool) && left.may_be(right)).then(|| left.or(right))
        }
        ("@in", [item, List(of)]) => item.may_be(of).then_some(Bool),
        ("@in", [item, Map(key, _)]) => item.may_be(key).then_some(Bool),
        ("@in", [_, other]) => other.is_open().then_some(Bool),
        ("_[_]", [List(of), at]) => at.may_be(&Int).then(|| (**of).clone()),
        ("_[_]", [Map(key, value), at]) => at.may_be(key).then(|| (**value).clone()),
        ("_[_]", [other, _]) => other.is_open().then_some(Dyn),
        ("_+_", [Timestamp, Duration] | [Duration, Timestamp]) => Some(Timestamp),
        ("_-_", [Timestamp, Duration]) => Some(Timestamp),
        ("_-_", [Timestamp, Timestamp]) => Some(Duration),
        ("_+_", [List(left), List(right)]) => {
            Some(Kind::list(if **left == Dyn { (**right).clone() } else { left.or(right) }))
        }
        ("_+_", [left, right]) if left == right => {
            (open || left.is_number() || matches!(left, String | Kind::Bytes | Duration)).then(|| (*left).clone())
        }
        ("_-_", [left, right]) if left == right => {
            (open || left.is_number() || **left == Duration).then(|| (*left).clone())
        }
        ("_*_" | "_/_", [left, right]) if left == right => (open || left.is_number()).then(|| (*left).clone()),
        ("_%_", [left, right]) if left == right => (open || matches!(left, Int | Uint)).then(|| (*left).clone()),
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", _) => open.then_some(Dyn),
        ("-_", [of]) => (open || matches!(of, Int | Double)).then(|| (*of).clone()),
        ("size", [of]) => (open || matches!(of, String | Kind::Bytes | List(_) | Map(..))).then_some(Int),
        ("contains" | "startsWith" | "endsWith" | "matches", [_, _]) => fit(&String).then_some(Bool),
        _ => None,
    }
}
