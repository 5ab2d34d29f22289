//! A plugin as data, as the macros write it, the manifest made of it, and the calls of its functions. The manifest is
//! written once per digest, so that part is written for size.

use serde_json::{Map, Value};

use crate::admission::{Admission, Header, Request, Verdict, Violation};
use crate::context::Context;
use crate::conversion::{self, Version};
use crate::definition::Definition;
use crate::error::Failure;
use crate::http::Method;
use crate::object::{HasStatus, Kind};
use crate::outcome::Outcome;
use crate::scan::{self, FromJson};
use crate::text::Text;

/// A plugin: `#[reconciler]` and `plugin!` define it as the static `PLUGIN`. Fields are public because macros fill them
/// in.
pub struct Plugin {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// One entry per reconciled kind.
    pub controllers: &'static [Controller],
    /// The bounds of one call.
    pub limits: Limits,
}

/// One controller: a kind, the function that reconciles it, and what that function may read and write.
pub struct Controller {
    /// The reconciled kind.
    pub primary: Kind,
    /// Its CustomResourceDefinition, if the plugin defines the kind.
    pub definition: Option<&'static Definition>,
    /// Selects the objects to reconcile.
    pub selection: Predicate,
    /// Kinds of children.
    pub owns: &'static [Owned],
    /// Kinds that are only read. One whose kind is `*` is a pattern.
    pub reads: &'static [Read],
    /// What may be written besides children and status, by every controller of the plugin.
    pub writes: &'static [Write],
    /// Where HTTP requests may be sent, by every controller of the plugin.
    pub http: &'static [Http],
    /// The host keeps a finalizer on the objects until the plugin has cleaned up.
    pub finalize: bool,
    /// Concurrent calls; None is the host's default.
    pub concurrency: Option<u32>,
    /// The function, called with the object's JSON text.
    pub reconcile: fn(&str, &Context) -> Result<Outcome<Value>, Failure>,
    /// Defaults and checks before objects of its kind are stored.
    pub admission: Option<Admission>,
    /// The other versions of its kind.
    pub conversion: &'static [Version],
}

/// Selects objects of a kind by labels and annotations.
pub struct Predicate {
    /// A label selector, "tier=web,!legacy"; "" matches all.
    pub labels: &'static str,
    /// Annotations that an object must have, with their values.
    pub annotations: &'static [(&'static str, &'static str)],
}

impl Predicate {
    /// Selects all objects.
    pub const EVERYTHING: Self = Self { labels: "", annotations: &[] };

    fn write(&self, out: &mut Text) {
        if self.labels.is_empty() && self.annotations.is_empty() {
            return;
        }
        out.name("where").open(b'{');
        if !self.labels.is_empty() {
            out.text("labels", self.labels);
        }
        out.pairs("annotations", self.annotations).close(b'}');
    }
}

/// A kind of children.
pub struct Owned {
    /// The kind.
    pub kind: Kind,
    /// How the host changes a child; None is [`Update::Apply`].
    pub update: Option<Update>,
    /// When a child that is being deleted gets a successor; None is [`Replace::WhenGone`].
    pub replace: Option<Replace>,
    /// `namespaces = "any"` or a list: the children may be in other namespaces than their owner, and the host deletes
    /// them with it.
    pub tracked: bool,
    /// The list: where they may be. Empty: in any namespace.
    pub namespaces: &'static [&'static str],
    /// `adopt = true`: a child may say [`crate::Child::adopt`].
    pub adopt: bool,
}

/// A kind that is read.
pub struct Read {
    /// The kind.
    pub kind: Kind,
    /// The namespaces of the objects, 16 at most. Empty: all.
    pub namespaces: &'static [&'static str],
    /// A label selector, "app=web,!legacy", of 1 KiB at most. "": any labels.
    pub labels: &'static str,
}

impl Read {
    /// Every object of a kind.
    pub const fn all(kind: Kind) -> Self {
        Self { kind, namespaces: &[], labels: "" }
    }

    fn write(&self, out: &mut Text) {
        self.kind.open(out).texts("namespaces", self.namespaces);
        if !self.labels.is_empty() {
            out.text("labels", self.labels);
        }
        out.close(b'}');
    }
}

/// When a child that is being deleted, by whomever, gets a successor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Replace {
    /// When it is gone, as with a StatefulSet: there are never two of one key.
    WhenGone,
    /// As soon as it is being deleted, as with a ReplicaSet: there are never two of one key that are not being deleted.
    /// The successor has another name. A child whose name the plugin has set is replaced when it is gone all the same.
    AtOnce,
}

/// How the host changes a child that differs from the desired one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Update {
    /// In place, by server-side apply.
    Apply,
    /// By deleting and creating it.
    Recreate,
    /// By deleting and creating, a few at a time: the next child is deleted when the previous ones are available.
    RollingRecreate {
        /// How many of the desired children of the kind may be unavailable at once, 1 at least.
        max_unavailable: u32,
    },
    /// Not before somebody deletes it.
    OnDelete,
}

