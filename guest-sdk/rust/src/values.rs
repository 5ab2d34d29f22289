//! Small types that Kubernetes uses in specs. Each has the text, the schema and the meaning that Kubernetes gives it.

pub use self::go_duration::GoDuration;
pub use self::int_or_string::IntOrString;
pub use self::label_selector::{LabelSelector, Operator, Requirement};
pub use self::quantity::Quantity;

mod go_duration;
mod int_or_string;
mod label_selector;
mod quantity;
