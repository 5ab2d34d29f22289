//! What Pods request, as controllers add it up. Input: a Pod. Output: amounts in thousandths. It must not know nodes and
//! quotas.

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
