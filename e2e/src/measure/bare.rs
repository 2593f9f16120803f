//! The bare drivers: the same client crate doing the least that the task allows. What they take is what our figures
//! are divided by, so they are run on the same machine, in the same run, against the same API server.
//!
//! They are the administrator: no role is looked up for them and none of their requests is ever queued, which makes
//! them a little quicker than one of our processes could be.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kmetal_crds::foreign::kube_ovn::{Vpc, VpcSpec};
use kube::{
    Api, Client, Config, Resource, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    core::ApiResource,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned, de::IgnoredAny};

/// What kubectl and our own watches ask for at a time.
const PAGE: usize = 500;
/// On what a bare driver made and will remove.
const LABEL: &str = "measure.kmetal.clastix.io/bare";

/// Creates the objects, `at_once` at a time; returns how long all of them took.
pub async fn create_all<K>(objects: Vec<K>, at_once: usize, api: impl Fn(&K) -> Api<K>) -> Result<Duration>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let began = Instant::now();
    stream::iter(objects)
        .map(|object| {
            let api = api(&object);
            async move { create(&api, &object).await }
        })
        .buffer_unordered(at_once)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(began.elapsed())
}

/// Creates one object.
pub async fn create<K>(api: &Api<K>, object: &K) -> Result<()>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let made = api.create(&PostParams::default(), object).await;
    made.map(drop).with_context(|| format!("create {}", object.name_any()))
}

/// A Vpc that stands for no claim.
pub fn vpc(name: &str, spec: &VpcSpec) -> Vpc {
    let mut vpc = Vpc::new(name, spec.clone());
    vpc.metadata.labels = Some([(LABEL.to_owned(), String::new())].into());
    vpc
}

/// Asks for the deletion of every such Vpc.
pub async fn remove_vpcs(client: &Client) -> Result<()> {
    let vpcs: Api<Vpc> = Api::all(client.clone());
    vpcs.delete_collection(&DeleteParams::default(), &ListParams::default().labels(LABEL)).await?;
    Ok(())
}

/// A list of which nothing is kept but where the next page begins.
#[derive(Deserialize)]
struct Page {
    metadata: Head,
    #[expect(dead_code, reason = "read and not kept")]
    items: IgnoredAny,
}

#[derive(Deserialize)]
struct Head {
    #[serde(default, rename = "continue")]
    next: String,
}

/// Connects anew and lists these kinds, one after the other and in pages, keeping nothing; returns how long it took.
pub async fn list_all(config: Config, kinds: &[ApiResource]) -> Result<Duration> {
    let began = Instant::now();
    let client = Client::try_from(config)?;
    for kind in kinds {
        let mut next = String::new();
        loop {
            let path = path(kind);
            let query = if next.is_empty() { String::new() } else { format!("&continue={next}") };
            let request = http::Request::get(format!("{path}?limit={PAGE}{query}")).body(Vec::new())?;
            let page: Page = client.request(request).await.with_context(|| format!("list {path}"))?;
            next = page.metadata.next;
            if next.is_empty() {
                break;
            }
        }
    }
    Ok(began.elapsed())
}

fn path(kind: &ApiResource) -> String {
    let ApiResource { group, api_version, plural, .. } = kind;
    if group.is_empty() { format!("/api/v1/{plural}") } else { format!("/apis/{api_version}/{plural}") }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use kmetal_crds::foreign::kube_ovn::OvnEip;

    use super::*;

    #[test]
    fn kinds_are_asked_for_where_they_are_served() {
        assert_eq!(path(&ApiResource::erase::<Namespace>(&())), "/api/v1/namespaces");
        assert_eq!(path(&ApiResource::erase::<OvnEip>(&())), "/apis/kubeovn.io/v1/ovn-eips");
    }

    #[test]
    fn of_a_page_only_the_way_on_is_kept() {
        let page: Page =
            serde_json::from_str(r#"{"metadata": {"continue": "abc"}, "items": [{"a": [1, {}]}]}"#).unwrap();
        assert_eq!(page.metadata.next, "abc");
        let last: Page = serde_json::from_str(r#"{"metadata": {}, "items": []}"#).unwrap();
        assert_eq!(last.metadata.next, "");
    }
}
