//! Linux behind the machine traits.
