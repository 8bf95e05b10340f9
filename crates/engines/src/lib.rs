//! Storage engines behind the store's Engine trait: LMDB, and an in-memory reference
