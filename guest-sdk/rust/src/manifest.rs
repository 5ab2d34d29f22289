//! What a plugin is: the data that the macros write down, and the manifest made of it.
//! Called once per digest, so this file is written for size; nothing here runs when an object is reconciled except
//! [`Plugin::reconcile`].

use serde_json::{Map, Value};

use crate::admission::{Admission, Header, Question, Verdict, Violation};
use crate::context::Context;
use crate::conversion::{self, Version};
use crate::definition::Definition;
use crate::error::Failure;
use crate::object::Kind;
use crate::outcome::Outcome;
use crate::scan::{self, FromJson};
use crate::text::Text;

/// A plugin: what `#[reconciler]` puts into the static `PLUGIN`. Fields are public because macros fill them in;
/// authors use the attributes.
pub struct Plugin {
    /// The plugin's name.
    pub name: &'static str,
    /// The plugin's version.
    pub version: &'static str,
    /// One entry per reconciled kind.
    pub controllers: &'static [Controller],
    /// What one call may use.
    pub limits: Limits,
}

/// One controller: a kind, the function that reconciles it, and what that function may see.
pub struct Controller {
    /// The reconciled kind.
    pub primary: Kind,
    /// Its CustomResourceDefinition, when the plugin brings it.
    pub definition: Option<&'static Definition>,
    /// Which of its objects are reconciled.
    pub selection: Predicate,
    /// Kinds of children.
    pub owns: &'static [Owned],
    /// Kinds that are only read.
    pub reads: &'static [Kind],
    /// What may be written besides children and status, by this controller and by all others of its plugin.
    pub writes: &'static [Write],
    /// Objects do not go before the plugin has cleaned up after them.
    pub finalize: bool,
    /// Calls at once; None is the host's default.
    pub concurrency: Option<u32>,
    /// The function, from the object's JSON text.
    pub reconcile: fn(&str, &Context) -> Result<Outcome, Failure>,
    /// What it is asked before objects of its kind are stored.
    pub admission: Option<Admission>,
    /// The other versions of its kind, which it converts.
    pub conversion: &'static [Version],
}

/// Which objects of a kind a controller reconciles: those whose labels and annotations match.
pub struct Predicate {
    /// A label selector, "tier=web,!legacy"; "" matches all.
    pub labels: &'static str,
    /// Annotations that have to be there with these values.
    pub annotations: &'static [(&'static str, &'static str)],
}

impl Predicate {
    /// All objects.
    pub const EVERYTHING: Self = Self { labels: "", annotations: &[] };

    fn write(&self, out: &mut Text) {
        if self.labels.is_empty() && self.annotations.is_empty() {
            return;
        }
        out.name("where").open(b'{');
        if !self.labels.is_empty() {
            out.text("labels", self.labels);
        }
        if !self.annotations.is_empty() {
            out.name("annotations").open(b'{');
            for (name, value) in self.annotations {
                out.text(name, value);
            }
            out.close(b'}');
        }
        out.close(b'}');
    }
}

/// A kind of children.
pub struct Owned {
    /// The kind.
    pub kind: Kind,
    /// How a child changes; None is [`Update::Apply`].
    pub update: Option<Update>,
}

/// How a child comes to its wanted form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Update {
    /// Changed in place by server-side apply.
    Apply,
    /// Deleted and created anew.
    Recreate,
    /// Deleted and created anew, a few at a time: a next one goes when the last ones serve.
    RollingRecreate {
        /// How many of the wanted children of the kind may be unavailable at once, 1 at least.
        max_unavailable: u32,
    },
    /// Left as it is until somebody deletes it.
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

/// What may be done to objects of one kind that are no children.
pub struct Write {
    /// The kind.
    pub kind: Kind,
    /// What may be done.
    pub verbs: &'static [Verb],
    /// Subresources that may be patched beside the object itself.
    pub subresources: &'static [&'static str],
}

/// What an [`crate::Action`] does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Create or change by server-side apply.
    Apply,
    /// Change what is there.
    Patch,
    /// Delete what was seen.
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

/// What one call may use; None is the host's default.
pub struct Limits {
    /// Bytes of linear memory; the default is 64 MiB, the most 256 MiB.
    pub memory_bytes: Option<u64>,
    /// Wall time in milliseconds; the default is 1000, the most 10,000.
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
        out.close(b']').name("controllers").open(b'[');
        for controller in self.controllers {
            controller.write(&mut out);
        }
        out.close(b']');
        if self.writes().next().is_some() {
            out.name("writes").open(b'[');
            for write in self.writes() {
                write.write(&mut out);
            }
            out.close(b']');
        }
        if self.controllers.iter().any(|controller| controller.admission.is_some()) {
            out.name("admission").open(b'[');
            for controller in self.controllers {
                controller.write_admission(&mut out);
            }
            out.close(b']');
        }
        if self.controllers.iter().any(|controller| !controller.conversion.is_empty()) {
            out.name("conversion").open(b'[');
            for controller in self.controllers.iter().filter(|controller| !controller.conversion.is_empty()) {
                controller.primary.open(&mut out).close(b'}');
            }
            out.close(b']');
        }
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

