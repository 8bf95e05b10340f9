//! Identification, Riccati, LQR-PI and PI control: pure mathematics
