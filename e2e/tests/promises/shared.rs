//! What holds for every process of ours: one line for each joins it to the shared suite (`e2e/src/suite.rs`).

use kmetal_e2e::{networking::scenario::Networks, shared_suite};

shared_suite!(networking, Networks);
