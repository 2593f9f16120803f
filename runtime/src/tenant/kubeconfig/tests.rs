use serde_json::{Value, json};

use super::*;
use crate::tenant::pki::{Authority, PKI, base64, kubeconfig, secret};

const SERVER: &str = "https://10.0.0.7:6443";
/// What no text may ever repeat.
const MARK: &str = "s3cr3t";

fn good() -> Value {
    kubeconfig(SERVER, &PKI.0)
}

fn read(kubeconfig: &Value) -> Result<Credentials, Refusal> {
    credentials(&secret("blue", kubeconfig.to_string().as_bytes()), "blue")
}

fn cause(kubeconfig: &Value) -> Option<Unusable> {
    read(kubeconfig).err().map(|refusal| refusal.cause)
}

fn cause_of(text: &[u8]) -> Option<Unusable> {
    credentials(&secret("blue", text), "blue").err().map(|refusal| refusal.cause)
}

/// A good kubeconfig with one field of its cluster or user set to something else.
fn with(section: &str, field: &str, value: Value) -> Value {
    let mut kubeconfig = good();
    let entry = match section {
        "cluster" => &mut kubeconfig["clusters"][0]["cluster"],
        _ => &mut kubeconfig["users"][0]["user"],
    };
    match value {
        Value::Null => drop(entry.as_object_mut().unwrap().remove(field)),
        value => entry[field] = value,
    }
    kubeconfig
}

#[test]
fn what_cluster_api_writes_is_used_as_json_and_as_yaml() {
    let read = read(&good()).unwrap();
    assert_eq!(read.server, SERVER.parse::<Uri>().unwrap());
    assert!(read.tls.client_auth_cert_resolver.has_certs());
    assert!(read.token.is_none() && read.server_name.is_none());
    let yaml = serde_saphyr::to_string(&good()).unwrap();
    assert_eq!(cause_of(yaml.as_bytes()), None, "{yaml}");
}

#[test]
fn a_token_does_instead_of_a_certificate() {
    let mut kubeconfig = good();
    kubeconfig["users"][0]["user"] = json!({ "token": MARK });
    let read = read(&kubeconfig).unwrap();
    assert_eq!(read.token.as_deref(), Some(MARK));
    assert!(!read.tls.client_auth_cert_resolver.has_certs());
    assert!(!format!("{read:?}").contains(MARK));
}

#[test]
fn what_says_nothing_is_not_minded() {
    for (section, field, value) in [
        ("cluster", "proxy-url", json!("")),
        ("cluster", "insecure-skip-tls-verify", json!(false)),
        ("cluster", "tls-server-name", json!("")),
        ("cluster", "disable-compression", json!(true)),
        ("cluster", "extensions", json!([{ "name": "x", "extension": { "y": [1, 2] } }])),
        ("user", "exec", json!(null)),
        ("user", "token", json!("")),
    ] {
        assert_eq!(cause(&with(section, field, value)), None, "{field}");
    }
    let mut kubeconfig = good();
    kubeconfig["current-context"] = json!("");
    kubeconfig["contexts"][0]["context"]["namespace"] = json!("kube-system");
    assert_eq!(cause(&kubeconfig), None);
}

#[test]
fn the_name_in_the_servers_certificate_may_be_another_than_its_host() {
    let read = read(&with("cluster", "tls-server-name", json!("blue.example.org"))).unwrap();
    assert_eq!(read.server_name, Some(ServerName::try_from("blue.example.org").unwrap()));
    let wrong = with("cluster", "tls-server-name", json!(format!("{MARK}\n")));
    assert_eq!(cause(&wrong), Some(Unusable::ServerName));
}

