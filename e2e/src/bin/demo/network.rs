//! Two tenants claim networks with the same addresses; one of them has a way out. Neither reaches the other.

use anyhow::Result;
use kmetal_crds::networking::VpcClaim;
use kmetal_e2e::{
    networking::{self, Networking},
    ovn::provider_network::ProviderNetwork,
    reach::{
        Reach,
        matrix::{Outside, Tenant},
    },
};

use crate::terminal::Terminal;

const ACME: &str = "\
apiVersion: networking.kmetal.clastix.io/v1alpha1
kind: VpcClaim
metadata:
  name: net
spec:
  egress: {}            # a way out, through the platform's default provider network
---
apiVersion: networking.kmetal.clastix.io/v1alpha1
kind: SubnetClaim
metadata:
  name: front
spec:
  vpc: net
  cidr: 10.0.1.0/24
---
apiVersion: networking.kmetal.clastix.io/v1alpha1
kind: SubnetClaim
metadata:
  name: back
spec:
  vpc: net
  cidr: 10.0.2.0/24
";

const OVERLAP: &str = "\
apiVersion: networking.kmetal.clastix.io/v1alpha1
kind: SubnetClaim
metadata:
  name: clash
spec:
  vpc: net
  cidr: 10.0.1.128/25   # the upper half of 'front'
";

const TYPO: &str = "\
apiVersion: networking.kmetal.clastix.io/v1alpha1
kind: SubnetClaim
metadata:
  name: typo
spec:
  vpc: net
  cidr: 10.0.3.7/24
";

const SPARE: &str = "\
apiVersion: networking.kmetal.clastix.io/v1alpha1
kind: VpcClaim
metadata:
  name: spare
spec: {}
---
apiVersion: networking.kmetal.clastix.io/v1alpha1
kind: SubnetClaim
metadata:
  name: spare-1
spec:
  vpc: spare
  cidr: 172.20.0.0/24
";

/// Plays the story; with `keep`, waits at its end until Ctrl-C.
pub(crate) async fn play(keep: bool) -> Result<()> {
    let internet = ProviderNetwork::new("internet", "203.0.113.0/24", "203.0.113.1");
    chapter("An under cluster: Kubernetes, OVN, Kube-OVN and kmetal-networking, all real");
    println!(
        "No kubelet runs here: a Pod object stands for a tenant's machine. Kube-OVN gives it a port and an address."
    );
    let platform = Networking::start("demo", &[internet.clone().into()]).await?;
    let cluster = platform.under().cluster();
    let engineer = Terminal::engineer(cluster)?;
    for (tenant, namespace) in [("acme", "acme-prod"), ("globex", "globex-prod")] {
        platform.environment(tenant, namespace).await?;
    }
    engineer.types("get namespaces -L capsule.clastix.io/tenant").await;

    chapter("Two tenants claim a network each, with the same addresses");
    let acme = Terminal::tenant(cluster, "acme", "acme-prod").await?;
    let globex = Terminal::tenant(cluster, "globex", "globex-prod").await?;
    acme.apply("network.yaml", ACME).await?;
    let without_egress = ACME.replace(
        "spec:\n  egress: {}            # a way out, through the platform's default provider network\n",
        "spec: {}                # no way out\n",
    );
    globex.apply("network.yaml", &without_egress).await?;
    for tenant in [&acme, &globex] {
        tenant.types("wait --for=condition=Ready vpcc,snc --all --timeout=120s").await;
        tenant.types("get vpcc,snc").await;
    }
    println!("\nWhat became of them on the under cluster:");
    engineer
        .types(
            "get vpcs.kubeovn.io,subnets.kubeovn.io,ovn-snat-rules.kubeovn.io -l kmetal.clastix.io/claim-uid",
        )
        .await;

    chapter("A claim that cannot be served is told why");
    acme.apply("overlap.yaml", OVERLAP).await?;
    platform.subnet_says("acme-prod", "clash", kmetal_crds::networking::reason::CIDR_OVERLAP).await?;
    acme.types("get snc clash -o wide").await;
    acme.types("delete snc clash").await;
    println!("\nWhat a rule can see is refused where it was typed:");
    acme.apply("typo.yaml", TYPO).await?;
    acme.types("get vpcs.kubeovn.io").await;

    chapter("Who reaches whom: every cell is packets followed through OVN's real flows by ovn-trace");
    let matrix = matrix(&platform, &internet).await?;
    print!("{matrix}");
    println!("{LEGEND}");
    matrix.expect(TRUTH)?;

    chapter("A deletion in the wrong order");
    acme.apply("spare.yaml", SPARE).await?;
    acme.types("wait --for=condition=Ready vpcc/spare snc/spare-1 --timeout=60s").await;
    acme.types("delete vpcc spare --wait=false").await;
    platform.vpc_says("acme-prod", "spare", kmetal_crds::networking::reason::IN_USE).await?;
    acme.types("get vpcc spare -o wide").await;
    acme.types("delete snc spare-1 --timeout=60s").await;
    cluster.wait_gone::<VpcClaim>(Some("acme-prod"), "spare").await?;
    acme.types("get vpcc,snc").await;

    if keep {
        chapter("It goes on until you press Ctrl-C. In another terminal:");
        for person in [&engineer, &acme, &globex] {
            println!("  {}", person.how_to_go_on());
        }
        println!("  kubectl is {}", kmetal_e2e::programs::kubectl().display());
        println!(
            "  try: kubectl apply -f network.yaml; kubectl get kmetal -o wide; kubectl describe snc front"
        );
        tokio::signal::ctrl_c().await?;
    }
    platform.finish();
    Ok(())
}

