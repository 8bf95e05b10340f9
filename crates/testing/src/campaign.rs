/// Random cases of a property in the gate, as `.cargo/config.toml` says.
const GATE_CASES: u32 = 32;

/// The size of a campaign: `gate` in `.ci/run`; `nightly` where more random cases are asked for than there
/// (`PROPTEST_CASES`), as `.ci/nightly properties` does. Both are sizes of the same test, so both must find its planted
/// faults.
pub fn campaign<T>(gate: T, nightly: T) -> T {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    match cases.is_some_and(|cases: u32| cases > GATE_CASES) {
        true => nightly,
        false => gate,
    }
}
