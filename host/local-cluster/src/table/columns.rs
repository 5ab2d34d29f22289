//! The columns of built-in kinds, as kube-apiserver's printers have them: a table in a file, and the cells that are more than a
//! field. Input: a kind. Output: its columns. It must not know custom resources.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use serde_json::{Value, json};

use super::cells::{Row, selector};
use super::{pod, workloads};
use crate::published;

/// The table; its first lines say what it has.
static TABLE: &str = include_str!("../../data/columns.txt");

/// One column.
struct Column {
    name: &'static str,
    kind: &'static str,
    /// Whether only `-o wide` shows it.
    wide: bool,
    about: &'static str,
    cell: Cell,
}

/// A field's form: the field, and what the form needs besides.
type Form = fn(Row<'_>, &str, &str) -> Value;
type Special = fn(Row<'_>) -> Value;

/// What is in a cell.
enum Cell {
    /// A form, with the field and what the form needs besides.
    Field(Form, &'static str, &'static str),
    Special(Special),
}

/// The columns of a kind.
pub(super) struct Printer {
    /// Where the fields are described.
    document: &'static str,
    columns: Vec<Column>,
    /// The columns as they are sent, made when they are first asked for.
    sent: OnceLock<Value>,
}

impl Printer {
    pub(super) fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let cell = |column: &Column| match &column.cell {
            Cell::Field(form, field, more) => form(*row, field, more),
            Cell::Special(cell) => cell(*row),
        };
        self.columns.iter().map(cell).collect()
    }

    pub(super) fn definitions(&self) -> &Value {
        self.sent.get_or_init(|| {
            let column = |column: &Column| {
                // `Attacher` has this format by an oversight that clients may see.
                let format = if matches!(column.name, "Name" | "Attacher") { "name" } else { "" };
                let about = match column.about.split_once('.') {
                    Some((kind, field)) if !column.about.contains(' ') => {
                        published::field_description(self.document, kind, field)
                    }
                    _ => column.about.to_owned(),
                };
                let priority = i32::from(column.wide);
                json!({"name": column.name, "type": column.kind, "format": format, "description": about, "priority": priority})
            };
            self.columns.iter().map(column).collect()
        })
    }
}

/// The columns of a kind; name and creation of one that has none of its own.
pub(super) fn of(group: &str, kind: &str) -> &'static Printer {
    static PRINTERS: LazyLock<Printers> = LazyLock::new(read);
    let all: &'static Printers = &PRINTERS;
    all.get(group).and_then(|kinds| kinds.get(kind)).unwrap_or_else(|| &all[""]["*"])
}

/// The printers by group and kind.
type Printers = BTreeMap<&'static str, BTreeMap<&'static str, Printer>>;

fn read() -> Printers {
    let mut printers = Printers::new();
    let mut last = ("", "");
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        if let Some(line) = line.strip_prefix("  ") {
            let printer = printers.get_mut(last.0).and_then(|kinds| kinds.get_mut(last.1));
            let printer = printer.expect("a column follows its kind");
            printer.columns.push(column(line).unwrap_or_else(|| panic!("{line} is a column of the table")));
        } else {
            let (document, kind) = line.split_once(' ').expect("a kind follows its document");
            last = (document.strip_prefix("apis/").and_then(|rest| rest.split('/').next()).unwrap_or_default(), kind);
            printers
                .entry(last.0)
                .or_default()
                .insert(last.1, Printer { document, columns: Vec::new(), sent: OnceLock::new() });
        }
    }
    printers
}

