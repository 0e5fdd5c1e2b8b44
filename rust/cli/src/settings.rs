//! The configuration that a command works with.

use std::collections::BTreeMap;

/// Reads the JSON that is POSTed to Connect, or its `config` object alone.
pub(crate) fn read_settings(path: &str) -> Result<BTreeMap<String, String>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    let object = json.get("config").unwrap_or(&json).as_object();
    let object = object.ok_or_else(|| format!("{path}: not a JSON object"))?;
    let mut settings = BTreeMap::new();
    for (key, value) in object {
        let value = match value {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        settings.insert(key.clone(), value);
    }
    if let Some(name) = json.get("name").and_then(|name| name.as_str()) {
        settings
            .entry("name".to_owned())
            .or_insert_with(|| name.to_owned());
    }
    Ok(settings)
}