    /// What its controllers may write besides; the host adds up what several of them declare of one kind.
    pub(crate) fn writes(&self) -> impl Iterator<Item = &'static Write> {
        self.controllers.iter().flat_map(|controller| controller.writes)
    }

    /// Reconciles one object with the controller of its kind.
    ///
    /// # Errors
    /// What the controller's function returns; terminal when the object does not fit its type.
    pub fn reconcile(&self, object: &str, cx: &Context) -> Result<Outcome, Failure> {
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

    /// Fills in defaults with the function of the object's kind.
    ///
    /// # Errors
    /// What the function says is in the way.
    pub fn mutate(&self, question: &Question) -> Result<String, Vec<Violation>> {
        match self.admission_of(question).and_then(|admission| admission.mutate) {
            Some(mutate) => mutate(question),
            None => Ok(question.object.clone()),
        }
    }

    /// Checks with the function of the object's kind.
    pub fn validate(&self, question: &Question) -> Verdict {
        match self.admission_of(question).and_then(|admission| admission.validate) {
            Some(validate) => validate(question),
            None => Verdict::allowed(),
        }
    }

    /// Converts an object to another version of its kind.
    ///
    /// # Errors
    /// Why that cannot be, in the author's words.
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

    pub(crate) fn admission_of(&self, question: &Question) -> Option<&Admission> {
        let header = question.kind().ok()?;
        self.controllers.iter().find(|each| each.is_for(&header))?.admission.as_ref()
    }
}

impl Controller {
    fn is_for(&self, header: &Header) -> bool {
        self.primary.kind == header.kind && self.primary.api_version == header.api_version
    }

    fn write_admission(&self, out: &mut Text) {
        let Some(admission) = &self.admission else { return };
        let operations: Vec<&str> = admission.operations.iter().map(|operation| operation.as_str()).collect();
        self.primary.open(out).texts("operations", &operations);
        if admission.mutate.is_some() {
            out.flag("mutate");
        }
        if admission.validate.is_some() {
            out.flag("validate");
        }
        out.close(b'}');
    }

    fn write(&self, out: &mut Text) {
        self.primary.open(out.open(b'{').name("for")).close(b'}');
        self.selection.write(out);
        if !self.owns.is_empty() {
            out.name("owns").open(b'[');
            for owned in self.owns {
                owned.kind.open(out);
                if let Some(update) = owned.update {
                    out.text("update", update.as_str());
                    if let Update::RollingRecreate { max_unavailable } = update {
                        out.name("maxUnavailable").value(&max_unavailable);
                    }
                }
                out.close(b'}');
            }
            out.close(b']');
        }
        if !self.reads.is_empty() {
            out.name("reads").open(b'[');
            for kind in self.reads {
                kind.open(out).close(b'}');
            }
            out.close(b']');
        }
        if self.finalize {
            out.flag("finalize");
        }
        if let Some(concurrency) = self.concurrency {
            out.name("concurrency").value(&concurrency);
        }
        out.close(b'}');
    }
}

impl Write {
    fn write(&self, out: &mut Text) {
        self.kind.open(out).name("verbs").open(b'[');
        for verb in self.verbs {
            out.value(&verb.as_str());
        }
        out.close(b']').texts("subresources", self.subresources).close(b'}');
    }
}

impl Kind {
    fn open<'t>(&self, out: &'t mut Text) -> &'t mut Text {
        out.open(b'{').text("apiVersion", self.api_version).text("kind", self.kind)
    }
}

/// Parses the object and calls the function: the body of every [`Controller::reconcile`].
///
/// # Errors
/// What the function returns; terminal when the object does not fit its type.
pub fn run<'a, T: FromJson<'a>>(
    object: &'a str,
    cx: &Context,
    reconcile: impl FnOnce(&T, &Context) -> Result<Outcome, Failure>,
) -> Result<Outcome, Failure> {
    reconcile(&parse(object)?, cx)
}

fn parse<'a, T: FromJson<'a>>(object: &'a str) -> Result<T, Failure> {
    scan::read(object)
        .map_err(|reason| Failure::Terminal(["the object does not fit the plugin's type: ", &reason].concat()))
}
