//! End-to-end tests: the real binary, the real API server, real clients. Two run at a time, each with a control
//! plane, a host and a namespace for itself.
//!
//! Counts that take long (kills, reloads) are small here; environment variables named in each test raise them.

mod admission;
mod adoption;
mod attack;
mod bluegreen;
mod children;
mod conversion;
mod cookbook;
mod crash;
mod crontab;
mod crontab_storm;
mod deploy;
mod drain;
mod dry_run;
mod dynamic_kinds;
mod edits;
mod eru;
mod failover;
mod foo;
mod generated;
mod grants;
mod hostile;
mod http;
mod identity;
mod isolation;
mod kinds;
mod lifecycle;
mod memcached;
mod memory;
mod metrics_access;
mod mydaemonset;
mod node_storm;
mod observe;
mod outage;
mod plugin_objects;
mod pods;
mod quiet;
mod refusals;
mod reload;
mod replacement;
mod restore;
mod rights;
mod scopes;
mod shutdown;
mod stalled;
mod templates;
mod tenants;
mod tracked;
mod two_hosts;
mod webhook_clients;
mod world;
mod writes;
