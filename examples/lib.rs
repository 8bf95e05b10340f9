//! Examples of `punctual`: run one with `cargo run --release -p punctual-examples --example NAME`.
