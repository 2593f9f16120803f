//! What a claim becomes, what may be changed in it, and what the platform's file has to do with it.

mod changes;
mod platform;

use kmetal_e2e::{networking::Offer, ovn::provider_network::ProviderNetwork};

const ENVIRONMENT: &str = "acme-prod";

fn internet() -> Offer {
    ProviderNetwork::new("internet", "203.0.113.0/24", "203.0.113.1").into()
}

fn partner() -> Offer {
    ProviderNetwork::new("partner", "198.51.100.0/24", "198.51.100.1").into()
}
