//! Events that wait until they are sent. Records come in; writes come out, a few of a share at once, each further one when one
//! of them is answered. Nothing may wait for an Event: beyond a bound they are left out, and a host that drains or may not
//! write sends none. What guests say and what the host says about their plugins never wait for each other. How a write is sent,
//! and what it costs, is not known here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::engine::context::Context;
use crate::engine::message::{EventFlow, Outgoing, Owner, Sender};
use crate::kube_event::{EventLog, EventRecord, Words};
use crate::object::Object;
use crate::observation::Observation;
use crate::tenant;

/// Events of a share's guests that are sent and not answered, half of the writes that a share has in flight at most. Its statuses
/// and children are behind no more than these, two seconds with an API server that takes 0.2 s for an Event.
pub(super) const MAX_SENT: usize = 5;
/// Of what the host says about a share, one: the host's other writes, such as the status of every Plugin, are behind those of all
/// shares.
const MAX_SENT_OF_HOST: usize = 1;
/// Events of a flow that wait: two calls that say 16 things each, as many as a call may. They have 5 KiB each at most.
pub(super) const MAX_WAITING: usize = 32;

/// The Events of all shares.
#[derive(Debug)]
pub(super) struct Events {
    guests: Said,
    hosts: Said,
}

/// What guests say, or what the host says of them.
#[derive(Debug)]
struct Said {
    log: EventLog,
    /// Those with an Event that is not answered.
    shares: BTreeMap<Arc<str>, OfShare>,
}

#[derive(Debug, Default)]
struct OfShare {
    sent: usize,
    waiting: VecDeque<Outgoing>,
}

impl Events {
    pub fn new(instance: Arc<str>) -> Self {
        let said = |log| Said { log, shares: BTreeMap::new() };
        Self { guests: said(EventLog::of_guests(Arc::clone(&instance))), hosts: said(EventLog::of_the_host(instance)) }
    }

    /// Forgets what was said, since a restore of etcd has undone it.
    pub fn forget(&mut self) {
        self.guests.log.forget();
        self.hosts.log.forget();
    }

    /// Records an Event. Returns it if it is sent at once.
    pub fn record(
        &mut self,
        by: Sender,
        about: &Object,
        record: EventRecord,
        cx: &mut Context<'_>,
    ) -> Option<Outgoing> {
        if cx.draining {
            return None;
        }
        let is_hosts = record.words == Words::Host;
        let max_sent = if is_hosts { MAX_SENT_OF_HOST } else { MAX_SENT };
        let said = self.said(is_hosts);
        let plugin = by.plugin.as_deref();
        let share = by.plugin.as_ref().map(tenant::share).unwrap_or_default();
        let has_room = said.shares.get(&share).is_none_or(|of_share| of_share.waiting.len() < MAX_WAITING);
        let op = match said.log.record(cx.now, plugin, about, record, has_room) {
            Ok(op) => op?,
            Err(why) => {
                cx.observe(Observation::EventLeftOut { share, why });
                return None;
            }
        };
        let of_share = said.shares.entry(Arc::clone(&share)).or_default();
        // The host says it as itself, so it is none of the plugin's writes.
        let by = if is_hosts { Sender::default() } else { by };
        let outgoing = Outgoing { by, cause: None, op, owner: Owner::Event(EventFlow { share, is_hosts }) };
        if of_share.sent == max_sent {
            of_share.waiting.push_back(outgoing);
            return None;
        }
        of_share.sent += 1;
        Some(outgoing)
    }

    /// An Event is answered, or will not be. Returns the next one of its flow.
    pub fn answered(&mut self, flow: &EventFlow, cx: &Context<'_>) -> Option<Outgoing> {
        let shares = &mut self.said(flow.is_hosts).shares;
        let of_share = shares.get_mut(&flow.share)?;
        if cx.draining || !cx.may_write {
            of_share.waiting.clear();
        }
        let next = of_share.waiting.pop_front();
        if next.is_none() {
            of_share.sent -= 1;
            if of_share.sent == 0 {
                shares.remove(&flow.share);
            }
        }
        next
    }

    fn said(&mut self, is_hosts: bool) -> &mut Said {
        if is_hosts { &mut self.hosts } else { &mut self.guests }
    }
}
