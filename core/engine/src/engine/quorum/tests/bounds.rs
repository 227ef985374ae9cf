//! Quorums that are refused.

use crate::engine::Settings;
use crate::engine::quorum::Quorum;
use crate::protocol::ClientId;

#[test]
fn only_few_and_odd_numbers_of_servers_are_a_quorum() {
    let new = |members| Quorum::new(Settings::new(ClientId(1)), members);
    for members in [0, 1, 2, 4, 6, 8, 9] {
        let error = new(members).expect_err("it is refused");
        assert!(
            error.is_config() && error.to_string().contains(&members.to_string()),
            "{error}"
        );
    }
    for members in [3, 5, 7] {
        assert!(new(members).is_ok());
    }
}
