//! The address in a kubeconfig: `https://host[:port]` and nothing that would make a request go elsewhere.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::Uri;

use super::Unusable;

/// Longest address in bytes: a DNS name has 253.
const LONGEST: usize = 300;

/// Reads `text`. A path would let the Secret's author choose what is requested of any server, so there is none.
pub(super) fn server(text: &str) -> Result<Uri, Unusable> {
    let rest = text.strip_prefix("https://").filter(|_| text.len() <= LONGEST).ok_or(Unusable::Server)?;
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    // Beside what a host and a port are made of, nothing: no user, path, query, fragment, escape or blank.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    if !authority.bytes().all(plain) {
        return Err(Unusable::Server);
    }
    let uri: Uri = format!("https://{authority}").parse().map_err(|_| Unusable::Server)?;
    let host = uri.host().filter(|host| is_host(host)).ok_or(Unusable::Server)?;
    let port = authority.strip_prefix(host).ok_or(Unusable::Server)?;
    let fits = port.is_empty()
        || port.strip_prefix(':').and_then(|port| port.parse::<u16>().ok()).is_some_and(|port| port != 0);
    if fits { Ok(uri) } else { Err(Unusable::Server) }
}

/// A name or an address. `2130706433` and `0x7f.1` look like names, and resolvers take them for addresses.
fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return inner.parse::<Ipv6Addr>().is_ok();
    }
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let numeric = last.starts_with(|first: char| first.is_ascii_digit());
    let labels = host.trim_end_matches('.').split('.').all(|label| !label.is_empty() && label.len() <= 63);
    host.parse::<Ipv4Addr>().is_ok() || (labels && !numeric && !host.contains(['[', ']', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_and_perhaps_a_port() {
        for (text, host) in [
            ("https://10.0.0.7:6443", "10.0.0.7"),
            ("https://10.0.0.7:6443/", "10.0.0.7"),
            ("https://blue.acme.svc:6443", "blue.acme.svc"),
            ("https://blue.example.org", "blue.example.org"),
            ("https://blue.example.org.", "blue.example.org."),
            ("https://[fd00::1]:6443", "[fd00::1]"),
            ("https://1and1.example.org", "1and1.example.org"),
        ] {
            let uri = server(text).unwrap();
            assert_eq!(uri.host(), Some(host), "{text}");
            assert_eq!(uri.path(), "/");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let long = format!("https://{}:6443", "a.".repeat(200));
        for text in [
            "",
            "https://",
            "http://10.0.0.7:6443",
            "HTTPS://10.0.0.7",
            "ftp://10.0.0.7",
            "10.0.0.7:6443",
            "//10.0.0.7",
            "https://user@10.0.0.7",
            "https://user:secret@10.0.0.7",
            "https://10.0.0.7/k8s/clusters/c-1",
            "https://10.0.0.7//",
            "https://10.0.0.7?x=1",
            "https://10.0.0.7#x",
            "https://10.0.0.7:0",
            "https://10.0.0.7:65536",
            "https://10.0.0.7:",
            "https://10.0.0.7:+1",
            "https://10.0.0.7:64 43",
            "https://10.0.0.7\r\nx: y",
            "https://10.0.0.7\\@evil",
            "https://a%2eb",
            "https://2130706433",
            "https://127.1",
            "https://0x7f.1",
            "https://0177.0.0.1",
            "https://a..b",
            "https://fd00::1",
            "https://[fe80::1%25eth0]",
            "https://[fd00::1",
            "https://[10.0.0.7]",
            "https://bücher.example",
            long.as_str(),
        ] {
            assert_eq!(server(text), Err(Unusable::Server), "{text}");
        }
    }
}
