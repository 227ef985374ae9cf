//! What the lock relies on of a Redis client, tried on each that there is: one suite for all. For one more,
//! write its [`kinds::Kind`], and a module of it here.

#[path = "../../examples/adapter/client.rs"]
mod client;
mod kinds;
mod suite;

/// Cases of the suite, each as a test on that client.
macro_rules! on {
    ($kind:ident, $($case:ident)*) => {
        $(#[tokio::test]
        async fn $case() {
            crate::suite::$case::<crate::kinds::$kind>().await;
        })*
    };
}

/// What holds of every store.
macro_rules! on_store {
    ($kind:ident) => {
        on!($kind, one_holds_and_tokens_grow many_at_once who_waits_is_told a_holder_is_told_of_its_loss);
    };
}

/// And of every server.
macro_rules! on_server {
    ($kind:ident) => {
        on_store!($kind);
        on!($kind, a_script_that_was_flushed refusals_are_told a_replica_is_refused);
        on!($kind, a_change_is_told what_counts_with_replicas_alone);
        on!($kind, a_server_that_stands_still nothing_stays_behind);
    };
}

/// And of every client that makes its connection anew.
macro_rules! on_lasting {
    ($kind:ident) => {
        on_server!($kind);
        on!($kind, a_connection_that_breaks a_server_that_restarts);
    };
}

/// What holds of every cluster.
macro_rules! on_cluster {
    ($kind:ident) => {
        on_store!($kind);
        on!($kind, a_script_that_was_flushed refusals_are_told nothing_stays_behind);
        on!($kind, a_change_is_told a_slot_that_moves a_master_that_fails);
    };
}

/// And of every one of these that sends two commands as one.
macro_rules! on_pairing {
    ($kind:ident) => {
        on_lasting!($kind);
        on!($kind, changes_are_told_again);
    };
}

mod memory {
    on_store!(Memory);
}
mod fred {
    on_pairing!(Fred);
}
mod own_fred {
    on_pairing!(OwnFred);
}
mod redis_rs_manager {
    on_pairing!(Manager);
}
mod redis_rs_multiplexed {
    on_server!(Multiplexed);
}
mod redis_rs_resp3 {
    on_pairing!(Resp3);
}
mod fred_cluster {
    on_cluster!(FredCluster);
}
mod redis_rs_cluster {
    on_cluster!(Cluster);
}
mod redis_rs_resp3_cluster {
    on_cluster!(Resp3Cluster);
}
mod example {
    on_lasting!(Example);
}
mod calls_alone {
    on_lasting!(CallsAlone);
}
