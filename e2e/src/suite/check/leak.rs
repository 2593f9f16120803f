//! what the process takes of the machine does not grow with what has passed.

use crate::child::Usage;

/// What it takes at a moment at which it has nothing to do.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// As the kernel counts.
    pub usage: Usage,
    /// Tasks of its runtime.
    pub tasks: u64,
}

/// Connections come and go by themselves, and each has a task or two.
const SOME: u64 = 4;
/// Allocators round up, and the first round fills caches of a fixed size: a half on top of what it took.
const MEMORY: (u64, u64) = (3, 2);

/// What has grown, one line each.
pub fn faults(before: &Taken, after: &Taken) -> Vec<String> {
    let mut faults = Vec::new();
    let mut compare = |what: &str, before: u64, after: u64, most: u64| {
        if after > most {
            faults.push(format!("{what} grew from {before} to {after}"));
        }
    };
    let (was, is) = (before.usage, after.usage);
    compare("tasks", before.tasks, after.tasks, before.tasks + SOME);
    compare("open files", was.descriptors, is.descriptors, was.descriptors + SOME);
    compare("threads", was.threads, is.threads, was.threads + SOME);
    compare("resident memory", was.resident, is.resident, was.resident * MEMORY.0 / MEMORY.1);
    faults
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn taken() -> Taken {
        let usage = Usage {
            resident: 20 << 20,
            resident_at_most: 30 << 20,
            threads: 5,
            descriptors: 30,
            cpu: Duration::from_secs(1),
        };
        Taken { usage, tasks: 50 }
    }

    #[test]
    fn a_planted_leak_of_each_kind_is_found() {
        type Leak = fn(&mut Taken);
        assert_eq!(faults(&taken(), &taken()), Vec::<String>::new());
        let plant: [(&str, Leak); 4] = [
            ("tasks", |taken| taken.tasks += 20),
            ("open files", |taken| taken.usage.descriptors += 20),
            ("threads", |taken| taken.usage.threads += 20),
            ("resident memory", |taken| taken.usage.resident *= 2),
        ];
        for (what, leak) in plant {
            let mut after = taken();
            leak(&mut after);
            let found = faults(&taken(), &after);
            assert!(found.len() == 1 && found[0].starts_with(what), "{found:?}");
        }
    }
}
