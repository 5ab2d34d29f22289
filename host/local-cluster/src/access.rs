//! Who asks, and what he may do. Input: credentials and attributes. Output: a user, or a refusal. It must not know what
//! requests do.

mod action;
mod bootstrap;
mod escalation;
mod impersonation;
mod rbac;
mod token;

use jiff::Timestamp;

use crate::Cluster;
use crate::attributes::Attributes;
use crate::halt::{Halt, Status};
use crate::path::Address;
use crate::request::{Credentials, Method, Request};
use crate::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};

pub(crate) use self::action::Action;
pub(crate) use self::bootstrap::bootstrap;
pub(crate) use self::escalation::check as check_escalation;
pub(crate) use self::rbac::{decide, rules};
pub(crate) use self::token::{AUDIENCE, Bound, Claims, issue};

/// What is answered without credentials where RBAC does not say it: the paths of the role `system:public-info-viewer`. Who
/// starts a cluster asks them until it is ready.
const PUBLIC_PATHS: [&str; 5] = ["/livez", "/readyz", "/healthz", "/version", "/version/"];

/// The user of a request: the one of its credentials, or the one whom that user impersonates.
pub(crate) fn authenticate(cluster: &Cluster, request: &Request, now: Timestamp) -> Result<User, Halt> {
    let user = sender(cluster, request, now).ok_or_else(Status::unauthorized)?;
    impersonation::impersonate(cluster, request, user)
}

/// Who sends a request, not whom he impersonates; None if nobody knows the credentials. Without credentials it is somebody only
/// where RBAC decides what he may do: kube-apiserver, too, turns anonymous access off with AlwaysAllow.
pub(crate) fn sender(cluster: &Cluster, request: &Request, now: Timestamp) -> Option<User> {
    let is_public = || request.method == Method::Get && PUBLIC_PATHS.contains(&request.path.as_str());
    match &request.credentials {
        Credentials::User(user) => Some(authenticated(user.clone())),
        Credentials::Token(token) => user_of(cluster, token, now),
        Credentials::None => (cluster.options.rbac || is_public()).then(anonymous),
    }
}

fn anonymous() -> User {
    User { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..User::default() }
}

/// The user of a bearer token.
pub(crate) fn user_of(cluster: &Cluster, token: &str, now: Timestamp) -> Option<User> {
    let mut known = cluster.options.tokens.iter();
    let fixed = known.find(|(known, _)| token::same(known.as_bytes(), token.as_bytes())).map(|(_, user)| user.clone());
    fixed.or_else(|| token::user(cluster, token, now)).map(authenticated)
}