#[test]
fn what_would_run_read_or_pretend_is_refused_by_name() {
    let exec = json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", MARK] });
    for (section, field, value, expected) in [
        ("user", "exec", exec, Unusable::Command("exec")),
        ("user", "exec", json!(MARK), Unusable::Command("exec")),
        ("user", "auth-provider", json!({ "name": MARK }), Unusable::Command("auth-provider")),
        ("user", "tokenFile", json!("/var/run/secrets/token"), Unusable::File("tokenFile")),
        ("user", "client-certificate", json!("/etc/passwd"), Unusable::File("client-certificate")),
        ("user", "client-key", json!("/etc/shadow"), Unusable::File("client-key")),
        ("cluster", "certificate-authority", json!("/etc/ca"), Unusable::File("certificate-authority")),
        ("cluster", "insecure-skip-tls-verify", json!(true), Unusable::Insecure),
        ("cluster", "proxy-url", json!(format!("socks5://{MARK}")), Unusable::Proxy),
        ("user", "as", json!("system:admin"), Unusable::Impersonation("as")),
        ("user", "as-uid", json!("1"), Unusable::Impersonation("as-uid")),
        ("user", "as-groups", json!(["system:masters"]), Unusable::Impersonation("as-groups")),
        ("user", "as-user-extra", json!({ "a": ["b"] }), Unusable::Impersonation("as-user-extra")),
        ("user", "username", json!("admin"), Unusable::Password),
        ("user", "password", json!(MARK), Unusable::Password),
        ("cluster", "server", json!(format!("http://{MARK}")), Unusable::Server),
        ("cluster", "server", json!(format!("https://{MARK}@10.0.0.7")), Unusable::Server),
        ("cluster", "server", Value::Null, Unusable::Server),
        ("cluster", "certificate-authority-data", Value::Null, Unusable::Authority),
        ("cluster", "certificate-authority-data", base64(""), Unusable::Authority),
        ("cluster", "certificate-authority-data", base64(MARK), Unusable::Authority),
        ("user", "client-key-data", Value::Null, Unusable::Identity),
        ("user", "client-certificate-data", Value::Null, Unusable::Identity),
        ("user", "client-key-data", base64(MARK), Unusable::Identity),
        ("user", "client-certificate-data", base64(MARK), Unusable::Identity),
        ("user", "token", json!(format!("{MARK}\r\nx-evil: 1")), Unusable::Token),
    ] {
        let refusal = read(&with(section, field, value)).unwrap_err();
        assert_eq!(refusal.cause, expected, "{field}");
        let text = refusal.to_string();
        assert!(text.starts_with("Secret acme/blue-kubeconfig ") && text.contains(": "), "{text}");
        assert!(!text.contains(MARK) && !format!("{refusal:?}").contains(MARK), "{text}");
    }
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let other = Authority::new("other").server(false);
    let wrong = with("user", "client-key-data", base64(&other.key.serialize_pem()));
    assert_eq!(cause(&wrong), Some(Unusable::Identity));
}

#[test]
fn nobody_to_be_is_refused() {
    for user in [json!({}), json!({ "token": "" })] {
        let mut kubeconfig = good();
        kubeconfig["users"][0]["user"] = user;
        assert_eq!(cause(&kubeconfig), Some(Unusable::NoIdentity));
    }
}

#[test]
fn where_there_is_a_choice_none_is_made() {
    for list in ["clusters", "users", "contexts"] {
        let mut two = good();
        let first = two[list][0].clone();
        two[list].as_array_mut().unwrap().push(first);
        assert_eq!(cause(&two), Some(Unusable::Ambiguous), "two {list}");
        for none in [json!([]), Value::Null] {
            let mut kubeconfig = good();
            kubeconfig[list] = none;
            assert_eq!(cause(&kubeconfig), Some(Unusable::Ambiguous), "no {list}");
        }
    }
    for (pointer, value) in [
        ("/current-context", "other"),
        ("/contexts/0/context/cluster", "other"),
        ("/contexts/0/context/user", "other"),
    ] {
        let mut kubeconfig = good();
        *kubeconfig.pointer_mut(pointer).unwrap() = json!(value);
        assert_eq!(cause(&kubeconfig), Some(Unusable::Ambiguous), "{pointer}");
    }
}

