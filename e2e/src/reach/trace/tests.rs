use super::*;

const DROPPED: &str = r#"
ingress(dp="vpc", inport="vpc-a")
---------------------------------
13. lr_in_ip_routing (northd.c:10388): ip4.dst == 203.0.113.0/24, priority 74, uuid 03e8281c
    outport = "vpc-pub";
    next;
15. lr_in_policy (northd.c:9526): ip4.dst == 203.0.113.0/24, priority 32000, uuid be00c480
    drop;
"#;

const LEAVES: &str = r#"
egress(dp="vpc", inport="vpc-a", outport="vpc-pub")
---------------------------------------------------
 3. lr_out_snat (northd.c:13958): ip && ip4.src == 10.1.0.0/24, priority 153, uuid 15db62bf
    ct_snat_in_czone(203.0.113.2);

ct_snatin_czone(ip4.src=203.0.113.2) /* default (use --ct to customize) */
--------------------------------------------------------------------------
 6. lr_out_delivery (northd.c:12995): outport == "vpc-pub", priority 100, uuid 7fadfa7d
    output;
    /* output to "vpc-pub", type "patch" */

multicast(dp="pub", mcgroup="_MC_unknown")
------------------------------------------

    egress(dp="pub", inport="pub-vpc", outport="localnet.pub")
    ----------------------------------------------------------
         9. ls_out_apply_port_sec (northd.c:5777): 1, priority 0, uuid 6a61f8ae
            output;
            /* output to "localnet.pub", type "localnet" */
"#;

const ASKED: &str = r#"
ingress(dp="vpc", inport="vpc-a")
---------------------------------
15. lr_in_policy (northd.c:9526): ip4, priority 1000, uuid d5817e0a
    outport = "vpc-pub";
    next;
21. lr_in_arp_request (northd.c:12929): eth.dst == 00:00:00:00:00:00 && ip4, priority 100, uuid 0aab33b9
    arp { eth.dst = ff:ff:ff:ff:ff:ff; arp.spa = reg1; arp.tpa = reg0; arp.op = 1; output; };

arp
---
    eth.dst = ff:ff:ff:ff:ff:ff;
    output;

multicast(dp="pub", mcgroup="_MC_flood_l2")
-------------------------------------------

    egress(dp="pub", inport="pub-vpc", outport="localnet.pub")
    ----------------------------------------------------------
            /* output to "localnet.pub", type "localnet" */
"#;

fn verdict(text: &str) -> Verdict {
    Trace::parse(text).verdict().unwrap()
}

#[test]
fn a_policy_that_drops_is_named() {
    let Verdict::Dropped { table, rule } = verdict(DROPPED) else { panic!("{:?}", verdict(DROPPED)) };
    assert_eq!(table, "lr_in_policy");
    assert_eq!(rule, "ip4.dst == 203.0.113.0/24, priority 32000");
}

#[test]
fn a_packet_that_leaves_has_its_translated_source() {
    let source = "203.0.113.2".parse().ok();
    assert_eq!(verdict(LEAVES), Verdict::Leaves { via: "localnet.pub".into(), source });
}

#[test]
fn the_networks_own_question_is_not_the_packet() {
    assert_eq!(verdict(ASKED), Verdict::Unanswered { behind: Some("vpc-pub".into()) });
}

#[test]
fn without_a_route_there_is_no_way() {
    let text = "13. lr_in_ip_routing (northd.c:12045): 1, priority 0, uuid f895dc4c\n    drop;\n";
    assert_eq!(verdict(text), Verdict::NoRoute);
    assert_eq!(verdict("13. lr_in_ip_routing: no match (implicit drop)\n"), Verdict::NoRoute);
}

#[test]
fn a_text_that_tells_nothing_gives_no_verdict() {
    assert_eq!(Trace::parse("ovn-trace: something new\n").verdict(), None);
}
