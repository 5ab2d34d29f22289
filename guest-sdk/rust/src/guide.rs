//! The chapters of docs/guide as doctests, so that every Rust block of the guide is compiled and run. Nothing else.

#[doc = include_str!("../../../docs/guide/first-plugin.md")]
struct FirstPlugin;

#[doc = include_str!("../../../docs/guide/reading.md")]
struct Reading;

#[doc = include_str!("../../../docs/guide/children.md")]
struct Children;

#[doc = include_str!("../../../docs/guide/secrets.md")]
struct Secrets;

#[doc = include_str!("../../../docs/guide/http.md")]
struct Http;

#[doc = include_str!("../../../docs/guide/status.md")]
struct Status;

#[doc = include_str!("../../../docs/guide/cleanup.md")]
struct Cleanup;

#[doc = include_str!("../../../docs/guide/schedules.md")]
struct Schedules;

#[doc = include_str!("../../../docs/guide/admission.md")]
struct Admission;

#[doc = include_str!("../../../docs/guide/versions.md")]
struct Versions;

#[doc = include_str!("../../../docs/guide/testing.md")]
struct Testing;

#[doc = include_str!("../../../docs/guide/limits.md")]
struct Limits;

#[doc = include_str!("../../../docs/guide/from-kubebuilder.md")]
struct FromKubebuilder;

#[doc = include_str!("../../../docs/guide/from-metacontroller.md")]
struct FromMetacontroller;
