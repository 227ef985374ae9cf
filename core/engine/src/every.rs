//! Lists that are complete, or do not compile.

/// All values of an enum without fields, in the order of their definition, so that the place of each
/// is `value as usize`. One that is left out, or stands elsewhere, does not compile.
macro_rules! every {
    ($type:ident: $($value:ident),+ $(,)?) => {{
        const ALL: &[$type] = &[$($type::$value),+];
        const _: fn($type) = |value| match value {
            $($type::$value => ()),+
        };
        const _: () = {
            let mut place = 0;
            while place < ALL.len() {
                assert!(ALL[place] as usize == place, "these stand in another order");
                place += 1;
            }
        };
        ALL
    }};
}

pub(crate) use every;

/// The one of all values that has this code; a `const` function cannot call a closure for that.
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
