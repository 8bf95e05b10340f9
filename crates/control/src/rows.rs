//! Stores matrices in files as arrays of rows, `[[a, b], [c, d]]`, the way one reads them.
//!
//! nalgebra's own format is a flat column-major array, which no reader can check by eye.

use nalgebra::DMatrix;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

fn to_rows(m: &DMatrix<f64>) -> Vec<Vec<f64>> {
    m.row_iter().map(|row| row.iter().copied().collect()).collect()
}

fn from_rows<E: Error>(rows: Vec<Vec<f64>>) -> Result<DMatrix<f64>, E> {
    let columns = rows.first().map_or(0, Vec::len);
    if columns == 0 {
        return Err(E::custom("a matrix needs at least one row and one column"));
    }
    if let Some(row) = rows.iter().position(|row| row.len() != columns) {
        let length = rows[row].len();
        return Err(E::custom(format!(
            "row {row} of a matrix has {length} entries, the first row has {columns}"
        )));
    }
    Ok(DMatrix::from_row_iterator(
        rows.len(),
        columns,
        rows.into_iter().flatten(),
    ))
}

/// For a `DMatrix` field: `#[serde(with = "rows::one")]`.
pub(crate) mod one {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(m: &DMatrix<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        to_rows(m).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DMatrix<f64>, D::Error> {
        from_rows(Vec::deserialize(deserializer)?)
    }
}

/// For a `Vec<DMatrix>` field: `#[serde(with = "rows::many")]`.
pub(crate) mod many {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(list: &[DMatrix<f64>], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(to_rows))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<DMatrix<f64>>, D::Error> {
        Vec::<Vec<Vec<f64>>>::deserialize(deserializer)?
            .into_iter()
            .map(from_rows)
            .collect()
    }
}
