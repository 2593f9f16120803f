//! A small API server in memory.
