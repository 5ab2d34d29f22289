//! What Kubernetes adds to CEL: URLs, addresses, quantities, regular expressions, lists and sets. Input: values. Output: a
//! value. It must not know how functions are found.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

use cel::objects::Opaque;
use cel::{ExecutionError, Value};
use regex::Regex;

use crate::format::is_uri;
use crate::quantity::Quantity;

pub(super) type Answer = Result<Value, ExecutionError>;

/// What a function gets besides bare values.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Thing {
    Quantity(Quantity),
    Url(String),
    Ip(IpAddr),
    Cidr(IpAddr, u8),
}

impl Opaque for Thing {
    fn runtime_type_name(&self) -> &str {
        match self {
            Thing::Quantity(_) => "kubernetes.Quantity",
            Thing::Url(_) => "kubernetes.URL",
            Thing::Ip(_) => "net.IP",
            Thing::Cidr(..) => "net.CIDR",
        }
    }
}

fn fault(message: impl ToString) -> ExecutionError {
    ExecutionError::FunctionError { function: String::new(), message: message.to_string() }
}

fn mismatch() -> ExecutionError {
    ExecutionError::UnexpectedType { got: String::new(), want: String::new() }
}

fn thing(value: Thing) -> Value {
    Value::Opaque(Arc::new(value))
}

fn string(text: impl Into<String>) -> Value {
    Value::String(Arc::new(text.into()))
}

fn of(value: &Value) -> Result<&Thing, ExecutionError> {
    match value {
        Value::Opaque(opaque) => opaque.downcast_ref::<Thing>().ok_or_else(mismatch),
        _ => Err(mismatch()),
    }
}

fn text(value: &Value) -> Result<&str, ExecutionError> {
    if let Value::String(text) = value { Ok(text) } else { Err(mismatch()) }
}

fn int(value: &Value) -> Result<i64, ExecutionError> {
    if let Value::Int(number) = value { Ok(*number) } else { Err(mismatch()) }
}

fn list(value: &Value) -> Result<&[Value], ExecutionError> {
    if let Value::List(items) = value { Ok(items) } else { Err(mismatch()) }
}

fn parsed_ip(text: &str) -> Option<IpAddr> {
    let ip = text.parse().ok()?;
    // Mapped addresses are not allowed.
    if matches!(ip, IpAddr::V6(six) if six.to_ipv4_mapped().is_some()) { None } else { Some(ip) }
}

fn parsed_cidr(text: &str) -> Option<Thing> {
    let (address, bits) = text.split_once('/')?;
    let address = parsed_ip(address)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits: u8 = bits.parse().ok().filter(|bits| *bits <= most)?;
    Some(Thing::Cidr(address, bits))
}

/// The bits of an address, at the left of 128.
fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(four.to_bits()) << 96,
        IpAddr::V6(six) => six.to_bits(),
    }
}

fn mask(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

fn contains(of: (IpAddr, u8), address: IpAddr, bits: u8) -> bool {
    of.0.is_ipv4() == address.is_ipv4() && of.1 <= bits && (bits_of(of.0) ^ bits_of(address)) & mask(of.1) == 0
}

fn order(a: &Value, b: &Value) -> Result<Ordering, ExecutionError> {
    a.partial_cmp(b).ok_or_else(mismatch)
}

fn regex(source: &Value) -> Result<Regex, ExecutionError> {
    Regex::new(text(source)?).map_err(|error| fault(format!("Illegal regex: {error}")))
}

/// The parts of a URL: scheme, host with port, path, query.
fn url_parts(url: &str) -> (&str, &str, &str, &str) {
    let (rest, _) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = match rest.split_once(':') {
        Some((scheme, after)) if !scheme.contains('/') => (scheme, after),
        _ => ("", rest),
    };
    let Some(after) = rest.strip_prefix("//") else { return (scheme, "", rest, query) };
    let (host, path) = after.split_at(after.find('/').unwrap_or(after.len()));
    (scheme, host.rsplit('@').next().unwrap_or(host), path, query)
}

fn host_and_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
        _ => (host, ""),
    }
}

