//! Lists of an enum's values that do not compile if they are incomplete.

/// Lists all values of a fieldless enum in the order of their definition, so that a value's index is `value
/// as usize`.
///
/// A missing or misplaced value does not compile.
macro_rules! every {
    ($type:ident: $($value:ident),+ $(,)?) => {{
        const ALL: &[$type] = &[$($type::$value),+];
        const _: fn($type) = |value| match value {
            $($type::$value => ()),+
        };
        const _: () = {
            let mut place = 0;
            while place < ALL.len() {
                assert!(ALL[place] as usize == place, "the values are in another order");
                place += 1;
            }
        };
        ALL
    }};
}

pub(crate) use every;

/// Returns the value with this code. A macro, because a `const` function cannot call a closure.
macro_rules! by_code {
    ($all:expr, $code:expr) => {{
        let (all, mut at) = ($all, 0);
        while at < all.len() && !crate::rows::same(all[at].code(), $code) {
            at += 1;
        }
        if at < all.len() { Some(all[at]) } else { None }
    }};
}

pub(crate) use by_code;
