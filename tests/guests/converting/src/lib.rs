//! A guest whose kind has two versions, each with a field that the other lacks. Its status shows the call's input, and
//! its conversion misbehaves if the size says so.

use mortise_sdk::prelude::*;

/// The stored and reconciled version.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Gauge", status = GaugeStatus)]
#[serde(rename_all = "camelCase")]
pub struct GaugeSpec {
    /// The largest value.
    pub size: Size,
    /// Only in this version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<Alarm>,
}

/// An amount with its unit.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct Size {
    /// The number.
    pub value: u32,
    /// Such as "Mi".
    pub unit: String,
}

/// A threshold.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct Alarm {
    /// The lowest value that triggers it.
    pub at: u32,
}

/// The status of both versions.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct GaugeStatus {
    /// The input of the last call.
    pub shown: String,
}

mod v1alpha1 {
    //! The older version.

    use mortise_sdk::prelude::*;

    /// A gauge with its size as one string.
    #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    #[resource(group = "test.mortise.dev", version = "v1alpha1", kind = "Gauge", status = super::GaugeStatus)]
    pub struct GaugeSpec {
        /// "10Mi"; "trap" and "loop" name what the conversion does.
        pub size: String,
        /// Only in this version.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub color: Option<String>,
    }
}

impl TryFrom<v1alpha1::GaugeSpec> for GaugeSpec {
    type Error = String;

    fn try_from(old: v1alpha1::GaugeSpec) -> Result<Self, String> {
        match &*old.size {
            "trap" => panic!("it traps because spec.size is trap"),
            "loop" => spin(),
            _ => {}
        }
        let digits = old.size.bytes().take_while(u8::is_ascii_digit).count();
        let (value, unit) = old.size.split_at(digits);
        let value = value.parse().map_err(|_| format!("spec.size: {:?} is no amount such as \"10Mi\"", old.size))?;
        Ok(Self { size: Size { value, unit: unit.to_owned() }, alarms: Vec::new() })
    }
}

impl From<GaugeSpec> for v1alpha1::GaugeSpec {
    fn from(new: GaugeSpec) -> Self {
        Self { size: format!("{}{}", new.size.value, new.size.unit), color: None }
    }
}

#[reconciler(owns("v1/ConfigMap"), conversion(v1alpha1::Gauge))]
fn reconcile(gauge: &Gauge, _cx: &Context) -> Result<Outcome<GaugeStatus>, Failure> {
    let Size { value, unit } = &gauge.spec.size;
    let shown = format!("{value} {unit} with {} alarms", gauge.spec.alarms.len());
    let dial = Child::new("dial", Json::of_kind("v1", "ConfigMap", &json!({"data": {"shown": shown}})));
    Ok(Outcome::children([dial]).status(&GaugeStatus { shown }))
}

fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}
