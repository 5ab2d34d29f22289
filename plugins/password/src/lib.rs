//! Password keeps a random password in a Secret. The function returns a Secret that asks for the password; the host makes
//! it, and no plugin sees it.

use mortise_sdk::prelude::*;

#[cfg(test)]
mod tests;

/// A random password in a Secret.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(
    group = "secrets.mortise.dev", version = "v1alpha1", kind = "Password", status = PasswordStatus,
    column(name = "Secret", path = ".spec.secretName"),
    column(name = "Ready", path = ".status.conditions[?(@.type=='Ready')].status"),
    column(name = "Message", path = ".status.conditions[?(@.type=='Ready')].message", wide)
)]
#[serde(rename_all = "camelCase")]
pub struct PasswordSpec {
    /// The Secret, which must not exist yet. Its key `password` has the password.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
    /// The number of letters and digits.
    #[serde(default = "default_length")]
    #[schemars(range(min = 8, max = 1024))]
    pub length: u32,
    /// Any new text asks for a new password.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub rotation: String,
}

/// 190 bits, of 5.95 for each letter or digit.
fn default_length() -> u32 {
    32
}

/// The last observed state of a Password.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct PasswordStatus {
    /// The Secret that has the password.
    pub secret_name: Option<String>,
}

/// The fields of the Secret that are read. The password is an empty string here.
#[derive(Projection)]
#[projection("v1/Secret")]
struct Secret<'a> {
    #[field("metadata.name")]
    name: &'a str,
    #[field("data.password")]
    password: Option<&'a str>,
}

#[reconciler(owns(Secret))]
fn reconcile(password: &Password, cx: &Context) -> Result<Outcome<PasswordStatus>, Failure> {
    let PasswordSpec { secret_name, length, rotation } = &password.spec;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret_name}});
    // The key names the Secret: with another name it is another child, and the former one is deleted.
    let child = Child::new(secret_name, secret)
        .generate("data.password", Generated::alphanumeric(*length).rotation(rotation.as_str()));
    let children = cx.children::<Secret>()?;
    let made = children.get(secret_name.as_str()).filter(|secret| secret.password.is_some());
    let status = PasswordStatus { secret_name: made.map(|secret| secret.name.to_owned()) };
    let (reason, message) = match made {
        Some(_) => ("Generated", format!("Secret {secret_name} has the password")),
        None => ("Waiting", format!("Secret {secret_name} does not have a password yet")),
    };
    Ok(Outcome::children([child]).status(&status).ready(made.is_some(), reason, message))
}