/// A function of the arguments, the target of a method first.
pub(super) fn call(name: &str, args: &[Value]) -> Answer {
    let first = args.first().ok_or_else(mismatch)?;
    match name {
        "find" | "findAll" | "isURL" | "url" => strings(name, first, &args[1..]),
        "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" | "getQuery" => url_part(name, first),
        "sum" | "min" | "max" | "isSorted" | "indexOf" | "lastIndexOf" => lists(name, list(first)?, &args[1..]),
        "sets.contains" | "sets.intersects" | "sets.equivalent" => {
            let (these, those) = (list(first)?, list(args.get(1).ok_or_else(mismatch)?)?);
            let within = |inner: &[Value], outer: &[Value]| inner.iter().all(|item| outer.contains(item));
            Ok(Value::Bool(match name {
                "sets.contains" => within(those, these),
                "sets.intersects" => those.iter().any(|item| these.contains(item)),
                _ => within(these, those) && within(those, these),
            }))
        }
        "jsonpatch.escapeKey" => Ok(string(text(first)?.replace('~', "~0").replace('/', "~1"))),
        "isIP" | "ip" | "ip.isCanonical" | "isCIDR" | "cidr" => address(name, text(first)?),
        "quantity" | "isQuantity" => {
            let quantity = Quantity::parse(text(first)?);
            match name {
                "quantity" => quantity.map(|quantity| thing(Thing::Quantity(quantity))).map_err(fault),
                _ => Ok(Value::Bool(quantity.is_ok())),
            }
        }
        _ => method(name, of(first)?, &args[1..]),
    }
}

fn strings(name: &str, first: &Value, more: &[Value]) -> Answer {
    match name {
        "isURL" => Ok(Value::Bool(is_uri(text(first)?))),
        "url" => {
            let url = text(first)?;
            if !is_uri(url) {
                return Err(fault(format!(
                    "URL parse error during conversion from string: parse {url:?}: invalid URI for request"
                )));
            }
            Ok(thing(Thing::Url(url.to_owned())))
        }
        "find" => {
            let found =
                regex(more.first().ok_or_else(mismatch)?)?.find(text(first)?).map(|found| found.as_str().to_owned());
            Ok(string(found.unwrap_or_default()))
        }
        _ => {
            let most = more.get(1).map(int).transpose()?.and_then(|most| usize::try_from(most).ok());
            let regex = regex(more.first().ok_or_else(mismatch)?)?;
            let found =
                regex.find_iter(text(first)?).take(most.unwrap_or(usize::MAX)).map(|found| string(found.as_str()));
            Ok(Value::List(Arc::new(found.collect())))
        }
    }
}

fn url_part(name: &str, url: &Value) -> Answer {
    let Thing::Url(url) = of(url)? else { return Err(mismatch()) };
    let (scheme, host, path, query) = url_parts(url);
    Ok(match name {
        "getScheme" => string(scheme),
        "getHost" => string(host),
        "getHostname" => string(host_and_port(host).0.trim_matches(['[', ']'])),
        "getPort" => string(host_and_port(host).1),
        "getEscapedPath" => string(path),
        _ => {
            let mut entries: std::collections::HashMap<String, Vec<Value>> = std::collections::HashMap::new();
            for pair in query.split('&').filter(|pair| !pair.is_empty()) {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                entries.entry(key.to_owned()).or_default().push(string(value));
            }
            Value::from(entries)
        }
    })
}

fn lists(name: &str, items: &[Value], more: &[Value]) -> Answer {
    let place = |at: Option<usize>| Value::Int(at.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1));
    match name {
        "indexOf" => {
            let wanted = more.first().ok_or_else(mismatch)?;
            Ok(place(items.iter().position(|item| item == wanted)))
        }
        "lastIndexOf" => {
            let wanted = more.first().ok_or_else(mismatch)?;
            Ok(place(items.iter().rposition(|item| item == wanted)))
        }
        "isSorted" => {
            for pair in items.windows(2) {
                if order(&pair[0], &pair[1])? == Ordering::Greater {
                    return Ok(Value::Bool(false));
                }
            }
            Ok(Value::Bool(true))
        }
        "sum" => items.iter().try_fold(Value::Int(0), |sum, item| match (&sum, item) {
            (Value::Int(sum), Value::Int(more)) => {
                sum.checked_add(*more).map(Value::Int).ok_or_else(|| fault("integer overflow"))
            }
            (Value::Int(0), first) => Ok(first.clone()),
            (Value::Float(sum), Value::Float(more)) => Ok(Value::Float(sum + more)),
            (Value::UInt(sum), Value::UInt(more)) => {
                sum.checked_add(*more).map(Value::UInt).ok_or_else(|| fault("integer overflow"))
            }
            _ => Err(mismatch()),
        }),
        _ => {
            let wanted = if name == "min" { Ordering::Less } else { Ordering::Greater };
            let first = items.first().ok_or_else(|| fault(format!("{name} called on empty list")))?;
            let best = items
                .iter()
                .skip(1)
                .try_fold(first, |best, item| order(item, best).map(|found| if found == wanted { item } else { best }));
            best.cloned()
        }
    }
}

