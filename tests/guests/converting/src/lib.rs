//! A guest whose kind has two versions of different shape, each with a field that the other has no place for. It writes down
//! what it is called with, and its conversion misbehaves when the size says so.

use mortise_sdk::prelude::*;

/// A gauge as it is stored and reconciled.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
#[resource(group = "test.mortise.dev", version = "v1", kind = "Gauge", status = GaugeStatus)]
#[serde(rename_all = "camelCase")]
pub struct GaugeSpec {
    /// How much it measures at most.
    pub size: Size,
    /// Known to this version alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<Alarm>,
}

/// An amount with its unit.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct Size {
    /// How many.
    pub value: u32,
    /// Of what: "Mi".
    pub unit: String,
}

/// When somebody is told.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct Alarm {
    /// From this value on.
    pub at: u32,
}

/// The same in both versions.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug)]
pub struct GaugeStatus {
    /// What it was called with last.
    pub shown: String,
}

mod v1alpha1 {
    //! As gauges once were.

    use mortise_sdk::prelude::*;

    /// A gauge with its size in one text.
    #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug)]
    #[resource(group = "test.mortise.dev", version = "v1alpha1", kind = "Gauge", status = super::GaugeStatus)]
    pub struct GaugeSpec {
        /// "10Mi"; "trap" and "loop" are what its conversion does then.
        pub size: String,
        /// Known to this version alone.
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
fn reconcile(gauge: &Gauge, _cx: &Context) -> Result<Outcome, Failure> {
    let Size { value, unit } = &gauge.spec.size;
    let shown = format!("{value} {unit} with {} alarms", gauge.spec.alarms.len());
    let dial = Child::new("dial", Json::of_kind("v1", "ConfigMap", &json!({"data": {"shown": shown}})));
    Ok(Outcome::children([dial]).status(&GaugeStatus { shown }))
}

fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}
