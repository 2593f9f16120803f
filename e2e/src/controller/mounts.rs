//! Mounted ConfigMaps and Secrets as files, renewed the way a kubelet renews them.
//!
//! A kubelet never rewrites a mounted file: it writes a new folder and swaps the link `..data`, through which every
//! file is a link
//! (<https://kubernetes.io/docs/concepts/configuration/configmap/#mounted-configmaps-are-updated-automatically>). A
//! process that watches the file itself misses that, which is what a test must be able to see.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};

use super::pod::{Content, Pod};

/// The mounts of one pod.
#[derive(Debug)]
pub(super) struct Mounts(Vec<Mounted>);

#[derive(Debug)]
struct Mounted {
    path: String,
    folder: PathBuf,
    content: Content,
}

type Files = BTreeMap<String, Vec<u8>>;

impl Mounts {
    /// Mounts of the pod, below this folder; empty until [`Mounts::sync`].
    pub(super) fn new(folder: &Path, pod: &Pod) -> Self {
        let mounted = pod.mounts.iter().map(|mount| Mounted {
            path: mount.path.clone(),
            folder: folder.join(mount.path.trim_start_matches('/')),
            content: mount.content.clone(),
        });
        Self(mounted.collect())
    }

    /// An argument or variable with the container's paths replaced by ours.
    pub(super) fn translate(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, mounted| {
            text.replace(&mounted.path, &mounted.folder.display().to_string())
        })
    }

    /// Brings the files up to date.
    pub(super) async fn sync(&self, client: &Client, namespace: &str) -> Result<()> {
        for mounted in &self.0 {
            let files = read(client, namespace, &mounted.content).await?;
            write(&mounted.folder, &files).with_context(|| format!("mount {}", mounted.path))?;
        }
        Ok(())
    }
}

async fn read(client: &Client, namespace: &str, content: &Content) -> Result<Files> {
    match content {
        Content::Nothing => Ok(Files::new()),
        Content::ConfigMap(name) => {
            let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            let map = api.get(name).await.with_context(|| format!("mounted ConfigMap {name}"))?;
            let text = map.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes()));
            let bytes = map.binary_data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0));
            Ok(text.chain(bytes).collect())
        }
        Content::Secret(name) => {
            let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
            let secret = api.get(name).await.with_context(|| format!("mounted Secret {name}"))?;
            Ok(secret.data.into_iter().flatten().map(|(key, bytes)| (key, bytes.0)).collect())
        }
    }
}

fn write(folder: &Path, files: &Files) -> Result<()> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let data = folder.join("..data");
    let old = fs::read_link(&data).ok();
    if old.as_ref().is_some_and(|old| is(&folder.join(old), files)) {
        return Ok(());
    }
    let version = format!("..{}", COUNT.fetch_add(1, Ordering::Relaxed));
    fs::create_dir_all(folder.join(&version))?;
    for (name, bytes) in files {
        fs::write(folder.join(&version).join(name), bytes)?;
    }
    let draft = folder.join("..data_tmp");
    symlink(&version, &draft)?;
    fs::rename(draft, &data)?;
    for name in files.keys() {
        let file = folder.join(name);
        if fs::symlink_metadata(&file).is_err() {
            symlink(Path::new("..data").join(name), file)?;
        }
    }
    if let Some(old) = old {
        for entry in fs::read_dir(folder.join(&old))? {
            let name = entry?.file_name();
            if !files.contains_key(&*name.to_string_lossy()) {
                fs::remove_file(folder.join(name))?;
            }
        }
        fs::remove_dir_all(folder.join(old))?;
    }
    Ok(())
}

/// Whether the folder holds exactly these files.
fn is(folder: &Path, files: &Files) -> bool {
    let count = fs::read_dir(folder).map_or(0, Iterator::count);
    count == files.len()
        && files.iter().all(|(name, bytes)| fs::read(folder.join(name)).is_ok_and(|found| found == *bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;

    fn files(pairs: &[(&str, &str)]) -> Files {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn files_are_swapped_and_removed_as_a_kubelet_does() {
        let rig = Rig::new("mounts").unwrap();
        let folder = rig.subfolder("etc").unwrap();
        write(&folder, &files(&[("a", "1"), ("b", "1")])).unwrap();
        let before = fs::read_link(folder.join("..data")).unwrap();
        write(&folder, &files(&[("a", "1"), ("b", "1")])).unwrap();
        assert_eq!(
            before,
            fs::read_link(folder.join("..data")).unwrap(),
            "nothing changed, nothing is swapped"
        );

        write(&folder, &files(&[("a", "2"), ("c", "2")])).unwrap();
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "2");
        assert_eq!(fs::read_to_string(folder.join("c")).unwrap(), "2");
        assert!(!folder.join("b").exists());
        assert!(!folder.join(before).exists());
        rig.succeed();
    }
}
