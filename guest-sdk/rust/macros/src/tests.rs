//! The errors for wrong attributes, and the expansions of right ones.

use proc_macro2::TokenStream;
use quote::quote;

use crate::{plugin, projection, reconciler, resource};

fn message(result: syn::Result<TokenStream>) -> String {
    result.expect_err("this is refused").to_string()
}

fn resource_error(attribute: TokenStream) -> String {
    message(resource::expand(quote! {
        #[resource(#attribute)]
        struct PodSetSpec { replicas: i32 }
    }))
}

fn reconciler_error(attribute: TokenStream, function: TokenStream) -> String {
    message(reconciler::expand(attribute, function))
}

fn controller_error(attribute: TokenStream) -> String {
    message(reconciler::expand_controller(attribute, good()))
}

fn projection_error(item: TokenStream) -> String {
    message(projection::expand(item))
}

fn good() -> TokenStream {
    quote!(
        fn reconcile(set: &PodSet, cx: &Context) -> Result<Outcome, Failure> {
            todo
        }
    )
}

#[test]
fn a_resource_says_what_it_lacks() {
    let missing = resource_error(quote!(version = "v1", kind = "PodSet"));
    assert_eq!(missing, "a custom resource needs its group: #[resource(group = \"example.com\", ...)]");
    assert!(resource_error(quote!(group = "a.b", kind = "PodSet")).contains("needs its version"));
    assert!(resource_error(quote!(group = "a.b", version = "v1")).contains("needs its kind"));
}

#[test]
fn the_error_for_an_unknown_argument_lists_the_known_ones() {
    let unknown = resource_error(quote!(grup = "a.b"));
    assert!(unknown.starts_with("unknown argument `grup`; it is one of: group, version, kind, status"), "{unknown}");
    let unknown = reconciler_error(quote!(own("v1/Pod")), good());
    assert!(
        unknown.starts_with(
            "unknown argument `own`; it is one of: owns, reads, writes, http, finalize, labels, annotation"
        ),
        "{unknown}"
    );
    let unknown = reconciler_error(quote!(owns("v1/Pod", updates = "recreate")), good());
    assert_eq!(
        unknown,
        "unknown argument `updates`; it is one of: update, max_unavailable, replace, namespaces, adopt, labels"
    );
}

#[test]
fn a_repeated_argument_and_a_malformed_value_are_refused() {
    assert_eq!(resource_error(quote!(group = "a.b", group = "c.d")), "`group` is given twice");
    assert_eq!(resource_error(quote!(group("a.b"))), "write it as `group = \"...\"`");
    assert_eq!(resource_error(quote!(scale = ".spec")), "write it as `scale(...)`");
    assert!(resource_error(quote!(scale(spec = ".spec.replicas"))).contains("two paths"));
    assert!(resource_error(quote!(column(name = "A", path = "spec.a"))).contains("begins with a dot"));
    assert!(resource_error(quote!(column(name = "A", path = ".a", type = "int"))).contains("string, integer, number"));
    assert!(resource_error(quote!(group = "a.b", version = "v1", kind = "pod set")).contains("CamelCase"));
}