impl Update {
    fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Recreate => "recreate",
            Self::RollingRecreate { .. } => "rollingRecreate",
            Self::OnDelete => "onDelete",
        }
    }
}

/// What a plugin may do to objects of one kind that are not its children.
pub struct Write {
    /// The kind.
    pub kind: Kind,
    /// The verbs.
    pub verbs: &'static [Verb],
    /// Subresources that may be patched beside the object itself.
    pub subresources: &'static [&'static str],
}

/// What an [`crate::Action`] does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Create or change by server-side apply.
    Apply,
    /// Change an existing object.
    Patch,
    /// Delete an object that the view shows.
    Delete,
    /// Evict a Pod.
    Evict,
}

impl Verb {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Evict => "evict",
        }
    }
}

/// An origin that a plugin's HTTP requests may be sent to.
pub struct Http {
    /// Scheme, host and port: "https://api.example.com".
    pub origin: &'static str,
    /// The methods.
    pub methods: &'static [Method],
    /// Names of Secrets whose values headers may carry there.
    pub secrets: &'static [&'static str],
}

/// The bounds of one call; None is the host's default.
pub struct Limits {
    /// Bytes of linear memory; the default is 64 MiB, the most 256 MiB.
    pub memory_bytes: Option<u64>,
    /// Processor time in milliseconds; the default is 1000, the most 10,000.
    pub deadline_ms: Option<u64>,
}

impl Plugin {
    /// The manifest that the host reads, as JSON text.
    pub fn manifest(&self) -> String {
        let mut out = Text::default();
        out.open(b'{').text("apiVersion", "mortise.dev/v1alpha1").text("kind", "PluginManifest");
        out.text("name", self.name).text("version", self.version);
        out.name("customResources").open(b'[');
        for controller in self.controllers {
            if let Some(definition) = controller.definition {
                definition.write(controller.conversion.iter().map(|version| version.definition), &mut out);
            }
        }
        out.close(b']');
        out.list("controllers", self.controllers, Controller::write);
        out.list("writes", self.writes(), Write::write);
        out.list("http", self.http(), Http::write);
        let admission = self.controllers.iter().filter_map(|each| Some((&each.primary, each.admission.as_ref()?)));
        out.list("admission", admission, |(kind, admission), out| admission.write(kind, out));
        let converting = self.controllers.iter().filter(|controller| !controller.conversion.is_empty());
        out.list("conversion", converting.map(|controller| &controller.primary), Kind::write);
        out.name("limits").open(b'{');
        if let Some(bytes) = self.limits.memory_bytes {
            out.name("memoryBytes").value(&bytes);
        }
        if let Some(deadline_ms) = self.limits.deadline_ms {
            out.name("deadlineMs").value(&deadline_ms);
        }
        out.close(b'}').close(b'}');
        out.finish()
    }

    /// What its controllers may write besides; the host merges the declarations of one kind.
    pub(crate) fn writes(&self) -> impl Iterator<Item = &'static Write> {
        self.controllers.iter().flat_map(|controller| controller.writes)
    }

    /// Where its controllers may send HTTP requests; the host merges the declarations of one origin.
    pub(crate) fn http(&self) -> impl Iterator<Item = &'static Http> {
        self.controllers.iter().flat_map(|controller| controller.http)
    }

    /// Reconciles one object with the controller of its kind.
    ///
    /// # Errors
    /// What the controller's function returns; terminal when the object does not fit its type.
    pub fn reconcile(&self, object: &str, cx: &Context) -> Result<Outcome<Value>, Failure> {
        match self.controllers {
            [only] => (only.reconcile)(object, cx),
            several => {
                let header: Header = parse(object)?;
                match several.iter().find(|each| each.is_for(&header)) {
                    Some(controller) => (controller.reconcile)(object, cx),
                    None => Err(Failure::terminal(["no controller reconciles ", &header.kind].concat())),
                }
            }
        }
    }

    /// Sets defaults with the function of the object's kind.
    ///
    /// # Errors
    /// The function's violations.
    pub fn mutate(&self, request: &Request) -> Result<String, Vec<Violation>> {
        match self.admission_of(request).and_then(|admission| admission.mutate) {
            Some(mutate) => mutate(request),
            None => Ok(request.object.clone()),
        }
    }

    /// Checks with the function of the object's kind.
    pub fn validate(&self, request: &Request) -> Verdict {
        match self.admission_of(request).and_then(|admission| admission.validate) {
            Some(validate) => validate(request),
            None => Verdict::allowed(),
        }
    }

    /// Converts an object to another version of its kind.
    ///
    /// # Errors
    /// Why the object cannot be converted, in the author's words.
    pub fn convert(&'static self, object: &str, to_api_version: &str) -> Result<String, String> {
        let object: Map<String, Value> = serde_json::from_str(object)
            .map_err(|error| ["the object cannot be read: ", &error.to_string()].concat())?;
        let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let (kind, group) = (text("kind"), text("apiVersion").split('/').next().unwrap_or_default());
        let converting = self.controllers.iter().filter(|controller| !controller.conversion.is_empty());
        let of_kind = converting.filter_map(|controller| Some((controller.definition?, controller.conversion)));
        let mut of_kind = of_kind.filter(|(definition, _)| definition.kind == kind && definition.group == group);
        match of_kind.next() {
            Some((reconciled, versions)) => conversion::convert(reconciled, versions, object, to_api_version),
            None => Err(["the plugin converts no ", kind, " of ", group].concat()),
        }
    }

    pub(crate) fn admission_of(&self, request: &Request) -> Option<&Admission> {
        let header = request.kind().ok()?;
        self.controllers.iter().find(|each| each.is_for(&header))?.admission.as_ref()
    }
}

