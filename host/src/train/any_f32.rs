//! Floats in JSON, which has no representation of those that are not finite.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Any {
    Finite(f32),
    Other(String),
}

pub fn serialize<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    let any = if value.is_finite() {
        Any::Finite(*value)
    } else {
        Any::Other(value.to_string())
    };
    any.serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    match Any::deserialize(deserializer)? {
        Any::Finite(value) => Ok(value),
        Any::Other(text) => text.parse().map_err(serde::de::Error::custom),
    }
}
