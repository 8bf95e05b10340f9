//! A seeded source of choices, and tests that need a process of their own.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): enough randomness for choices in tests, from one printable seed.
pub struct Choices(u64);

impl Choices {
    pub fn new(seed: u64) -> Choices {
        Choices(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A number under `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The seed of this run: 1, or the environment's `TEST_SEED`. A change is not refused for a case that it has nothing to
/// do with; `.ci/nightly` draws new seeds. Printed, and shown when the test fails.
pub fn seed() -> u64 {
    let given = std::env::var("TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or(1);
    println!("TEST_SEED={seed}");
    seed
}

/// Runs `test`, which is the whole of the test `name` and forks, in a child of this program without other tests. A
/// forked child has the locks that other threads held at the fork, and would wait for them without limit.
#[cfg(target_os = "linux")]
pub fn alone(name: &str, test: impl FnOnce()) {
    const ALONE: &str = "ALONE_TEST_CHILD";
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ALONE, "1");
    let child = punctual_testing::output(&mut command, punctual_testing::CHILD_MAX).unwrap();
    let [said, errors] = [child.stdout, child.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    println!("{said}{errors}");
    assert!(
        child.status.success() && said.contains("1 passed"),
        "{name}: {}",
        child.status
    );
}
