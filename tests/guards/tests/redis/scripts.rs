//! The program's own scripts behind the check.

use leasehold::ErrorKind;
use leasehold::fence::redis::Script;

use super::{FENCE, Store, kind, refusal};

#[tokio::test]
async fn a_script_gets_its_own_keys_and_arguments() {
    let store = Store::start().await;
    let redis = store.under(1);
    let lua = "return {#KEYS, #ARGV, KEYS[1], KEYS[2], ARGV[1], ARGV[2]}";
    let read: Result<(u32, u32, String, String, String, i64), _> =
        redis.script(lua, vec!["a", "b"], ("x", -5)).await;
    let own = (2, 2, "a".to_owned(), "b".to_owned(), "x".to_owned(), -5);
    assert_eq!(read, Ok(own));
    let count = "return {#KEYS, #ARGV, tostring(KEYS[1]), tostring(ARGV[1])}";
    let none = (0, 0, "nil".to_owned(), "nil".to_owned());
    assert_eq!(redis.script(count, (), ()).await, Ok(none));
    let one = (1, 1, "a".to_owned(), "x".to_owned());
    assert_eq!(redis.script(count, "a", "x").await, Ok(one));
    // The script cannot see the guard's variables: for Redis they are globals that do not exist.
    for name in ["fence", "token", "seen", "is_token"] {
        let read: Result<(), _> = redis
            .script(format!("return {name}").as_str(), (), ())
            .await;
        let error = read.expect_err("there is no such variable");
        assert!(error.to_string().contains("nonexistent global"), "{error}");
    }
}

#[tokio::test]
async fn the_result_of_a_script_is_the_reply() {
    let store = Store::start().await;
    let redis = store.under(1);
    let nested: Vec<Vec<i64>> = redis
        .script("return {{1, 2}, {}, {3}}", (), ())
        .await
        .expect("the reply is read");
    assert_eq!(nested, [vec![1, 2], vec![], vec![3]]);
    assert_eq!(
        redis.script("return false", (), ()).await,
        Ok(None::<String>)
    );
    assert_eq!(redis.script("local a = 1", (), ()).await, Ok(()));
    assert_eq!(redis.script("", (), ()).await, Ok(()));
    assert_eq!(
        redis
            .script("return redis.status_reply('FINE')", (), ())
            .await,
        Ok("FINE".to_owned())
    );
    // The guard's text after the script must not become a part of its `return`.
    assert_eq!(
        redis.script("return ARGV[1] -- and no more", (), 7).await,
        Ok(7)
    );
}

#[tokio::test]
async fn the_error_for_a_reply_of_another_type_says_that_the_script_ran() {
    let mut store = Store::start().await;
    let lua = "redis.call('SET', KEYS[1], 'done') return 'not a number'";
    let read: Result<i64, _> = store.under(1).script(lua, "k", ()).await;
    let error = read.expect_err("the reply is no number");
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().contains("succeeded"), "{error}");
    assert_eq!(store.get("k").await.as_deref(), Some("done"));
}

/// Documents that after an error in the script the token is kept and its writes stay. Catches an error that
/// admits older tokens.
#[tokio::test]
async fn a_mistake_does_not_let_older_tokens_in() {
    let mut store = Store::start().await;
    store.under(33).set("k", "first").await.expect("it passes");
    let lua = "redis.call('SET', KEYS[1], 'half')\nlocal nothing\nreturn nothing.field";
    let failed: Result<(), _> = store.under(34).script(lua, "k", ()).await;
    let error = failed.expect_err("the script has a mistake");
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(
        error.to_string().contains("user_script:3"),
        "the error has the line in the user's script: {error}"
    );
    assert_eq!(store.get("k").await.as_deref(), Some("half"));
    assert_eq!(store.get(FENCE).await.as_deref(), Some("34"));
    assert_eq!(refusal(store.under(33).set("k", "late").await), (33, 34));

    let own = "return redis.error_reply('SOLDOUT nothing is left')";
    let error = store.under(34).script::<(), _>(own, (), ()).await;
    let error = error.expect_err("the script returns an error");
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().contains("SOLDOUT nothing"), "{error}");
    let like_ours = "return redis.error_reply('STALETOKEN x')";
    let error = store.under(34).script::<(), _>(like_ours, (), ()).await;
    assert_eq!(kind(error), ErrorKind::Store);
}

/// Catches a script whose text ends the block that the guard puts around it, and so bypasses the check.
#[tokio::test]
async fn no_text_gets_ahead_of_the_check() {
    let mut store = Store::start().await;
    store.under(34).set("k", "kept").await.expect("it passes");
    let texts = [
        "end redis.call('SET', KEYS[1], 'x') do",
        "end end redis.call('SET', KEYS[1], 'x') if true then do",
        "redis.call('SET', KEYS[1], 'x') ]] --[[",
        "#!lua flags=allow-oom\nredis.call('SET', KEYS[1], 'x')",
        "redis.call('SET', KEYS[1], 'x'",
    ];
    for text in texts {
        for number in [33, 34] {
            let answer: Result<(), _> = store.under(number).script(text, "k", ()).await;
            let error = answer.expect_err("the script does not compile");
            assert_eq!(error.kind(), ErrorKind::Config, "{text}: {error}");
        }
    }
    let valid = "redis.call('SET', KEYS[1], 'x')";
    let answer: Result<(), _> = store.under(33).script(valid, "k", ()).await;
    assert_eq!(refusal(answer), (33, 34));
    assert_eq!(store.get("k").await.as_deref(), Some("kept"));
}

#[tokio::test]
async fn the_server_may_forget_the_scripts() {
    let mut store = Store::start().await;
    let script = Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])");
    for round in 1..=3 {
        let sum: Result<i64, _> = store.under(round).script(&script, "n", 2).await;
        assert_eq!(sum, Ok(2 * i64::try_from(round).expect("a small number")));
        let sum = store.under(round).incr_by("m", 2).await;
        assert_eq!(sum, Ok(2 * i64::try_from(round).expect("a small number")));
        store.admin.ok(&["SCRIPT", "FLUSH"]).await;
    }
    // A script that returns such an error itself is not run twice.
    let lua = "redis.call('INCR', KEYS[1]) return redis.error_reply('NOSCRIPT of my own')";
    let answer: Result<(), _> = store.under(3).script(lua, "once", ()).await;
    assert_eq!(kind(answer), ErrorKind::Store);
    assert_eq!(store.get("once").await.as_deref(), Some("1"));
}
