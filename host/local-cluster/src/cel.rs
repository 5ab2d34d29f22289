//! Expressions in CEL, as validation rules and admission policies have them. Input: text, and named variables in JSON.
//! Output: a value in JSON, or what is wrong. It must not know what expressions are asked for.

mod check;
mod functions;
mod library;
mod objects;

use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cel::objects::{Key, Map, OptionalValue};
use cel::{Context, Env, ExecutionError, IdedExpr, Value as Cel};
use serde_json::{Value, json};

pub(crate) use self::check::Kind;

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Program {
    parsed: cel::Program,
    /// The same, with maps in the place of objects.
    expression: IdedExpr,
}

/// What a variable is bound to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound<'a> {
    Value(&'a Value),
    /// An optional, such as an `oldSelf` that may be absent.
    Optional(Option<&'a Value>),
}

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    env.add_extension(cel::extensions::strings).expect("the standard library has no such functions");
    library::extend(&mut env).expect("no two functions have the same arguments");
    Arc::new(env)
});

impl Program {
    /// Compiles an expression, or says what is wrong with it.
    pub(crate) fn compile(text: &str) -> Result<Self, String> {
        let parsed = ENV.compile(text).map_err(|error| format!("compilation failed: {error}"))?;
        let mut expression = parsed.expression().clone();
        objects::as_maps(&mut expression)?;
        Ok(Self { parsed, expression })
    }

    /// The type of its value under variables of these types, or what does not fit.
    pub(crate) fn kind(&self, variables: &[(&str, Kind)]) -> Result<Kind, String> {
        check::kind(self.parsed.expression(), self.parsed.source_info(), variables)
    }

    /// Whether it reads a variable.
    pub(crate) fn uses(&self, variable: &str) -> bool {
        self.parsed.references().has_variable(variable)
    }

    /// The value of the expression under these variables.
    pub(crate) fn evaluate(&self, variables: &[(&str, &Value)]) -> Result<Value, String> {
        let bound: Vec<(&str, Bound<'_>)> =
            variables.iter().map(|(name, value)| (*name, Bound::Value(value))).collect();
        self.evaluate_bound(&bound)
    }

    /// The same, with variables that may be optional.
    pub(crate) fn evaluate_bound(&self, variables: &[(&str, Bound<'_>)]) -> Result<Value, String> {
        let mut context = Context::with_env(ENV.clone());
        for (name, bound) in variables {
            let value = match bound {
                Bound::Value(value) => from_json(value),
                Bound::Optional(None) => Cel::Opaque(Arc::new(OptionalValue::none())),
                Bound::Optional(Some(value)) => Cel::Opaque(Arc::new(OptionalValue::of(from_json(value)))),
            };
            context.add_variable_from_value(*name, value);
        }
        let value = Cel::resolve(&self.expression, &context).map_err(|error| in_words(&error))?;
        value.json().map_err(|error| error.to_string())
    }
}

/// Errors in the words of the API server's CEL.
fn in_words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload(_)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnexpectedType { .. } => "no such overload".to_owned(),
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}' (in container '')"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(at) => match at {
            Cel::Int(at) => format!("index out of bounds: {at}"),
            at => format!("index out of bounds: {at:?}"),
        },
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

fn from_json(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(truth) => Cel::Bool(*truth),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Cel::Int(whole),
            None => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(items) => Cel::List(Arc::new(items.iter().map(from_json).collect())),
        Value::Object(fields) if fields.len() == 1 && fields.keys().all(|name| name.starts_with(TYPED)) => {
            let text = fields.values().next().and_then(Value::as_str).unwrap_or_default();
            converted(fields.keys().next().map_or("", String::as_str).trim_start_matches(TYPED), text)
        }
        Value::Object(fields) => {
            let entries = fields.iter().map(|(name, value)| (Key::String(Arc::new(name.clone())), from_json(value)));
            Cel::Map(Map { map: Arc::new(entries.collect()) })
        }
    }
}

/// What the name of a field begins with that is a text of another type; clients have no such names.
const TYPED: char = '\0';

/// A text that expressions see as a `timestamp`, a `duration` or as `bytes`.
pub(crate) fn typed(kind: &str, text: &str) -> Value {
    json!({ format!("{TYPED}{kind}"): text })
}

