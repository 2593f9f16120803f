//! Ports that are ours for as long as we hold them.
//!
//! Asking the kernel for port 0 and closing the socket again gives a port that the next outgoing connection may
//! take. So ports come from a range below the kernel's ephemeral one, each held by a locked file in the system's
//! temp folder: several clusters in one run, and several runs, never meet. The kernel drops the lock with the
//! process.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt,
    process,
    sync::atomic::{AtomicU16, Ordering},
};

use anyhow::{Context, Result};

const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// A port on 127.0.0.1 that nobody else of the kit takes while this lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _held: File,
}

impl Port {
    /// The port's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// `127.0.0.1:<port>`.
    pub fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.number)
    }
}

/// Takes a free port.
pub fn take() -> Result<Port> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let folder = std::env::temp_dir().join("kmetal-ports");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    // For other users of the machine; fails, rightly, when the folder is theirs.
    let _ = fs::set_permissions(&folder, fs::Permissions::from_mode(0o777));
    // Runs start looking in different places: fewer files to try.
    let start = u16::try_from(process::id().wrapping_mul(37) % u32::from(COUNT))?;
    (0..COUNT)
        .map(|_| FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT)
        .find_map(|number| {
            let held =
                File::options().create(true).append(true).open(folder.join(number.to_string())).ok()?;
            held.try_lock().ok()?;
            TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
            Some(Port { number, _held: held })
        })
        .context("every port from 20000 to 29999 is taken")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_held_until_it_is_dropped() {
        let (one, two) = (take().unwrap(), take().unwrap());
        assert_ne!(one.number(), two.number());
        let file = std::env::temp_dir().join("kmetal-ports").join(one.number().to_string());
        let other = File::open(file).unwrap();
        assert!(other.try_lock().is_err(), "another run could take it");
        drop(one);
        assert!(other.try_lock().is_ok(), "it is held for ever");
    }
}