const LEGEND: &str = "
own, sibling   another machine on the same subnet, and on the VPC's other subnet
other          the other tenant's machines; 'home' is the tenant's own machine, which has the same address
provider       a host on the segment through which VPCs leave
management     the under cluster's nodes
control        the tenants' API servers
internet       anywhere else
forged         outside, and the sibling subnet, with a source address that is not the machine's
inbound        a host on that segment sends to the machine's address";

const TRUTH: &str = "
tenant  family  own      sibling  other  provider  management  control  internet  forged   inbound
acme    IPv4    reached  reached  home   dropped   dropped     leaves   leaves    dropped  dropped
globex  IPv4    reached  reached  home   dropped   dropped     nowhere  nowhere   dropped  -
";

/// Two machines on `front` and one on `back` for each tenant, then every question.
async fn matrix(
    platform: &Networking,
    internet: &ProviderNetwork,
) -> Result<kmetal_e2e::reach::matrix::Matrix> {
    let under = platform.under();
    let mut tenants = Vec::new();
    for (name, namespace, egress) in [("acme", "acme-prod", Some(internet)), ("globex", "globex-prod", None)]
    {
        let vpc = platform
            .vpc_ready(namespace, "net")
            .await?
            .status
            .and_then(|status| status.vpc)
            .unwrap_or_default();
        if let Some(segment) = egress {
            under.play_gateway(segment, &vpc).await?;
        }
        tenants.push(Tenant {
            name: name.into(),
            machine: under.workload(namespace, "vm-1", "front").await?,
            neighbour: Some(under.workload(namespace, "vm-2", "front").await?),
            sibling: Some(under.workload(namespace, "vm-3", "back").await?),
            egress: egress.cloned(),
        });
    }
    let outside = Outside {
        segments: vec![internet.clone()],
        management: networking::MANAGEMENT.parse::<ipnet::IpNet>()?.hosts().take(1).collect(),
        control_planes: networking::CONTROL_PLANES.parse::<ipnet::IpNet>()?.hosts().take(1).collect(),
        internet: vec!["9.9.9.9".parse()?],
    };
    Reach::of(under.ovn()).await?.matrix(&tenants, &outside).await
}

fn chapter(title: &str) {
    println!("\n\n== {title}\n");
}
