//! How do programs in C and Python call the store? By functions with C's types, over the front crate alone.
//!
//! **Border.** Each function answers with a [`punctual_code`](code::punctual_code); the text is in
//! `punctual_last_error`. A panic ends at the border, as a code. A handle is a number in a pointer's type, which no
//! side follows: a closed or invented one is refused. Only memory of the caller is taken on trust.
//!
//! **Header.** include/punctual.h is made of these sources by cbindgen (cbindgen.toml): names are those of C. A test
//! compares both. include/punctual.py calls the same functions by ctypes, which needs no build for each Python, and
//! lets other threads run in each call.

// Names are those of C.
#![allow(non_camel_case_types)]

mod code;
mod handles;
mod rows;
mod store;
#[cfg(test)]
mod tests;
mod watch;
