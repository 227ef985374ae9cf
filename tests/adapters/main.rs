//! The lock's needs of a Redis client: one suite, run on each supported client. To add a client, write its
//! [`kinds::Kind`] and a module of it here.

#[path = "../../examples/adapter/client.rs"]
mod client;
mod kinds;
mod suite;

/// Writes a test of each case of the suite on that client.
macro_rules! on {
    ($kind:ident, $($case:ident)*) => {
        $(#[tokio::test]
        async fn $case() {
            crate::suite::$case::<crate::kinds::$kind>().await;
        })*
    };
}

/// The cases for every store.
macro_rules! on_store {
    ($kind:ident) => {
        on!($kind, one_holds_and_tokens_grow many_at_once a_waiter_is_notified a_holder_is_notified_of_its_loss);
    };
}

/// The cases for every server.
macro_rules! on_server {
    ($kind:ident) => {
        on_store!($kind);
        on!($kind, a_script_that_was_flushed refusals_keep_their_text a_replica_is_refused);
        on!($kind, a_change_is_reported a_lock_counts_only_with_its_replicas);
        on!($kind, a_server_that_is_paused nothing_stays_behind);
    };
}

/// The cases for every client that replaces a broken connection.
macro_rules! on_lasting {
    ($kind:ident) => {
        on_server!($kind);
        on!($kind, a_connection_that_breaks a_server_that_restarts);
    };
}

/// The cases for every cluster.
macro_rules! on_cluster {
    ($kind:ident) => {
        on_store!($kind);
        on!($kind, a_script_that_was_flushed refusals_keep_their_text nothing_stays_behind);
        on!($kind, a_change_is_reported a_slot_that_moves a_master_that_fails);
    };
}

/// The cases for every cluster client that sends two commands as one.
macro_rules! on_pairing {
    ($kind:ident) => {
        on_lasting!($kind);
        on!($kind, changes_are_reported_after_a_reconnect a_burst_of_changes_is_reported);
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
