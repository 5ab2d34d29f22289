//! A host with exactly the rights that `mortise rbac` prints, as a user of its own.

use super::world::{HOST_NAMESPACE, RESTRICTED, World, built};

/// Prefix of the tests' bindings, which a later test deletes first.
const BINDING: &str = "e2e-";

/// Starts the host with its own rights and no plugin's.
pub fn start_restricted(world: &mut World) {
    start_restricted_with(world, &[]);
}

/// The same with these arguments.
pub fn start_restricted_with(world: &mut World, arguments: &[&str]) {
    for binding in world.kubectl(&["get", "clusterrolebindings", "-o", "name"]).lines() {
        if binding.contains(&format!("/{BINDING}")) {
            world.kubectl(&["delete", binding]);
        }
    }
    grant(world, &["--host"]);
    bind(world, "host", "mortise-host");
    bind_here(world, "host", "mortise");
    world.start_host_as(RESTRICTED, arguments);
}

/// Binds a Role of the host's namespace to the host's user, as `e2e-NAME`.
pub fn bind_here(world: &World, name: &str, role: &str) {
    let binding = format!("{BINDING}{name}");
    world.kubectl(&["delete", "rolebinding", &binding, "-n", HOST_NAMESPACE, "--ignore-not-found"]);
    let (role, user) = (format!("--role={role}"), format!("--user={RESTRICTED}"));
    world.kubectl(&["create", "rolebinding", &binding, "-n", HOST_NAMESPACE, &role, &user]);
}

/// Gives the host the rights that a plugin needs, and returns their role.
pub fn give(world: &World, plugin: &str) -> String {
    give_component(world, plugin, &format!("plugins/{plugin}.wasm"))
}

/// The same for any component.
pub fn give_component(world: &World, plugin: &str, component: &str) -> String {
    grant(world, &[built(component).to_str().unwrap()]);
    let roles = ["get", "clusterroles", "-l", "mortise.dev/aggregate-to-host=true", "-o"];
    let roles = world.kubectl(&[&roles[..], &["jsonpath={.items[*].metadata.name}"]].concat());
    let role = roles.split(' ').find(|name| name.contains(plugin));
    let role = role.unwrap_or_else(|| panic!("no role of {plugin} in {roles}")).to_owned();
    bind(world, plugin, &role);
    role
}

/// Binds a role to the host's user, as `e2e-NAME`.
pub fn bind(world: &World, name: &str, cluster_role: &str) {
    let binding = format!("{BINDING}{name}");
    world.kubectl(&["delete", "clusterrolebinding", &binding, "--ignore-not-found"]);
    let role = format!("--clusterrole={cluster_role}");
    world.kubectl(&["create", "clusterrolebinding", &binding, &role, &format!("--user={RESTRICTED}")]);
}

pub fn grant(world: &World, arguments: &[&str]) {
    let mut command = std::process::Command::new(built("debug/mortise"));
    let output = command.arg("rbac").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    world.plane.apply(&String::from_utf8(output.stdout).unwrap()).unwrap();
}
