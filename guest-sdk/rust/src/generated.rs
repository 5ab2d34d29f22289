//! Values that the host makes and no plugin sees.

use std::time::Duration;

/// A value that the host makes for a Secret: see [`crate::Child::generate`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Generated {
    /// How it is made.
    pub recipe: Recipe,
    /// See [`Generated::rotation`].
    pub rotation: String,
}

/// How a value is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recipe {
    /// See [`Generated::alphanumeric`].
    Alphanumeric(u32),
    /// See [`Generated::bytes`].
    Bytes(u32),
    /// See [`Generated::tls`].
    Tls {
        /// DNS names and IP addresses.
        names: Vec<String>,
        /// How long the certificate is valid.
        lifetime: Duration,
    },
}

impl Generated {
    /// So many letters and digits, 8 to 1024: a password.
    pub fn alphanumeric(length: u32) -> Self {
        Self { recipe: Recipe::Alphanumeric(length), rotation: String::new() }
    }

    /// So many random bytes, 8 to 1024: a key. An environment variable cannot hold them; a mounted file can.
    pub fn bytes(length: u32) -> Self {
        Self { recipe: Recipe::Bytes(length), rotation: String::new() }
    }

    /// A certificate for 1 to 100 DNS names and IP addresses, valid for a minute to ten years, as the keys `tls.crt`,
    /// `tls.key` and `ca.crt`: what a Secret of type `kubernetes.io/tls` has. It is for servers and for their clients.
    ///
    /// The host renews it after two thirds of its lifetime, without a call of the plugin. Each certificate has an
    /// authority of its own, whose key nobody has. After a renewal `ca.crt` has the previous authority too, so that a
    /// client accepts a server that has not read its new certificate yet; after a change of the rotation it has not.
    /// `tls.crt` and `ca.crt` are public, and plugins see them: to copy `ca.crt` into a webhook's `caBundle`, for
    /// example.
    pub fn tls<N: Into<String>>(names: impl IntoIterator<Item = N>, lifetime: Duration) -> Self {
        let names = names.into_iter().map(Into::into).collect();
        Self { recipe: Recipe::Tls { names, lifetime }, rotation: String::new() }
    }

    /// The host makes a new value when this text changes; at most 253 bytes. A field of the spec, for example, so that
    /// the object's owner can ask for a new password.
    #[must_use]
    pub fn rotation(self, rotation: impl Into<String>) -> Self {
        Self { rotation: rotation.into(), ..self }
    }
}
