//! Values of the command line that replace values of a file.

/// A value from the command line that replaces a file's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The option as typed, e.g. `--set goal.tardiness=0.9`.
    pub written: String,
    /// The key, e.g. `goal.tardiness`.
    pub key: String,
    /// The value, in TOML or as plain text.
    pub value: String,
}

impl Override {
    /// Override from a dedicated option, such as `--duration 10s`.
    pub fn of_option(option: &str, key: &str, value: &str) -> Override {
        Override {
            written: format!("{option} {value}"),
            key: key.into(),
            value: value.into(),
        }
    }

    /// Override by a text that may look like a number, such as the name of a file.
    pub fn of_text(written: String, key: String, text: &str) -> Override {
        let value = toml::Value::from(text).to_string();
        Override { written, key, value }
    }

    /// Parses the argument of `--set`.
    pub fn parse(argument: &str) -> Result<Override, String> {
        let (key, value) = argument
            .split_once('=')
            .ok_or("write key=value, such as goal.tardiness=0.9")?;
        let key = key.trim();
        if key.is_empty() {
            return Err("the key is missing: write key=value, such as goal.tardiness=0.9".into());
        }
        Ok(Override {
            written: format!("--set {argument}"),
            key: key.into(),
            value: value.trim().into(),
        })
    }
}
