//! Many want one address: one gets it, and each of the others is told so, and nothing of who it was.

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use kmetal_crds::networking::{EipClaim, reason};

use super::{ACME, GLOBEX, POOL, World, address, every_address_had_one_owner, id, is_ready, told, waits};

/// Clients that ask at once.
const CLIENTS: usize = 64;

/// So many times, all want another address.
pub async fn one_of_many_gets_it(world: &World, rounds: usize) -> Result<()> {
    let history = world.record().await?;
    for round in 0..rounds {
        let wish = format!("203.0.113.{}", 2 + round % POOL);
        let names: Vec<String> = (0..CLIENTS).map(|client| format!("wish-{round}-{client}")).collect();
        let asked = names.iter().enumerate().map(|(client, name)| {
            let namespace = if client % 2 == 0 { ACME } else { GLOBEX };
            world.claim(namespace, name, Some(&wish))
        });
        try_join_all(asked).await?;
        let first = decided(world, &wish, CLIENTS).await?;
        // What one gives back, another gets, and again one alone.
        world.give_back(&first.0, &first.1).await?;
        let second = decided(world, &wish, CLIENTS - 1).await?;
        ensure!(first != second, "{first:?} has {wish} again");
        world.give_all_back().await?;
    }
    every_address_had_one_owner(&history).await
}

/// Waits until each of so many claims knows whether it gets this address, and judges what they are told. Returns who has it.
async fn decided(world: &World, wish: &str, clients: usize) -> Result<(String, String)> {
    let wait = world.wait_for(&format!("one claim has {wish} and all others know")).await?;
    let claims = wait
        .until(async || {
            let claims = world.claims().await?;
            let winners = claims.iter().filter(|claim| is_ready(claim)).count();
            let losers = claims.iter().filter(|claim| waits(claim, reason::ADDRESS_UNAVAILABLE)).count();
            ensure!(
                (claims.len(), winners, losers) == (clients, 1, clients - 1),
                "of {} claims {winners} are Ready and {losers} know that they do not get it",
                claims.len()
            );
            Ok(Some(claims))
        })
        .await?;
    let (winners, losers): (Vec<&EipClaim>, Vec<&EipClaim>) =
        claims.iter().partition(|claim| is_ready(claim));
    let winner = winners.first().context("no winner")?;
    ensure!(address(winner) == Some(wish), "{:?} got {:?}", id(winner), address(winner));
    let messages: std::collections::BTreeSet<&str> =
        losers.iter().filter_map(|claim| told(claim)).map(|(.., message)| message).collect();
    // One text for all: it cannot tell whose it is. It says what to do.
    ensure!(messages.len() == 1, "losers are told different things: {messages:?}");
    for message in messages {
        let told = ["acme", "globex", "wish-"].iter().find(|word| message.contains(*word));
        ensure!(told.is_none(), "'{message}' tells of others");
        ensure!(
            message.contains("spec.address") && message.contains("create the EipClaim anew"),
            "{message}"
        );
    }
    Ok(id(winner))
}