fn column(line: &'static str) -> Option<Column> {
    let mut parts = line.split('|').map(str::trim);
    let (name, kind, cell, about) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let (kind, wide) = kind.strip_suffix(" wide").map_or((kind, false), |kind| (kind, true));
    let mut words = cell.splitn(3, ' ');
    let (form, field, more) = (words.next()?, words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let known = FORMS.iter().find(|(name, _)| *name == form).map(|(_, form)| Cell::Field(*form, field, more));
    let special = || SPECIAL.iter().find(|(name, _)| *name == form).map(|(_, cell)| Cell::Special(*cell));
    Some(Column { name, kind, wide, about, cell: known.or_else(special)? })
}

/// The forms of fields.
const FORMS: &[(&str, Form)] = &[
    ("text", |row, field, _| row.text(field)),
    ("or", |row, field, absent| row.or(field, absent)),
    ("count", |row, field, _| row.count(field)),
    ("number", |row, field, _| workloads::number_or_none(row, field)),
    ("length", |row, field, _| row.length(field).into()),
    ("truth", |row, field, _| row.truth(field).into()),
    ("labels", |row, field, _| row.labels(field)),
    ("selector", |row, field, _| row.selector(field)),
    ("names", |row, field, _| row.containers(field, "name")),
    ("images", |row, field, _| row.containers(field, "image")),
];

/// The cells that are more than a field.
const SPECIAL: &[(&str, Special)] = &[
    ("name", |row| row.name()),
    ("age", |row| row.age()),
    ("pod_ready", |row| pod::summary(row).ready.into()),
    ("pod_status", |row| pod::summary(row).status.into()),
    ("pod_restarts", |row| pod::summary(row).restarts.into()),
    ("gates", pod::gates),
    ("node_status", workloads::node_status),
    ("node_roles", workloads::node_roles),
    ("node_internal_ip", |row| workloads::node_address(row, "InternalIP")),
    ("node_external_ip", |row| workloads::node_address(row, "ExternalIP")),
    ("kernel", workloads::kernel),
    ("external_ip", workloads::external_ip),
    ("service_ports", workloads::service_ports),
    ("subsets", workloads::subsets),
    ("configmap_data", |row| (row.length("/data") + row.length("/binaryData")).into()),
    ("last_seen", workloads::last_seen),
    ("involved", workloads::involved),
    ("event_source", workloads::event_source),
    ("event_message", |row| row.str("/message").trim().into()),
    ("event_first_seen", |row| workloads::first_seen(row).into()),
    ("event_count", workloads::event_count),
    ("volume_access_modes", |row| workloads::access_modes(row, "/spec/accessModes")),
    ("volume_phase", workloads::volume_phase),
    ("claim", workloads::claim),
    ("storage_class", workloads::storage_class),
    ("claim_capacity", |row| of_bound(row, |row| row.or("/status/capacity/storage", "0"))),
    ("claim_access_modes", |row| of_bound(row, |row| workloads::access_modes(row, "/status/accessModes"))),
    ("quota_request", |row| workloads::quota(row, false)),
    ("quota_limit", |row| workloads::quota(row, true)),
    ("component_status", |row| match row.str("/conditions/0/status") {
        "True" => "Healthy".into(),
        "" => "Unknown".into(),
        _ => "Unhealthy".into(),
    }),
    ("ready", workloads::ready),
    ("deployment_selector", |row| selector(row.at("/spec/selector")).into()),
    ("controller", workloads::controller),
    ("job_status", workloads::job_status),
    ("completions", workloads::completions),
    ("job_duration", workloads::job_duration),
    ("cronjob_suspend", |row| match row.at("/spec/suspend").as_bool() {
        Some(true) => "True".into(),
        Some(false) => "False".into(),
        None => "<unset>".into(),
    }),
    ("cronjob_last_schedule", |row| match row.at("/status/lastScheduleTime") {
        Value::Null => "<none>".into(),
        _ => row.since("/status/lastScheduleTime").into(),
    }),
    ("autoscaler_reference", |row| {
        format!("{}/{}", row.str("/spec/scaleTargetRef/kind"), row.str("/spec/scaleTargetRef/name")).into()
    }),
    ("metrics", workloads::metrics),
    ("hosts", workloads::hosts),
    ("ingress_address", |row| workloads::load_balancer(row).into()),
    ("ingress_ports", |row| if row.length("/spec/tls") > 0 { "80, 443" } else { "80" }.into()),
    ("ingress_class", |row| row.name_or_default(&["ingressclass.kubernetes.io/is-default-class"])),
    ("class_parameters", workloads::class_parameters),
    ("cidrs", |row| workloads::join(row.list("/spec/cidrs")).into()),
    ("parent_reference", workloads::parent_reference),
    ("slice_ports", workloads::slice_ports),
    ("slice_endpoints", workloads::slice_endpoints),
    ("role", workloads::role),
    ("users", |row| workloads::subjects(row, "User")),
    ("groups", |row| workloads::subjects(row, "Group")),
    ("accounts", |row| workloads::subjects(row, "ServiceAccount")),
    ("param_kind", workloads::param_kind),
    ("param_ref", workloads::param_ref),
    ("api_service", |row| match row.at("/spec/service") {
        Value::Null => "Local".into(),
        _ => format!("{}/{}", row.str("/spec/service/namespace"), row.str("/spec/service/name")).into(),
    }),
    ("available", workloads::available),
    ("default_class", |row| {
        let annotations =
            ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
        row.name_or_default(&annotations)
    }),
    ("dangling", |row| {
        let mut conditions = row.list("/status/conditions").iter();
        let found = conditions.find(|condition| condition["type"] == "Dangling");
        found.map_or("?".into(), |found| found["status"].clone())
    }),
];

/// A cell of a claim that has a volume; empty of another one.
fn of_bound(row: Row<'_>, cell: Special) -> Value {
    if row.str("/spec/volumeName").is_empty() { "".into() } else { cell(row) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_column_and_every_special_cell_is_in_one() {
        let printers = read();
        let mut all = printers.values().flat_map(BTreeMap::values);
        assert!(all.clone().count() > 40 && all.all(|printer| !printer.columns.is_empty()));
        let unused = SPECIAL.iter().filter(|(name, _)| !TABLE.contains(&format!("| {name} |")));
        assert_eq!(unused.map(|(name, _)| *name).collect::<Vec<_>>(), Vec::<&str>::new());
    }
}
