//! intstr.IntOrString: a number, or a percentage of one.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::error::ValueError;

/// `maxUnavailable: 2` or `maxUnavailable: 25%`; also a port by number or by name.
///
/// ```
/// use mortise_sdk::IntOrString;
///
/// let max_unavailable: IntOrString = serde_json::from_str("\"25%\"").unwrap();
/// assert_eq!(max_unavailable.rounded_down(10), Ok(2));
/// assert_eq!(max_unavailable.rounded_up(10), Ok(3));
/// assert_eq!(IntOrString::Int(4).rounded_down(10), Ok(4));
/// let port = IntOrString::String("http".into());
/// assert_eq!(port.rounded_up(10).unwrap_err().message(), "\"http\" is neither a number nor a percentage such as \"25%\"");
/// ```
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(untagged)]
pub enum IntOrString {
    /// A number.
    Int(i32),
    /// A percentage, or a name.
    String(String),
}

impl IntOrString {
    /// The number, or the percentage of `total`, a fraction rounded down: as for `maxUnavailable`.
    ///
    /// # Errors
    /// When the text is no percentage.
    pub fn rounded_down(&self, total: i32) -> Result<i32, ValueError> {
        self.of(total, |hundredths| hundredths.div_euclid(100))
    }

    /// The number, or the percentage of `total`, a fraction rounded up: as for `maxSurge` and `minAvailable`.
    ///
    /// # Errors
    /// As [`Self::rounded_down`].
    pub fn rounded_up(&self, total: i32) -> Result<i32, ValueError> {
        self.of(total, |hundredths| -(-hundredths).div_euclid(100))
    }

    fn of(&self, total: i32, round: fn(i64) -> i64) -> Result<i32, ValueError> {
        let text = match self {
            Self::Int(number) => return Ok(*number),
            Self::String(text) => text,
        };
        // The sign is Kubernetes' to refuse.
        let percent: Option<i32> = text.strip_suffix('%').and_then(|number| number.parse().ok());
        let Some(percent) = percent else {
            return Err(ValueError(format!("{text:?} is neither a number nor a percentage such as \"25%\"")));
        };
        i32::try_from(round(i64::from(percent) * i64::from(total)))
            .map_err(|_| ValueError(format!("{text:?} of {total} is no number of 32 bits")))
    }
}

impl JsonSchema for IntOrString {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "IntOrString".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({"x-kubernetes-int-or-string": true})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, total: i32, down: i32, up: i32) {
        let value = IntOrString::String(text.to_owned());
        assert_eq!((value.rounded_down(total), value.rounded_up(total)), (Ok(down), Ok(up)), "{text} of {total}");
    }

    #[test]
    fn percentages_are_rounded_as_kubernetes_does() {
        check("0%", 7, 0, 0);
        check("100%", 7, 7, 7);
        check("50%", 7, 3, 4);
        check("1%", 1, 0, 1);
        check("150%", 3, 4, 5);
        check("25%", i32::MAX, 536_870_911, 536_870_912);
    }

    #[test]
    fn what_is_no_percentage_is_an_error_with_the_text() {
        for text in ["", "%", "5", "5 %", "a%", "1.5%"] {
            let error = IntOrString::String(text.to_owned()).rounded_up(1).unwrap_err();
            assert!(error.message().starts_with(&format!("{text:?} is neither")), "{error}");
        }
        let error = IntOrString::String("200%".to_owned()).rounded_up(i32::MAX).unwrap_err();
        assert_eq!(error.message(), "\"200%\" of 2147483647 is no number of 32 bits");
    }
}
