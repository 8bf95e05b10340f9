//! Metadata of SigMF recordings (version 1): format, sample rate and file of the samples.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Header, SampleFormat, refused};
use crate::input::InputError;

/// Greatest length of metadata, in bytes.
const META_MAX: u64 = 1 << 24;

#[derive(Deserialize)]
struct Metadata {
    global: Global,
    #[serde(default)]
    captures: Vec<Capture>,
}

#[derive(Deserialize)]
struct Global {
    #[serde(rename = "core:datatype")]
    datatype: String,
    #[serde(rename = "core:sample_rate")]
    rate: Option<f64>,
    #[serde(rename = "core:num_channels")]
    channels: Option<u64>,
    #[serde(rename = "core:dataset")]
    dataset: Option<String>,
    #[serde(rename = "core:trailing_bytes", default)]
    trailing: u64,
    #[serde(rename = "core:metadata_only", default)]
    has_no_samples: bool,
}

#[derive(Deserialize)]
struct Capture {
    #[serde(rename = "core:header_bytes", default)]
    header: u64,
}

/// Paths of metadata and samples, if `path` names either of them.
pub fn paths(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let end = path.extension()?.to_str()?;
    matches!(end, "sigmf-meta" | "sigmf-data" | "sigmf")
        .then(|| (path.with_extension("sigmf-meta"), path.with_extension("sigmf-data")))
}

/// Reads metadata; returns the path of the samples, too.
///
/// # Errors
/// [`InputError::Read`] without metadata; [`InputError::Format`] if they state what the receiver cannot use.
pub fn read(meta: &Path, data: &Path) -> Result<(PathBuf, Header), InputError> {
    let wrong = |found: String, remedy: &str| refused(meta, found, remedy);
    let file = File::open(meta).map_err(|why| {
        let found = format!("SigMF metadata are missing ({why})");
        wrong(
            found,
            "put them beside the samples, or rename those and give --format and --iq-rate",
        )
    })?;
    let mut text = String::new();
    file.take(META_MAX)
        .read_to_string(&mut text)
        .map_err(|why| InputError::Read { path: meta.into(), why })?;
    let metadata: Metadata = serde_json::from_str(&text).map_err(|why| {
        wrong(
            format!("no SigMF metadata ({why})"),
            "needed is the object \"global\" with core:datatype",
        )
    })?;
    let Global {
        datatype,
        rate,
        channels,
        dataset,
        trailing,
        has_no_samples,
    } = metadata.global;
    let format: SampleFormat = datatype.parse().map_err(|_| {
        let found = format!("core:datatype is \"{datatype}\"");
        wrong(
            found,
            "needed are complex samples: cu8, ci8, ci16_le, ci32_le or cf32_le, or the same with _be",
        )
    })?;
    if channels.is_some_and(|channels| channels != 1) {
        let found = format!("core:num_channels is {}", channels.unwrap_or(0));
        return Err(wrong(found, "extract one channel"));
    }
    if has_no_samples || trailing > 0 || metadata.captures.iter().any(|capture| capture.header > 0) {
        let found = "its data are other than plain samples (core:metadata_only, trailing_bytes or header_bytes)";
        return Err(wrong(found.into(), "convert it to a conforming dataset"));
    }
    let data = match dataset {
        // A name without folders, by the specification.
        Some(name) if Path::new(&name).file_name().is_some_and(|file| file == name.as_str()) => {
            meta.with_file_name(name)
        }
        Some(name) => {
            return Err(wrong(
                format!("core:dataset is \"{name}\""),
                "name a file in the same folder",
            ));
        }
        None => data.to_path_buf(),
    };
    Ok((
        data,
        Header {
            format,
            rate,
            header: "SigMF",
            length: None,
        },
    ))
}
