//! What a claim remembers of its objects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which objects stand for a claim: what tells them from others of their names when somebody has torn their labels.
///
/// Tenants cannot write it, since no tenant role holds `/status`.
#[derive(JsonSchema, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The claim's own uid: what an earlier claim of the name remembered counts for nothing.
    #[schemars(length(max = 64))]
    pub claim: String,
    /// Uids of the objects on the under cluster that stand for it, in order.
    #[schemars(length(max = 8), inner(length(max = 64)))]
    pub objects: Vec<String>,
}
