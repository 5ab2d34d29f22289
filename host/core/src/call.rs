//! One guest call: its inputs, and its result with what it read.

use std::sync::Arc;

use crate::contract::CallResult;
use crate::dependencies::Dependencies;
use crate::digest::Digest;
use crate::limits::CallLimits;
use crate::object::Object;
use crate::view::View;

/// Identifies one guest call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CallId(pub u64);

/// How a call ended, and what it asked of its view.
#[derive(Clone, Debug)]
pub struct CallDone {
    /// Its answer or its fault.
    pub result: CallResult,
    /// Every question it asked, with a hash of each answer.
    pub reads: Dependencies,
    /// Time on the worker thread in microseconds; the queue is fair by it.
    pub elapsed_us: u64,
}

/// One guest call.
#[derive(Debug)]
pub struct Call {
    /// Comes back in the answer.
    pub id: CallId,
    /// "podset/PodSet": plugin and kind, the label of metrics and logs.
    pub controller: Arc<str>,
    /// The plugin's name.
    pub plugin: Arc<str>,
    /// Which component.
    pub digest: Digest,
    /// The reconciled object.
    pub object: Arc<Object>,
    /// What the guest may see.
    pub view: View,
    /// Bounds of the call.
    pub limits: CallLimits,
}