/// A text of another type; one that is not of its form stays a text.
fn converted(kind: &str, text: &str) -> Cel {
    static TIMESTAMP: LazyLock<cel::Program> = LazyLock::new(|| ENV.compile("timestamp(x)").expect("it parses"));
    static DURATION: LazyLock<cel::Program> = LazyLock::new(|| ENV.compile("duration(x)").expect("it parses"));
    let plain = || Cel::String(Arc::new(text.to_owned()));
    let program = match kind {
        "bytes" => return STANDARD.decode(text).map_or_else(|_| plain(), |bytes| Cel::Bytes(Arc::new(bytes))),
        "duration" => &DURATION,
        _ => &TIMESTAMP,
    };
    let mut context = Context::with_env(ENV.clone());
    context.add_variable_from_value("x", plain());
    Cel::resolve(program.expression(), &context).unwrap_or_else(|_| plain())
}

/// A field's name as expressions write it: words of the language and letters that identifiers do not have are escaped.
pub(crate) fn as_key(name: &str) -> String {
    const WORDS: [&str; 23] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
        "__proto__",
        "__type__",
    ];
    if WORDS.contains(&name) {
        return format!("__{name}__");
    }
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !name.contains("__");
    if plain {
        return name.to_owned();
    }
    let replaced = name.replace("__", "__underscores__");
    replaced.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expressions_have_the_functions_of_kubernetes() {
        let value = json!({"a": 1, "s": "abc", "l": [3, 1, 2], "m": {"k": "v"}, "f": 1.5});
        for (text, wanted) in [
            ("self.a + 1", json!(2)),
            ("has(self.b)", json!(false)),
            ("self.l.sum() == 6 && self.l.min() == 1 && self.l.max() == 3", json!(true)),
            ("self.l.isSorted() || [1, 1, 2].isSorted()", json!(true)),
            ("self.l.indexOf(1) == 1 && [1, 2, 1].lastIndexOf(1) == 2", json!(true)),
            ("self.s.find('[bc]+')", json!("bc")),
            ("'a1b22'.findAll('[0-9]+')", json!(["1", "22"])),
            ("'a1b22'.findAll('[0-9]+', 1)", json!(["1"])),
            ("self.s.matches('^a') && self.s.upperAscii() == 'ABC'", json!(true)),
            ("'a,b'.split(',').join('-')", json!("a-b")),
            ("'%s is %d'.format(['x', 3])", json!("x is 3")),
            ("isURL('https://a.b:80/c?d=e') && url('https://a.b:80/c?d=e').getHostname() == 'a.b'", json!(true)),
            ("url('https://a.b:80/c?d=e').getPort() + url('/x').getEscapedPath()", json!("80/x")),
            ("isQuantity('1Gi') && !isQuantity('x')", json!(true)),
            ("quantity('1Gi').isGreaterThan(quantity('1M'))", json!(true)),
            ("quantity('500m').add(quantity('500m')).compareTo(quantity('1'))", json!(0)),
            ("quantity('2k').asInteger()", json!(2000)),
            ("isIP('::1') && ip('10.0.0.1').family() == 4 && ip('127.0.0.1').isLoopback()", json!(true)),
            (
                "cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').containsCIDR(cidr('10.1.0.0/16'))",
                json!(true),
            ),
            ("cidr('10.1.0.0/8').masked().prefixLength()", json!(8)),
            (
                "sets.contains([1, 2], [2]) && sets.intersects([1], [1, 2]) && sets.equivalent([1, 2, 2], [2, 1])",
                json!(true),
            ),
            ("self.m.exists(k, k == 'k') && self.l.all(x, x > 0)", json!(true)),
            ("self.f > 1", json!(true)),
            ("duration('1h') > duration('5m')", json!(true)),
        ] {
            let program = Program::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(program.evaluate(&[("self", &value)]), Ok(wanted), "{text}");
        }
        for (text, wanted) in [
            ("self.b", "no such key: b"),
            ("self.a / 0", "division by zero"),
            ("self.s + 1", "no such overload"),
            ("self.l[7]", "index out of bounds: 7"),
        ] {
            let program = Program::compile(text).unwrap();
            assert_eq!(program.evaluate(&[("self", &value)]), Err(wanted.to_owned()), "{text}");
        }
        assert!(Program::compile("self.").is_err());
    }

    #[test]
    fn names_that_are_no_identifiers_are_escaped() {
        for (name, wanted) in [
            ("a", "a"),
            ("a-b", "a__dash__b"),
            ("if", "__if__"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("a__b", "a__underscores__b"),
        ] {
            assert_eq!(as_key(name), wanted);
        }
    }
}
