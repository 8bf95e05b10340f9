//! Models and designs as JSON documents: readable, exact, and suspicious of what they read.

use proptest::prelude::*;
use punctual_control::{ArxModel, DMatrix, Design, OperatingPoint, Orders, Recording, Weights, design, identify};

use crate::truths::systems::{names, stable_arx};

fn identified() -> ArxModel {
    let (mut y, mut u) = (vec![vec![1.0]], vec![]);
    for k in 0..60 {
        u.push(vec![f64::from(k * k % 7)]);
        y.push(vec![
            0.3 * y[k as usize][0] + 0.1 * u[k as usize][0] + 0.01 * f64::from(k % 5),
        ]);
    }
    y.pop();
    let record = Recording {
        outputs: vec!["delay".into()],
        inputs: vec!["load".into()],
        y,
        u,
    };
    identify(&record, Orders::FIRST, &OperatingPoint::Mean).unwrap()
}

proptest! {
    #[test]
    fn a_model_survives_its_document(model in stable_arx(1..=3, 0..=1, 1..=3)) {
        let read: ArxModel = serde_json::from_str(&serde_json::to_string(&model).unwrap()).unwrap();
        prop_assert_eq!(read.fingerprint(), model.fingerprint());
        prop_assert_eq!(read, model);
    }

    #[test]
    fn the_fingerprint_notices_any_changed_number(
        model in stable_arx(1..=2, 0..=1, 1..=2), which: prop::sample::Index,
    ) {
        let mut b = model.b().to_vec();
        let last = b.len() - 1;
        let entry = which.index(b[last].len());
        b[last][entry] += 1e-12;
        let changed =
            ArxModel::from_matrices(model.inputs().to_vec(), model.outputs().to_vec(), model.a().to_vec(), b).unwrap();
        prop_assert_ne!(changed.fingerprint(), model.fingerprint());
    }
}

#[test]
fn an_identified_model_and_its_design_survive_their_documents() {
    let model = identified();
    let read: ArxModel = serde_json::from_str(&serde_json::to_string_pretty(&model).unwrap()).unwrap();
    assert_eq!(read, model);
    let law = design(
        &model,
        &Weights {
            error: vec![1.0],
            accumulated: vec![1.0],
            effort: vec![1.0],
        },
    )
    .unwrap();
    let text = serde_json::to_string_pretty(&law).unwrap();
    let read_law: Design = serde_json::from_str(&text).unwrap();
    assert_eq!(read_law, law);
    assert!(read_law.check_model(&read).is_ok());
}

#[test]
fn matrices_are_written_as_rows() {
    let model = ArxModel::from_matrices(
        names("u", 1),
        names("y", 2),
        vec![DMatrix::from_row_slice(2, 2, &[0.1, 0.2, 0.3, 0.4])],
        vec![DMatrix::from_row_slice(2, 1, &[5.0, 6.0])],
    )
    .unwrap();
    let document = serde_json::to_value(&model).unwrap();
    assert_eq!(document["a"], serde_json::json!([[[0.1, 0.2], [0.3, 0.4]]]));
    assert_eq!(document["b"], serde_json::json!([[[5.0], [6.0]]]));
}

#[test]
fn documents_that_contradict_themselves_are_refused() {
    let whole = serde_json::to_value(identified()).unwrap();
    let refusal = |key: &str, value: serde_json::Value| {
        let mut document = whole.clone();
        document[key] = value;
        serde_json::from_value::<ArxModel>(document).unwrap_err().to_string()
    };
    use serde_json::json;
    assert!(refusal("a", json!([])).contains("no A"));
    assert!(refusal("a", json!([[[0.1, 0.2]]])).contains("A_1 is 1x2"));
    assert!(refusal("a", json!([[[0.1], [0.2, 0.3]]])).contains("row 1 of a matrix has 2 entries"));
    assert!(refusal("b", json!([[]])).contains("at least one row"));
    assert!(refusal("u0", json!([])).contains("u0 is 0x1"));
    assert!(refusal("outputs", json!(["delay", "rate"])).contains("A_1"));
    assert!(refusal("drift", json!([null])).contains("null"));
}

#[test]
fn a_controller_for_another_model_is_refused_with_both_names() {
    let model = identified();
    let law = design(
        &model,
        &Weights {
            error: vec![1.0],
            accumulated: vec![1.0],
            effort: vec![1.0],
        },
    )
    .unwrap();
    let other = ArxModel::from_matrices(names("u", 1), names("y", 1), model.a().to_vec(), model.b().to_vec()).unwrap();
    let message = law.check_model(&other).unwrap_err().to_string();
    assert!(message.contains(&model.fingerprint().to_string()) && message.contains(&other.fingerprint().to_string()));
}

#[test]
fn one_knob_of_a_model_keeps_its_name_place_and_column() {
    let b = DMatrix::from_row_slice(1, 2, &[3.0, 4.0]);
    let model = ArxModel::from_matrices(names("u", 2), names("y", 1), vec![DMatrix::identity(1, 1)], vec![b]).unwrap();
    let part = model.with_input(1).unwrap();
    assert_eq!(
        (part.inputs(), part.b()),
        (&["u1".to_string()][..], &[DMatrix::from_element(1, 1, 4.0)][..])
    );
    assert!(model.with_input(2).unwrap_err().to_string().contains("2 inputs"));
}

#[test]
fn the_fingerprint_knows_where_a_name_ends() {
    let named = |outputs: [&str; 2]| {
        let (a, b) = (DMatrix::identity(2, 2) * 0.5, DMatrix::identity(2, 2));
        ArxModel::from_matrices(names("u", 2), outputs.map(String::from).to_vec(), vec![a], vec![b]).unwrap()
    };
    assert_ne!(named(["ab", "c"]).fingerprint(), named(["a", "bc"]).fingerprint());
}
