//! Values that the host makes: passwords, random bytes, certificates. A plan says which values a Secret should have
//! ([`Wanted`]), an annotation of it what was made ([`Record`]), and [`complete`] puts the values into the body of a write
//! when it is sent: those of the live object, or new ones. Randomness is an argument ([`RandomSource`]). Nothing here
//! knows who sends a write, and nothing keeps a value.

pub use self::complete::{Pair, RandomSource, complete};
pub use self::record::Record;
pub use self::secret::{Secret, hide};
pub use self::wanted::{AUTHORITY, CERTIFICATE, Draws, PRIVATE_KEY, Recipe, Wanted, fingerprint_of};

mod complete;
mod record;
mod secret;
mod wanted;

#[cfg(test)]
pub(crate) mod tests;