impl Controller {
    fn is_for(&self, header: &Header) -> bool {
        self.primary.kind == header.kind && self.primary.api_version == header.api_version
    }

    fn write(&self, out: &mut Text) {
        self.primary.write(out.open(b'{').name("for"));
        self.selection.write(out);
        out.list("owns", self.owns, Owned::write);
        out.list("reads", self.reads, Read::write);
        if self.finalize {
            out.flag("finalize");
        }
        if let Some(concurrency) = self.concurrency {
            out.name("concurrency").value(&concurrency);
        }
        out.close(b'}');
    }
}

impl Owned {
    fn write(&self, out: &mut Text) {
        self.kind.open(out);
        if let Some(update) = self.update {
            out.text("update", update.as_str());
        }
        if let Some(Update::RollingRecreate { max_unavailable }) = self.update {
            out.name("maxUnavailable").value(&max_unavailable);
        }
        if self.replace == Some(Replace::AtOnce) {
            out.text("replace", "atOnce");
        }
        if self.tracked && self.namespaces.is_empty() {
            out.text("namespaces", "any");
        }
        out.texts("namespaces", self.namespaces);
        if self.adopt {
            out.flag("adopt");
        }
        out.close(b'}');
    }
}

impl Write {
    fn write(&self, out: &mut Text) {
        let verbs: Vec<&str> = self.verbs.iter().map(|verb| verb.as_str()).collect();
        self.kind.open(out).texts("verbs", &verbs).texts("subresources", self.subresources).close(b'}');
    }
}

impl Http {
    fn write(&self, out: &mut Text) {
        let methods: Vec<&str> = self.methods.iter().map(|method| method.as_str()).collect();
        out.open(b'{').text("origin", self.origin).texts("methods", &methods).texts("secrets", self.secrets);
        out.close(b'}');
    }
}

impl Admission {
    fn write(&self, kind: &Kind, out: &mut Text) {
        let operations: Vec<&str> = self.operations.iter().map(|operation| operation.as_str()).collect();
        kind.open(out).texts("operations", &operations);
        if self.mutate.is_some() {
            out.flag("mutate");
        }
        if self.validate.is_some() {
            out.flag("validate");
        }
        out.close(b'}');
    }
}

impl Kind {
    fn open<'t>(&self, out: &'t mut Text) -> &'t mut Text {
        out.open(b'{').text("apiVersion", self.api_version).text("kind", self.kind)
    }

    fn write(&self, out: &mut Text) {
        self.open(out).close(b'}');
    }
}

/// Parses the object and calls the function: the body of every [`Controller::reconcile`].
///
/// # Errors
/// What the function returns; terminal when the object does not fit its type.
pub fn run<'a, T: FromJson<'a> + HasStatus<S>, S>(
    object: &'a str,
    cx: &Context,
    reconcile: impl FnOnce(&T, &Context) -> Result<Outcome<S>, Failure>,
) -> Result<Outcome<Value>, Failure> {
    run_any(object, cx, reconcile)
}

/// [`run`] for a type whose kind is named in the attribute, so that its status may be any.
///
/// # Errors
/// As [`run`].
pub fn run_any<'a, T: FromJson<'a>, S>(
    object: &'a str,
    cx: &Context,
    reconcile: impl FnOnce(&T, &Context) -> Result<Outcome<S>, Failure>,
) -> Result<Outcome<Value>, Failure> {
    reconcile(&parse(object)?, cx).map(Outcome::of_status)
}

fn parse<'a, T: FromJson<'a>>(object: &'a str) -> Result<T, Failure> {
    scan::read(object)
        .map_err(|reason| Failure::Terminal(["the object does not fit the plugin's type: ", &reason].concat()))
}