#[test]
fn a_kind_is_version_and_kind() {
    for wrong in ["Pod", "v1/pod", "apps/Deployment", "a/b/v1/Kind", "/v1/Pod"] {
        let error = reconciler_error(quote!(owns(#wrong)), good());
        assert!(error.contains("names no kind; write \"v1/Pod\" or \"apps/v1/Deployment\""), "{wrong}: {error}");
    }
    let updates = "an update is one of: apply, recreate, rolling_recreate, on_delete";
    assert_eq!(reconciler_error(quote!(owns("v1/Pod", update = "replace")), good()), updates);
    let replacements = "a replacement is one of: at-once, when-gone";
    assert_eq!(reconciler_error(quote!(owns("v1/Pod", replace = "at_once")), good()), replacements);
    let misplaced = "`max_unavailable` belongs to update = \"rolling_recreate\"";
    for wrong in
        [quote!(owns("v1/Pod", max_unavailable = 1)), quote!(owns("v1/Pod", update = "apply", max_unavailable = 1))]
    {
        assert_eq!(reconciler_error(wrong, good()), misplaced);
    }
    assert!(reconciler_error(quote!(annotation("a")), good()).contains("write it as `annotation(\"example.com/on\", "));
}

#[test]
fn reads_takes_patterns_of_kinds_and_owns_and_writes_do_not() {
    let text = reconciler::expand(quote!(reads("v1/Pod", "apps/v1/*", "v1/*", "apps/*", "*.example.com/*")), good());
    let text = text.unwrap().to_string();
    let reads = text.split_once("reads : & [").unwrap().1.split_once("] , writes").unwrap().0;
    for expected in ["apps/v1", "v1", "apps/*", "*.example.com/*"] {
        let kind = format!("{{ api_version : {expected:?} , kind : \"*\" , }}");
        assert!(reads.contains(&kind) || reads.contains(&kind.replace(" , }", " }")), "{kind} is not in {reads}");
    }
    for wrong in ["*", "*/*", "apps/v1/D*", "*.com/*", "*a.com/*", "*.*/*", "apps/one/*", "/*"] {
        let error = reconciler_error(quote!(reads(#wrong)), good());
        assert!(error.starts_with(&format!("{wrong:?} is no pattern; write \"apps/v1/*\"")), "{error}");
    }
    for attribute in [quote!(owns("apps/v1/*")), quote!(writes("apps/v1/*", "patch"))] {
        assert!(reconciler_error(attribute, good()).contains("names no kind"));
    }
}

#[test]
fn owns_takes_several_kinds_with_one_update() {
    let text = |attribute| reconciler::expand(attribute, good()).unwrap().to_string();
    for (attribute, update) in [
        (quote!(owns(Deployment, "v1/Service")), "update : :: core :: option :: Option :: None"),
        (quote!(owns(Deployment, "v1/Service",)), "replace : :: core :: option :: Option :: None"),
        (quote!(owns(Deployment, "v1/Service", update = "recreate")), "Update :: Recreate"),
        (quote!(owns(Deployment, "v1/Service", replace = "at-once")), "Replace :: AtOnce"),
    ] {
        let text = text(attribute);
        let owns = text.split_once("owns : & [").unwrap().1.split_once("] , reads").unwrap().0;
        assert_eq!((owns.matches("Owned").count(), owns.matches(update).count()), (2, 2), "{owns}");
        assert!(owns.contains("Deployment as") && owns.contains("\"Service\""), "{owns}");
    }
    let one = text(quote!(owns("v1/Pod", update = "rolling_recreate", max_unavailable = 2)));
    assert!(one.contains("max_unavailable : 2u32"), "{one}");
    let anywhere = text(quote!(owns("v1/Pod", ConfigMap, namespaces = "any", adopt = true)));
    assert_eq!(anywhere.matches("tracked : true , namespaces : & [] , adopt : true").count(), 2, "{anywhere}");
    let some = text(quote!(owns("v1/Pod", ConfigMap, namespaces = ["a", "b"])));
    assert_eq!(some.matches("tracked : true , namespaces : & [\"a\" , \"b\"]").count(), 2, "{some}");
    let plain = text(quote!(owns("v1/Pod")));
    assert!(plain.contains("tracked : false , namespaces : & [] , adopt : false"), "{plain}");
    let other = reconciler_error(quote!(owns("v1/Pod", namespaces = "all")), good());
    let wanted = "write namespaces = \"any\" or namespaces = [\"shared\"], or leave it out for children in their owner's namespace";
    assert_eq!(other, wanted);
    let labels = reconciler_error(quote!(owns("v1/Pod", labels = "a=b")), good());
    assert!(labels.contains("children cannot be narrowed by labels"), "{labels}");
    let misplaced = reconciler_error(quote!(owns("v1/Pod", update = "apply", "v1/Service")), good());
    let expected =
        "expected the name of an argument; it is one of: update, max_unavailable, replace, namespaces, adopt, labels";
    assert_eq!(misplaced, expected);
}

#[test]
fn writes_takes_a_kind_and_verbs() {
    let good_ones = [
        quote!(writes("apps/v1/Deployment", "patch")),
        quote!(writes("apps/v1/Deployment", "patch", subresource = "scale", subresource = "status")),
        quote!(writes("v1/Pod", "evict", "delete",), writes(Node, "patch"), reads("v1/Pod")),
    ];
    for attribute in good_ones {
        let error = reconciler::expand(attribute.clone(), good()).map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(error, Ok(()), "{attribute}");
    }
    let text = reconciler::expand(quote!(writes("v1/Node", "patch", "apply")), good()).unwrap().to_string();
    let expected = "verbs : & [:: mortise_sdk :: Verb :: Patch , :: mortise_sdk :: Verb :: Apply]";
    assert!(text.contains(expected), "{text}");
    let one_of = "a verb is one of: apply, patch, delete, evict";
    assert_eq!(reconciler_error(quote!(writes("v1/Node", "update")), good()), one_of);
    let evicted = reconciler_error(quote!(writes("v1/Node", "evict")), good());
    assert_eq!(evicted, "only \"v1/Pod\" can be evicted");
    assert!(reconciler_error(quote!(writes("v1/Node")), good()).starts_with("name a verb: writes("));
    assert!(reconciler_error(quote!(writes("Node", "patch")), good()).contains("names no kind"));
    let unknown = reconciler_error(quote!(writes("v1/Node", "patch", subresources = "x")), good());
    assert_eq!(unknown, "unknown argument `subresources`; it is one of: subresource");
}

#[test]
fn http_takes_an_origin_and_methods() {
    let text = |attribute| reconciler::expand(attribute, good()).unwrap().to_string();
    let all = text(quote!(
        http("https://a.example", "GET", "PUT", secret = "a", secret = "b"),
        http("http://[::1]:1", "HEAD",)
    ));
    assert!(all.contains("methods : & [:: mortise_sdk :: Method :: Get , :: mortise_sdk :: Method :: Put]"), "{all}");
    assert!(all.contains("secrets : & [\"a\" , \"b\"]") && all.contains("Method :: Head"), "{all}");
    for wrong in ["a.example", "https://", "https://a/b", "https://a?b", "https://u@a", "https://*.a"] {
        let error = reconciler_error(quote!(http(#wrong, "GET")), good());
        assert!(error.starts_with("name a scheme and an exact host"), "{wrong}: {error}");
    }
    let methods = "a method is one of: GET, HEAD, POST, PUT, PATCH, DELETE";
    assert_eq!(reconciler_error(quote!(http("https://a", "get")), good()), methods);
    assert!(reconciler_error(quote!(http("https://a")), good()).starts_with("name a method: http("));
}

#[test]
fn finalize_is_a_flag() {
    let text = |attribute| reconciler::expand(attribute, good()).unwrap().to_string();
    assert!(text(quote!(finalize, concurrency = 2)).contains("finalize : true"));
    assert!(text(quote!(finalize = true)).contains("finalize : true"));
    assert!(text(quote!()).contains("finalize : false") && text(quote!(finalize = false)).contains("finalize : false"));
    assert_eq!(reconciler_error(quote!(finalize = 1), good()), "write it as `finalize = true`");
    assert_eq!(reconciler_error(quote!(finalize, finalize), good()), "`finalize` is given twice");
}

#[test]
fn the_hosts_bounds_and_protected_groups_are_compile_errors() {
    let concurrency = "`concurrency` is a number from 1 to 256";
    assert_eq!(reconciler_error(quote!(concurrency = 0), good()), concurrency);
    assert_eq!(reconciler_error(quote!(concurrency = 257), good()), concurrency);
    let memory = reconciler_error(quote!(limits(memory_bytes = 268435457)), good());
    assert_eq!(memory, "`memory_bytes` is a number from 1 to 268435456");
    let deadline = reconciler_error(quote!(limits(deadline_ms = 10001)), good());
    assert_eq!(deadline, "`deadline_ms` is a number from 1 to 10000");
    let most = quote!(concurrency = 256, limits(memory_bytes = 268435456, deadline_ms = 10000));
    assert!(reconciler::expand(most, good()).is_ok());
    for kind in ["apps/v1/Deployment", "v1/Pod", "example.com/v1/Site"] {
        assert!(reconciler::expand(quote!(kind = #kind), good()).is_ok(), "{kind}");
    }
    for group in ["apps", "networking.k8s.io", "a.kubernetes.io"] {
        let error = resource_error(quote!(group = #group, version = "v1", kind = "A"));
        assert!(
            error.starts_with(&format!("the group {group:?} belongs to Kubernetes; use a group in a domain")),
            "{error}"
        );
        assert!(error.contains("annotation(\"api-approved.kubernetes.io\", "), "{error}");
    }
}

#[test]
fn a_group_under_k8s_io_needs_an_approval_and_a_built_in_one_is_refused() {
    let with_approval = |group: &str| {
        resource::expand(quote! {
            #[resource(group = #group, version = "v1", kind = "A", annotation("api-approved.kubernetes.io", "unapproved"))]
            struct Spec {}
        })
    };
    let expanded = with_approval("samplecontroller.k8s.io").unwrap().to_string();
    assert!(expanded.contains(r#"annotations : & [("api-approved.kubernetes.io" , "unapproved")]"#), "{expanded}");
    assert!(message(with_approval("apps")).contains("belongs to Kubernetes"));
    let twice = resource_error(quote!(annotation("a", "1"), annotation("a", "2")));
    assert_eq!(twice, "the annotation \"a\" is given twice");
    assert!(resource_error(quote!(annotation("a"))).starts_with("write it as `annotation("));
}

#[test]
fn the_error_for_a_wrong_signature_shows_the_right_one() {
    let wanted =
        "a reconciler is `fn reconcile(object: &PodSet, cx: &Context) -> Result<Outcome<PodSetStatus>, Failure>`";
    let wrong = [
        (
            quote!(
                async fn r(a: &A, cx: &Context) -> Result<Outcome, Failure> {}
            ),
            "never waits",
        ),
        (
            quote!(
                fn r(a: &A, cx: &Context) {}
            ),
            "returns nothing",
        ),
        (
            quote!(
                fn r(a: &A) -> Result<Outcome, Failure> {}
            ),
            "takes 1 parameters",
        ),
        (
            quote!(
                fn r(a: A, cx: &Context) -> Result<Outcome, Failure> {}
            ),
            "are references",
        ),
        (
            quote!(
                fn r(a: &mut A, cx: &Context) -> Result<Outcome, Failure> {}
            ),
            "can be changed",
        ),
    ];
    for (function, why) in wrong {
        let error = reconciler_error(quote!(), function);
        assert!(error.starts_with(wanted) && error.contains(why), "{error}");
    }
    assert!(
        reconciler_error(
            quote!(),
            quote!(
                struct A;
            )
        )
        .contains("is for a function")
    );
}

#[test]
fn controller_and_plugin_take_their_own_arguments() {
    assert!(reconciler::expand_controller(quote!(owns("v1/Pod"), concurrency = 2), good()).is_ok());
    let error = controller_error(quote!(limits(deadline_ms = 5)));
    assert_eq!(
        error,
        "unknown argument `limits`; it is one of: owns, reads, writes, http, finalize, labels, annotation, admission, \
         conversion, concurrency, kind"
    );

    let plugin = |arguments| plugin::expand(arguments).map(|tokens| tokens.to_string());
    for good in [
        quote!(adopt, restart),
        quote!(deployments::adopt, erus::restart,),
        quote!(adopt, restart, limits(deadline_ms = 5), name = "eru", version = "2"),
    ] {
        let expanded = plugin(good).unwrap();
        assert!(expanded.contains("adopt > :: CONTROLLER , <"), "{expanded}");
    }
    let error = message(plugin::expand(quote!()));
    assert!(error.contains("plugin!(adopt, restart)"), "{error}");
    let error = message(plugin::expand(quote!(adopt, owns("v1/Pod"))));
    assert_eq!(error, "unknown argument `owns`; it is one of: admission, conversion, limits, name, version");
}

#[test]
fn a_projection_says_what_it_lacks() {
    let kind = projection_error(quote!(
        struct Pod {
            name: String,
        }
    ));
    assert_eq!(kind, "say which kind is read: #[projection(\"v1/Pod\")]");
    let path = projection_error(quote!(
        #[projection("v1/Pod")]
        struct Pod {
            phase: String,
        }
    ));
    assert_eq!(path, "say where `phase` is read from: #[field(\"status.phase\")]");
    for malformed in ["", "a..b", ".a", "a.", "a[b]", "a[\"b", "a b"] {
        let error = projection_error(quote!(
            #[projection("v1/Pod")]
            struct Pod {
                #[field(#malformed)]
                a: String,
            }
        ));
        assert!(error.contains("is no field path"), "{malformed}: {error}");
    }
    let overlap = projection_error(quote! {
        #[projection("v1/Pod")]
        struct Pod { #[field("status")] all: Value, #[field("status.phase")] phase: String }
    });
    assert_eq!(overlap, "\"status\" and \"status.phase\" overlap; read one of them");
    assert!(
        projection_error(quote!(
            #[projection("v1/Pod")]
            struct Pod(String);
        ))
        .contains("named fields")
    );
}

#[test]
fn plurals_are_english() {
    let plural = |kind: &str| {
        let expanded = resource::expand(quote! {
            #[resource(group = "a.b", version = "v1", kind = #kind)]
            struct Spec {}
        });
        let text = expanded.unwrap().to_string();
        let (_, after) = text.split_once("plural : \"").unwrap();
        after.split_once('"').unwrap().0.to_owned()
    };
    assert_eq!(plural("PodSet"), "podsets");
    assert_eq!(plural("Policy"), "policies");
    assert_eq!(plural("Gateway"), "gateways");
    assert_eq!(plural("Ingress"), "ingresses");
}

#[test]
fn admission_needs_a_function_and_takes_the_three_operations() {
    assert!(reconciler::expand(quote!(admission(validate = check)), good()).is_ok());
    assert!(reconciler::expand(quote!(admission(mutate = a::b, operations("create"))), good()).is_ok());
    let error = reconciler_error(quote!(admission()), good());
    assert!(error.contains("validate = check"), "{error}");
    let error = reconciler_error(quote!(admission(validate = check, operations("connect"))), good());
    assert_eq!(error, "an operation is one of: create, update, delete");
    let error = reconciler_error(quote!(admission(mutate = complete, operations("create", "delete"))), good());
    assert!(error.contains("add `validate"), "{error}");
    let error = reconciler_error(quote!(admission(check)), good());
    assert!(error.starts_with("unknown argument `check`; it is one of: mutate, validate, operations"), "{error}");
}

#[test]
fn conversion_names_the_types_of_the_other_versions() {
    let text = reconciler::expand(quote!(conversion(v1alpha1::PodSet, v1beta1::PodSet)), good()).unwrap().to_string();
    let expected =
        "version :: < PodSet , v1alpha1 :: PodSet > () , :: mortise_sdk :: __private :: version :: < PodSet , v1beta1";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("export_conversion !"), "{text}");
    assert!(!reconciler::expand(quote!(), good()).unwrap().to_string().contains("export_conversion"));
    let error = reconciler_error(quote!(conversion()), good());
    assert_eq!(error, "name the types of the other versions: conversion(v1alpha1::Gauge)");
    let error = reconciler_error(quote!(conversion(a::A, a::A)), good());
    assert_eq!(error, "this version is given twice");
    let error = reconciler_error(quote!(conversion(a::A), kind = "example.com/v1/Site"), good());
    assert!(error.contains("is for a kind that the plugin defines"), "{error}");
}

/// Each mistake that newcomers make in an attribute, with the whole answer or the part that says what to write.
#[test]
fn reads_takes_several_kinds_with_one_scope() {
    let text = |attribute| reconciler::expand(attribute, good()).unwrap().to_string();
    let all = text(quote!(reads("v1/Node", ConfigMap,)));
    assert_eq!(all.matches("namespaces : & [] , labels : \"\"").count(), 2, "{all}");
    let some = text(quote!(reads("v1/Secret", ConfigMap, namespaces = ["a", "b",], labels = "x=1"), reads("v1/Pod")));
    assert_eq!(some.matches("namespaces : & [\"a\" , \"b\"] , labels : \"x=1\"").count(), 2, "{some}");
    assert_eq!(some.matches("mortise_sdk :: Read").count(), 3, "{some}");
    let wanted = "write it as `namespaces = [\"shared\", \"infra\"]`";
    for wrong in [quote!("any"), quote!([]), quote!([a]), quote!(["a" "b"])] {
        assert_eq!(reconciler_error(quote!(reads("v1/Pod", namespaces = #wrong)), good()), wanted, "{wrong}");
    }
    let many = (0..17).map(|number| format!("n{number}"));
    let error = reconciler_error(quote!(reads("v1/Pod", namespaces = [#(#many),*])), good());
    assert_eq!(error, "there are 17 namespaces, and 16 are the most; leave it out for all");
    let unknown = reconciler_error(quote!(reads("v1/Pod", label = "a=b")), good());
    assert_eq!(unknown, "unknown argument `label`; it is one of: namespaces, labels");
}

#[test]
fn the_answer_to_a_newcomers_mistake_is_what_to_write() {
    let answers = [
        (resource_error(quote!()), "#[resource(group = \"example.com\", version = \"v1\", kind = \"PodSet\")]"),
        (
            resource_error(quote!(version = "1.0")),
            "a version is v and a number, such as \"v1\", \"v1alpha1\" or \"v2beta3\"",
        ),
        (resource_error(quote!(group = "Example.com")), "a group is a domain in lower case, such as \"example.com\""),
        (resource_error(quote!(status = "PodSetStatus")), "write it as `status = PodSetStatus`"),
        (reconciler_error(quote!(owns = "v1/Pod"), good()), "write it as `owns(\"v1/Pod\")`"),
        (reconciler_error(quote!(reads = Node), good()), "write it as `reads(\"v1/Node\")`"),
        (reconciler_error(quote!(writes), good()), "write it as `writes(\"apps/v1/Deployment\", \"patch\")`"),
        (reconciler_error(quote!(owns("v1/Pod", update = recreate)), good()), "write it as `update = \"recreate\"`"),
        (
            reconciler_error(quote!(owns("Pod")), good()),
            "\"Pod\" names no kind; write \"v1/Pod\" or \"apps/v1/Deployment\"",
        ),
        (
            reconciler_error(quote!(finalizer), good()),
            "unknown argument `finalizer`; it is one of: owns, reads, writes, http, finalize",
        ),
        (reconciler_error(quote!(limits(memory_bytes = "64Mi")), good()), "write it as `memory_bytes = 268435456`"),
        (reconciler_error(quote!(admission(validate = "check")), good()), "write it as `validate = check`"),
    ];
    for (error, answer) in answers {
        assert!(error.contains(answer), "{error}\n  lacks: {answer}");
    }
}

#[test]
fn the_answer_to_a_mistake_in_a_function_or_a_field_is_what_to_write() {
    let functions = [
        (
            quote!(
                fn r(cx: &Context, a: &A) -> Result<Outcome, Failure> {}
            ),
            "the object is the first parameter",
        ),
        (
            quote!(
                fn r(&self, a: &A, cx: &Context) -> Result<Outcome, Failure> {}
            ),
            "write a function outside of an impl",
        ),
        (
            quote!(
                fn r(a: &A, cx: &Context) -> Outcome<AStatus> {}
            ),
            "return `Ok(outcome)`",
        ),
        (
            quote!(
                fn r(a: &A, cx: &Context) -> mortise_sdk::Outcome {}
            ),
            "return `Ok(outcome)`",
        ),
    ];
    for (function, answer) in functions {
        let error = reconciler_error(quote!(), function);
        assert!(error.contains(answer) && error.contains("a reconciler is `fn reconcile("), "{error}");
    }
    for path in [quote!(status.phase), quote!(key), quote!(3)] {
        let error = projection_error(quote!(
            #[projection("v1/Pod")]
            struct Pod {
                #[field(#path)]
                phase: String,
            }
        ));
        let answer = "write a path in quotes, #[field(\"status.phase\")], or #[field(child_key)]";
        assert_eq!(error, answer, "{path}");
    }
}

#[test]
fn two_plugins_in_one_module_clash_in_a_name_that_says_what_to_write() {
    for expanded in [reconciler::expand(quote!(), good()), plugin::expand(quote!(adopt, restart))] {
        let text = expanded.unwrap().to_string();
        assert!(text.contains("enum use_controller_and_plugin_for_several_functions"), "{text}");
    }
}

#[test]
fn versions_are_those_of_kubernetes() {
    for version in ["v1", "v12", "v1alpha1", "v2beta10"] {
        let with = resource::expand(quote! {
            #[resource(group = "a.b", version = #version, kind = "A")]
            struct Spec {}
        });
        assert!(with.is_ok(), "{version}");
    }
    for version in ["1", "v", "V1", "v0", "v1alpha", "v1gamma1", "v1alpha0", "v1.0"] {
        assert!(resource_error(quote!(version = #version)).starts_with("a version is v"), "{version}");
    }
}
