//! What the suite has to know of a kind in order to compare, disturb and count its objects.

use anyhow::{Context, Result};
use kube::{
    Api, Client, Resource,
    api::ListParams,
    core::{ApiResource, DynamicObject},
};

/// Whose objects of a kind are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A person's: applied by the scenario, answered by the process in its status.
    Own,
    /// Made by the process, or by a peer at its bidding.
    Child,
}

/// One kind of the end state.
#[derive(Debug, Clone)]
pub struct Kind {
    /// What it is.
    pub resource: ApiResource,
    /// Whose it is.
    pub role: Role,
    /// JSON pointers to values that somebody else chooses, each time another: an address, a MAC address.
    ///
    /// Like a uid, such a value is replaced wherever it is found in the end state by the place where it comes from, so
    /// that it may differ from run to run and yet must be the same in all places.
    pub assigned: &'static [&'static str],
    /// JSON pointers to what is left out of comparisons: counters and the like, of no account to the scenario.
    pub noise: &'static [&'static str],
}

impl Kind {
    /// A kind that people apply.
    pub fn own<K: Resource<DynamicType = ()>>() -> Self {
        Self::of::<K>(Role::Own)
    }

    /// A kind that the process makes.
    pub fn child<K: Resource<DynamicType = ()>>() -> Self {
        Self::of::<K>(Role::Child)
    }

    fn of<K: Resource<DynamicType = ()>>(role: Role) -> Self {
        Self { resource: ApiResource::erase::<K>(&()), role, assigned: &[], noise: &[] }
    }

    /// See [`Kind::assigned`].
    #[must_use]
    pub fn assigned(self, assigned: &'static [&'static str]) -> Self {
        Self { assigned, ..self }
    }

    /// See [`Kind::noise`].
    #[must_use]
    pub fn noise(self, noise: &'static [&'static str]) -> Self {
        Self { noise, ..self }
    }

    /// All objects of the kind.
    pub async fn list(&self, client: &Client) -> Result<Vec<DynamicObject>> {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &self.resource);
        let list = api.list(&ListParams::default()).await;
        Ok(list.with_context(|| format!("list {}", self.resource.plural))?.items)
    }
}
