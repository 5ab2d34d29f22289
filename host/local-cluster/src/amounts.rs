//! Quantities, and what Pods request of them. Input: a Pod, or text such as `500m`. Output: amounts in thousandths. It must
//! not know nodes and quotas.

use std::collections::BTreeMap;

use serde_json::Value;

/// Amounts in thousandths, by resource, such as `cpu`.
pub(crate) type Amounts = BTreeMap<String, i64>;

const BINARY: [(&str, i128); 6] =
    [("Ei", 1 << 60), ("Pi", 1 << 50), ("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
const DECIMAL: [(&str, i32); 10] =
    [("E", 18), ("P", 15), ("T", 12), ("G", 9), ("M", 6), ("k", 3), ("", 0), ("m", -3), ("u", -6), ("n", -9)];

/// A quantity in thousandths, rounded up. What is no quantity is none; what is too large is the largest.
pub(crate) fn parse(value: &Value) -> Option<i64> {
    let number;
    let text = match value {
        Value::String(text) => text.trim(),
        Value::Number(plain) => {
            number = plain.to_string();
            &number
        }
        _ => return None,
    };
    let end = text.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c))).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    // A quantity has at most 18 digits that count; longer ones are cut.
    let fraction: String = fraction.chars().take(9).collect();
    let scale = i128::from(10_i64.checked_pow(u32::try_from(fraction.len()).ok()?)?);
    let mantissa: i128 = format!("{whole}{fraction}").parse::<i64>().ok()?.into();
    let thousandths = if let Some((_, factor)) = BINARY.iter().find(|(known, _)| *known == suffix) {
        divide(mantissa.saturating_mul(factor * 1000), scale)
    } else {
        let exponent = match DECIMAL.iter().find(|(known, _)| *known == suffix) {
            Some((_, exponent)) => *exponent,
            None => suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?.clamp(-30, 18),
        };
        let power = 10_i128.pow((exponent + 3).unsigned_abs());
        if exponent + 3 < 0 { divide(mantissa, scale * power) } else { divide(mantissa.saturating_mul(power), scale) }
    };
    Some(i64::try_from(thousandths).unwrap_or(if thousandths < 0 { i64::MIN } else { i64::MAX }))
}

fn divide(amount: i128, by: i128) -> i128 {
    amount.div_euclid(by) + i128::from(amount.rem_euclid(by) != 0)
}

/// The canonical text of thousandths: with binary suffixes, or with decimal ones.
pub(crate) fn format(thousandths: i64, binary: bool) -> String {
    if thousandths == 0 {
        return "0".to_owned();
    }
    let amount = i128::from(thousandths);
    if binary
        && amount % 1000 == 0
        && let Some((suffix, factor)) = BINARY.iter().find(|(_, factor)| amount / 1000 % factor == 0)
    {
        return format!("{}{suffix}", amount / 1000 / factor);
    }
    let fits = |(_, exponent): &&(&str, i32)| amount % 10_i128.pow((exponent + 3).unsigned_abs()) == 0;
    let (suffix, exponent) = DECIMAL.iter().take(8).find(fits).copied().unwrap_or(("m", -3));
    format!("{}{suffix}", amount / 10_i128.pow((exponent + 3).unsigned_abs()))
}

/// What a Pod asks of a node (`requests`), or may use of it (`limits`): all its containers together, or its largest init
/// container, if that is more.
pub(crate) fn of_pod(pod: &Value, what: &str) -> Amounts {
    let spec = &pod["spec"];
    let mut total = Amounts::new();
    for container in spec["containers"].as_array().into_iter().flatten() {
        add(&mut total, &container["resources"][what]);
    }
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in spec["initContainers"].as_array().into_iter().flatten() {
        let resources = &container["resources"][what];
        let mut here = sidecars.clone();
        add(&mut here, resources);
        if container["restartPolicy"] == "Always" {
            add(&mut total, resources);
            sidecars.clone_from(&here);
        }
        for (name, amount) in here {
            let known = peak.entry(name).or_insert(amount);
            *known = amount.max(*known);
        }
    }
    for (name, amount) in peak {
        let known = total.entry(name).or_insert(amount);
        *known = amount.max(*known);
    }
    add(&mut total, &spec["overhead"]);
    total
}

fn add(total: &mut Amounts, list: &Value) {
    for (name, amount) in list.as_object().into_iter().flatten() {
        let sum = total.entry(name.clone()).or_default();
        *sum = sum.saturating_add(parse(amount).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_read_and_written_as_kubernetes_writes_them() {
        for (text, thousandths) in [
            ("100m", 100),
            ("0.1", 100),
            ("1", 1000),
            ("1.5Gi", 1_610_612_736_000),
            ("1e3", 1_000_000),
            ("2k", 2_000_000),
            ("1n", 1),
            ("-2", -2000),
        ] {
            assert_eq!(parse(&json!(text)), Some(thousandths), "{text}");
        }
        assert_eq!((parse(&json!(2)), parse(&json!("x")), parse(&json!(null))), (Some(2000), None, None));
        for (thousandths, binary, text) in [
            (100, false, "100m"),
            (1500, false, "1500m"),
            (2000, false, "2"),
            (2_000_000, false, "2k"),
            (1_610_612_736_000, true, "1536Mi"),
            (0, true, "0"),
        ] {
            assert_eq!(format(thousandths, binary), text);
        }
    }

    #[test]
    fn a_pod_asks_for_its_containers_or_for_its_largest_init_container() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        let pod = json!({"spec": {
            "containers": [{"resources": cpu("1")}, {"resources": cpu("500m")}],
            "initContainers": [
                {"resources": cpu("200m"), "restartPolicy": "Always"}, {"resources": cpu("2")}, {"resources": cpu("1")},
            ],
            "overhead": {"cpu": "10m"},
        }});
        assert_eq!(of_pod(&pod, "requests").get("cpu"), Some(&2210));
    }
}