#[test]
fn what_does_not_parse_is_told_by_its_place_and_never_by_its_content() {
    let bomb = format!(
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n{}",
        serde_saphyr::to_string(&good()).unwrap()
    );
    let anchor = serde_saphyr::to_string(&good()).unwrap().replace("kind: Config", "kind: &a Config");
    let merge = format!("<<: {{ kind: {MARK} }}\n{}", serde_saphyr::to_string(&good()).unwrap());
    let deep = format!("x: {}{}\n", "[".repeat(5000), "]".repeat(5000));
    let block: String = (0..200).flat_map(|n| [" ".repeat(n), "x:\n".to_owned()]).collect();
    let many = format!("x: [{}]\n", "1,".repeat(20_000));
    let documents = format!("{0}---\n{0}", serde_saphyr::to_string(&good()).unwrap());
    let twice = format!("kind: {MARK}\n{}", serde_saphyr::to_string(&good()).unwrap());
    for text in [
        bomb.as_str(),
        &anchor,
        &merge,
        &deep,
        &block,
        &many,
        &documents,
        &twice,
        MARK,
        "clusters: s3cr3t\n",
        "clusters: [s3cr3t]\n",
        "clusters: [{ name: { s3cr3t: x } }]\n",
        "\t{s3cr3t",
        "\0",
        "\u{feff}\u{202e}s3cr3t",
    ] {
        let refusal = credentials(&secret("blue", text.as_bytes()), "blue").unwrap_err();
        let told = refusal.to_string();
        assert!(
            matches!(refusal.cause, Unusable::NotReadable { .. }),
            "{told}: {}",
            &text[..text.len().min(80)]
        );
        assert!(!told.contains(MARK) && !format!("{refusal:?}").contains(MARK), "{told}");
    }
    assert!(matches!(cause_of(&[0xff, 0xfe, 0x00]), Some(Unusable::NotReadable { .. })));
    let key = with("user", "client-key-data", json!(format!("{MARK}!!")));
    let refusal = read(&key).unwrap_err();
    assert!(matches!(refusal.cause, Unusable::NotReadable { .. }) && !refusal.to_string().contains(MARK));
}

#[test]
fn only_cluster_apis_own_secret_of_that_very_cluster_is_looked_at() {
    let text = good().to_string();
    let mut opaque = secret("blue", text.as_bytes());
    opaque.type_ = Some("Opaque".into());
    assert_eq!(credentials(&opaque, "blue").unwrap_err().cause, Unusable::Type);
    opaque.type_ = None;
    assert_eq!(credentials(&opaque, "blue").unwrap_err().cause, Unusable::Type);

    assert_eq!(credentials(&secret("red", text.as_bytes()), "blue").unwrap_err().cause, Unusable::Label);
    let mut bare = secret("blue", text.as_bytes());
    bare.metadata.labels = None;
    assert_eq!(credentials(&bare, "blue").unwrap_err().cause, Unusable::Label);

    assert_eq!(cause_of(b""), Some(Unusable::Empty));
    let mut other = secret("blue", b"");
    other.data = Some([("admin.conf".to_owned(), ByteString(text.into_bytes()))].into());
    assert_eq!(credentials(&other, "blue").unwrap_err().cause, Unusable::Empty);
    assert_eq!(cause_of(&vec![b' '; LARGEST + 1]), Some(Unusable::TooLarge));
}

#[test]
fn the_fingerprint_is_that_of_the_content() {
    let (one, two) = (read(&good()).unwrap(), read(&good()).unwrap());
    assert_eq!(one.fingerprint, two.fingerprint);
    let other = read(&with("cluster", "server", json!("https://10.0.0.8:6443"))).unwrap();
    assert_ne!(one.fingerprint, other.fingerprint);
}
