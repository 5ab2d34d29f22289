//! What Pods request, added up. Input: a Pod. Output: quantities, or amounts in thousandths. It must not know nodes and quotas.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::quantity::Quantity;

/// Amounts in thousandths, by resource, such as `cpu`.
pub(crate) type Amounts = BTreeMap<String, i64>;

/// A quantity in thousandths, rounded up. What is no quantity is none; what is too large is the largest.
pub(crate) fn parse(value: &Value) -> Option<i64> {
    Quantity::read(value).ok().map(Quantity::thousandths)
}

/// The canonical text of thousandths: with binary suffixes, or with decimal ones.
pub(crate) fn format(thousandths: i64, binary: bool) -> String {
    Quantity::of_thousandths(thousandths, binary).text()
}

/// Quantities by the name of their resource.
pub(crate) type Quantities = BTreeMap<String, Quantity>;

/// The quantities in a map of an object; what is no quantity is left out.
pub(crate) fn quantities(value: &Value) -> Quantities {
    let all = value.as_object().into_iter().flatten();
    all.filter_map(|(name, amount)| Some((name.clone(), Quantity::read(amount).ok()?))).collect()
}

/// What a Pod asks of a node (`requests`), or may use of it (`limits`), in thousandths.
pub(crate) fn of_pod(pod: &Value, what: &str) -> Amounts {
    needs(pod, what).into_iter().map(|(name, quantity)| (name, quantity.thousandths())).collect()
}

/// What a Pod needs as a whole: its containers together, or what starting takes if that is more.
pub(crate) fn needs(pod: &Value, what: &str) -> Quantities {
    let spec = &pod["spec"];
    let containers = |list: &str| spec[list].as_array().into_iter().flatten();
    let mut total = Quantities::new();
    for container in containers("containers") {
        add(&mut total, &quantities(&container["resources"][what]));
    }
    let (mut sidecars, mut start) = (Quantities::new(), Quantities::new());
    for container in containers("initContainers") {
        let mut needed = quantities(&container["resources"][what]);
        if container["restartPolicy"] == "Always" {
            add(&mut total, &needed);
            add(&mut sidecars, &needed);
            needed = sidecars.clone();
        } else {
            add(&mut needed, &sidecars);
        }
        most(&mut start, needed);
    }
    most(&mut total, start);
    total.extend(quantities(&spec["resources"][what]));
    let overhead = quantities(&spec["overhead"]);
    let counted = overhead.into_iter().filter(|(name, _)| what == "requests" || total.contains_key(name));
    let counted: Quantities = counted.collect();
    add(&mut total, &counted);
    total
}

pub(crate) fn add(total: &mut Quantities, more: &Quantities) {
    for (name, amount) in more {
        let sum = total.get(name).map_or(*amount, |known| known.plus(*amount));
        total.insert(name.clone(), sum);
    }
}

fn most(total: &mut Quantities, other: Quantities) {
    for (name, amount) in other {
        if total.get(&name).is_none_or(|known| known.nano < amount.nano) {
            total.insert(name, amount);
        }
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