fn address(name: &str, text: &str) -> Answer {
    let (ip, cidr) = (parsed_ip(text), parsed_cidr(text));
    Ok(match name {
        "isIP" => Value::Bool(ip.is_some()),
        "isCIDR" => Value::Bool(cidr.is_some()),
        "ip" => thing(Thing::Ip(
            ip.ok_or_else(|| fault(format!("IP Address {text:?} parse error during conversion from string")))?,
        )),
        "cidr" => thing(
            cidr.ok_or_else(|| fault(format!("network address parse error during conversion from string: {text:?}")))?,
        ),
        _ => Value::Bool(
            ip.ok_or_else(|| fault(format!("IP Address {text:?} parse error during conversion from string")))?
                .to_string()
                == text,
        ),
    })
}

/// The methods of what `quantity`, `ip` and `cidr` give.
fn method(name: &str, target: &Thing, more: &[Value]) -> Answer {
    match target {
        Thing::Quantity(quantity) => quantity_method(name, *quantity, more),
        Thing::Ip(ip) => Ok(match name {
            "family" => Value::Int(if ip.is_ipv4() { 4 } else { 6 }),
            "isUnspecified" => Value::Bool(ip.is_unspecified()),
            "isLoopback" => Value::Bool(ip.is_loopback()),
            "isLinkLocalMulticast" => Value::Bool(match ip {
                IpAddr::V4(four) => four.octets()[..3] == [224, 0, 0],
                IpAddr::V6(six) => six.segments()[0] & 0xff0f == 0xff02,
            }),
            "isLinkLocalUnicast" => Value::Bool(match ip {
                IpAddr::V4(four) => four.is_link_local(),
                IpAddr::V6(six) => six.is_unicast_link_local(),
            }),
            "isGlobalUnicast" => {
                let local = match ip {
                    IpAddr::V4(four) => four.is_link_local() || four.is_broadcast(),
                    IpAddr::V6(six) => six.is_unicast_link_local(),
                };
                Value::Bool(!local && !ip.is_loopback() && !ip.is_multicast() && !ip.is_unspecified())
            }
            "string" => string(ip.to_string()),
            _ => return Err(mismatch()),
        }),
        Thing::Cidr(network, bits) => cidr_method(name, (*network, *bits), more),
        Thing::Url(_) => Err(mismatch()),
    }
}

fn quantity_method(name: &str, quantity: Quantity, more: &[Value]) -> Answer {
    let other = || match more.first() {
        Some(Value::Int(number)) => Ok(Quantity::of(*number)),
        Some(value) => match of(value)? {
            Thing::Quantity(other) => Ok(*other),
            _ => Err(mismatch()),
        },
        None => Err(mismatch()),
    };
    Ok(match name {
        "isInteger" => Value::Bool(quantity.is_integer()),
        "asInteger" => Value::Int(quantity.as_integer().ok_or_else(|| fault("cannot convert value to integer"))?),
        "asApproximateFloat" => Value::Float(quantity.approximate()),
        "sign" => Value::Int(quantity.sign()),
        "add" => thing(Thing::Quantity(quantity.plus(other()?))),
        "sub" => thing(Thing::Quantity(quantity.minus(other()?))),
        "isLessThan" => Value::Bool(quantity < other()?),
        "isGreaterThan" => Value::Bool(quantity > other()?),
        "compareTo" => Value::Int(quantity.cmp(&other()?) as i64),
        _ => return Err(mismatch()),
    })
}

fn cidr_method(name: &str, (network, bits): (IpAddr, u8), more: &[Value]) -> Answer {
    let masked = || match network {
        IpAddr::V4(four) => IpAddr::V4((four.to_bits() & u32::try_from(mask(bits) >> 96).unwrap_or(u32::MAX)).into()),
        IpAddr::V6(six) => IpAddr::V6((six.to_bits() & mask(bits)).into()),
    };
    Ok(match name {
        "prefixLength" => Value::Int(bits.into()),
        "masked" => thing(Thing::Cidr(masked(), bits)),
        "ip" => thing(Thing::Ip(network)),
        "string" => string(format!("{network}/{bits}")),
        "containsIP" | "containsCIDR" => {
            let given = more.first().ok_or_else(mismatch)?;
            let parsed = match given {
                Value::String(text) if name == "containsIP" => parsed_ip(text).map(Thing::Ip),
                Value::String(text) => parsed_cidr(text),
                _ => None,
            };
            let found = match (&parsed, given) {
                (Some(parsed), _) => parsed,
                (None, Value::String(text)) => {
                    return Err(fault(format!("{text:?} parse error during conversion from string")));
                }
                (None, given) => of(given)?,
            };
            Value::Bool(match found {
                Thing::Ip(ip) => contains((network, bits), *ip, 128),
                Thing::Cidr(ip, inner) => contains((network, bits), *ip, *inner),
                _ => return Err(mismatch()),
            })
        }
        _ => return Err(mismatch()),
    })
}