fn authenticated(mut user: User) -> User {
    if !user.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

/// Whether the user may ask for a path that is no resource.
pub(crate) fn authorize_path(cluster: &Cluster, user: &User, request: &Request) -> Result<(), Halt> {
    let verb = match request.method {
        Method::Get => "get",
        Method::Post => "post",
        Method::Put => "put",
        Method::Patch => "patch",
        Method::Delete => "delete",
    };
    demand(cluster, user, &Action { verb, path: Some(&request.path), ..Action::default() })
}

/// Whether the user may ask for a resource that is not served.
pub(crate) fn authorize_unserved(
    cluster: &Cluster,
    user: &User,
    verb: &str,
    address: &Address<'_>,
) -> Result<(), Halt> {
    if !cluster.options.rbac {
        return Ok(());
    }
    demand(cluster, user, &Action::at(verb, address))
}

/// Whether the user may do what the attributes say. A field selector on the name restricts lists to one object.
pub(crate) fn authorize(
    cluster: &Cluster,
    user: &User,
    attributes: &Attributes,
    request: &Request,
) -> Result<(), Halt> {
    if !cluster.options.rbac {
        return Ok(());
    }
    let resource = &attributes.resource;
    let selected = || {
        let selector = request.parameter("fieldSelector").unwrap_or_default();
        let mut parts = selector.split(',');
        parts.find_map(|part| part.strip_prefix("metadata.name=")).map(|name| name.trim_start_matches('='))
    };
    let name = if attributes.name.is_empty() { selected().unwrap_or_default() } else { attributes.name.as_str() };
    // A Namespace lies in itself.
    let is_namespace = resource.group.is_empty() && &*resource.plural == "namespaces";
    let action = Action {
        verb: attributes.verb,
        group: &resource.group,
        resource: &resource.plural,
        subresource: &attributes.subresource,
        namespace: if is_namespace { &attributes.name } else { &attributes.namespace },
        name,
        path: None,
    };
    demand(cluster, user, &action)
}

fn demand(cluster: &Cluster, user: &User, action: &Action<'_>) -> Result<(), Halt> {
    let decision = decide(cluster, user, action);
    if decision.allowed { Ok(()) } else { Err(action.forbidden(&user.name, &decision.reason).into()) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Method::{Get, Post, Put};
    use crate::testing::{ask, quiet, request, respond, start};
    use crate::{Cluster, Credentials, Method, Options, Request, User};

    fn guarded() -> Cluster {
        Cluster::new(Options { nodes: 0, controllers: Vec::new(), rbac: true, ..Options::default() }, start())
    }

    fn ask_as(
        cluster: &mut Cluster,
        user: &str,
        headers: &[(&str, &str)],
        method: Method,
        target: &str,
    ) -> (u16, Value) {
        ask_with(cluster, user, headers, method, target, &Value::Null)
    }

    fn ask_with(
        cluster: &mut Cluster,
        user: &str,
        headers: &[(&str, &str)],
        method: Method,
        target: &str,
        body: &Value,
    ) -> (u16, Value) {
        let mut request = request(method, target, headers, body);
        request.credentials = Credentials::User(User { name: user.to_owned(), ..User::default() });
        let response = respond(cluster, &request);
        (response.status, response.body.document().unwrap_or_default())
    }

    fn grant(cluster: &mut Cluster, user: &str, rules: &Value) {
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        let (code, answer) = ask(cluster, Post, path, &json!({"metadata": {"name": user}, "rules": rules}));
        assert_eq!(code, 201, "{answer}");
        let binding = json!({
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        let (code, answer) = ask(cluster, Post, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding);
        assert_eq!(code, 201, "{answer}");
    }

    #[test]
    fn without_credentials_one_is_nobody_and_with_rbac_anonymous() {
        for (mut cluster, code) in [(quiet(), 401), (guarded(), 403)] {
            let without = |method, target| Request {
                credentials: Credentials::None,
                ..request(method, target, &[], &Value::Null)
            };
            for (method, target) in [
                (Get, "/api/v1/secrets"),
                (Post, "/api/v1/namespaces/default/configmaps"),
                (Method::Delete, "/api/v1/namespaces/default"),
                (Get, "/apis/none.example.com/v1/things"),
                (Get, "/apis"),
                (Get, "/none"),
                (Post, "/livez"),
                (Get, "/livez/ping"),
            ] {
                let head = without(method, target);
                assert_eq!(respond(&mut cluster, &head).status, code, "{target}");
                assert_eq!(cluster.refusal(&head, start()).map(|status| status.code), Some(code), "{target}");
            }
            for target in ["/livez", "/readyz", "/healthz", "/version"] {
                let head = without(Get, target);
                assert_eq!(respond(&mut cluster, &head).status, 200, "{target}");
                assert_eq!(cluster.refusal(&head, start()), None, "{target}");
            }
            let token = Request { credentials: Credentials::Token("x.y.z".to_owned()), ..without(Get, "/livez") };
            assert_eq!(cluster.refusal(&token, start()).map(|status| status.code), Some(401));
        }
    }

    #[test]
    fn a_refusal_says_who_may_not_do_what_where() {
        let mut cluster = guarded();
        let cases = [
            (
                Get,
                "/api/v1/namespaces/b/pods",
                "pods is forbidden: User \"a\" cannot list resource \"pods\" in API group \"\" in the namespace \"b\"",
            ),
            (
                Get,
                "/api/v1/pods",
                "pods is forbidden: User \"a\" cannot list resource \"pods\" in API group \"\" at the cluster scope",
            ),
            (
                Get,
                "/apis/apps/v1/namespaces/b/deployments/c/scale",
                "deployments.apps \"c\" is forbidden: User \"a\" cannot get resource \"deployments/scale\" in API group \"apps\" in the namespace \"b\"",
            ),
            (
                Get,
                "/api/v1/namespaces/b",
                "namespaces \"b\" is forbidden: User \"a\" cannot get resource \"namespaces\" in API group \"\" in the namespace \"b\"",
            ),
            (Get, "/metrics", "forbidden: User \"a\" cannot get path \"/metrics\""),
        ];
        for (method, target, message) in cases {
            let (code, answer) = ask_as(&mut cluster, "a", &[], method, target);
            assert_eq!((code, &answer["message"]), (403, &json!(message)), "{target}");
        }
        assert_eq!(ask_as(&mut cluster, "a", &[], Get, "/version").0, 200);
        assert_eq!(ask(&mut cluster, Get, "/api/v1/pods", &json!(null)).0, 200);
    }

    #[test]
    fn a_rule_allows_what_it_names_and_nothing_else() {
        let mut cluster = guarded();
        grant(
            &mut cluster,
            "a",
            &json!([
                {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["c"], "verbs": ["get", "list"]},
                {"apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["*"]},
                {"nonResourceURLs": ["/metrics*"], "verbs": ["get"]},
            ]),
        );
        let maps = "/api/v1/namespaces/default/configmaps";
        let cases = [
            (format!("{maps}/c"), 404),
            (format!("{maps}/d"), 403),
            (maps.to_owned(), 403),
            (format!("{maps}?fieldSelector=metadata.name%3Dc"), 200),
            ("/apis/apps/v1/namespaces/default/deployments/c/scale".to_owned(), 404),
            ("/apis/apps/v1/namespaces/default/deployments/c".to_owned(), 403),
            ("/metrics/slis".to_owned(), 404),
        ];
        for (target, code) in cases {
            assert_eq!(ask_as(&mut cluster, "a", &[], Get, &target).0, code, "{target}");
        }
    }

    #[test]
    fn a_role_cannot_grant_more_than_its_author_holds() {
        let mut cluster = guarded();
        let rbac = json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"], "verbs": ["create", "update", "get"]});
        grant(&mut cluster, "a", &json!([rbac, {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]));
        let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
        let role = |verbs: Value| json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]});
        let (code, answer) = ask_with(&mut cluster, "a", &[], Post, roles, &role(json!(["get", "list", "watch"])));
        let message = "roles.rbac.authorization.k8s.io \"r\" is forbidden: user \"a\" (groups=[\"system:authenticated\"]) is \
                       attempting to grant RBAC permissions not currently held:\n\
                       {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\" \"watch\"]}";
        assert_eq!((code, &answer["message"]), (403, &json!(message)));
        let (code, mut made) = ask_with(&mut cluster, "a", &[], Post, roles, &role(json!(["get"])));
        assert_eq!(code, 201);
        made["rules"] = role(json!(["*"]))["rules"].clone();
        assert_eq!(ask_with(&mut cluster, "a", &[], Put, &format!("{roles}/r"), &made).0, 403);
        let binding = json!({
            "metadata": {"name": "x"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        });
        let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        assert_eq!(ask_with(&mut cluster, "a", &[], Post, bindings, &binding).0, 403);
    }

    #[test]
    fn impersonation_needs_the_verb_for_each_part() {
        let mut cluster = guarded();
        let target = "/api/v1/namespaces/default/pods";
        let headers = [("impersonate-user", "bob"), ("impersonate-group", "system:masters")];
        let (code, answer) = ask_as(&mut cluster, "a", &headers, Get, target);
        let message = "pods is forbidden: User \"a\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in \
                       the namespace \"default\"";
        assert_eq!((code, &answer["message"]), (403, &json!(message)));
        grant(
            &mut cluster,
            "a",
            &json!([{"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]}]),
        );
        assert_eq!(ask_as(&mut cluster, "a", &headers, Get, target).0, 200);
        assert_eq!(ask_as(&mut cluster, "a", &headers[1..], Get, target).0, 400);
        let (code, answer) = ask_as(&mut cluster, "a", &headers[..1], Get, target);
        assert_eq!(code, 403);
        assert!(answer["message"].as_str().unwrap().contains("User \"bob\" cannot list"));
    }

    #[test]
    fn a_token_of_a_service_account_is_its_user_until_it_expires_or_the_account_is_deleted() {
        let mut cluster = guarded();
        let accounts = "/api/v1/namespaces/default/serviceaccounts";
        assert_eq!(ask(&mut cluster, Post, accounts, &json!({"metadata": {"name": "s"}})).0, 201);
        let target = format!("{accounts}/s/token");
        let (code, made) = ask(&mut cluster, Post, &target, &json!({"spec": {"expirationSeconds": 600}}));
        assert_eq!((code, &made["status"]["expirationTimestamp"]), (201, &json!("2026-01-01T00:10:00Z")));
        let token = made["status"]["token"].as_str().unwrap().to_owned();
        let review = |cluster: &mut Cluster, token: &str| {
            let body = json!({"spec": {"token": token}});
            ask(cluster, Post, "/apis/authentication.k8s.io/v1/tokenreviews", &body).1["status"].clone()
        };
        let status = review(&mut cluster, &token);
        assert_eq!(status["authenticated"], json!(true));
        assert_eq!(status["user"]["username"], json!("system:serviceaccount:default:s"));
        let groups = json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
        assert_eq!(status["user"]["groups"], groups);
        let mut late = request(Get, "/version", &[], &Value::Null);
        late.credentials = Credentials::Token(token.clone());
        assert_eq!(respond(&mut cluster, &late).status, 200);
        let forged = format!("{token}x");
        assert!(review(&mut cluster, &forged)["authenticated"].is_null());
        let answer = cluster.request(&late, &[], start() + jiff::SignedDuration::from_secs(601));
        assert!(matches!(answer, crate::Reply::Done(response) if response.status == 401));
        assert_eq!(ask(&mut cluster, Method::Delete, &format!("{accounts}/s"), &Value::Null).0, 200);
        assert_eq!(respond(&mut cluster, &late).status, 401);
    }
}
