//! Maps the error codes of databases, with tables that the guards in JavaScript read too.

use leasehold_engine::ErrorKind;
use leasehold_engine::rows::{rows, same};

use super::failure::Class;

/// One row of a table.
#[derive(Copy, Clone)]
pub(super) struct Meaning {
    /// Separated by spaces. A code that ends in `*` matches by prefix.
    codes: &'static str,
    class: Class,
    /// Text that the message must also contain.
    part: &'static str,
}

/// Reads a table at compile time, so that an unknown meaning does not compile.
pub(super) const fn meanings<const ROWS: usize>(table: &'static str) -> [Meaning; ROWS] {
    let rows: [[&str; 3]; ROWS] = rows(table);
    let mut meanings = [Meaning {
        codes: "",
        class: Class::Race,
        part: "",
    }; ROWS];
    let mut at = 0;
    while at < ROWS {
        let [codes, class, part] = rows[at];
        let class = if same(class, "race") {
            Class::Race
        } else if same(class, "shape") {
            Class::Shape
        } else {
            Class::Kind(ErrorKind::of_code(class).expect("it is of a kind that there is"))
        };
        meanings[at] = Meaning { codes, class, part };
        at += 1;
    }
    meanings
}

/// Returns the class of the first row that matches the code and the message.
pub(super) fn meaning(table: &[Meaning], code: &str, message: &str) -> Class {
    let is = |known: &str| match known.strip_suffix('*') {
        Some(class) => code.starts_with(class),
        None => code == known,
    };
    let fits = |row: &&Meaning| row.codes.split(' ').any(is) && message.contains(row.part);
    let found = table.iter().find(fits);
    found.map_or(Class::Kind(ErrorKind::Store), |row| row.class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Vector {
        database: String,
        code: String,
        says: String,
        means: String,
    }

    /// Catches a meaning that differs from JavaScript's, and a row that no vector covers.
    #[test]
    fn codes_mean_what_every_language_takes_them_for() {
        let vectors = crate::vectors("sql_codes.json");
        let vectors: Vec<Vector> =
            serde_json::from_str(&vectors).expect("the vectors are of this shape");
        let tables: Vec<(&str, &[Meaning])> = vec![
            #[cfg(feature = "postgres")]
            ("postgres", &super::super::postgres::CODES),
            #[cfg(feature = "mysql")]
            ("mysql", &super::super::mysql::CODES),
            #[cfg(feature = "sqlite")]
            ("sqlite", &super::super::sqlite::CODES),
        ];
        for (database, table) in tables {
            let own = || vectors.iter().filter(|vector| vector.database == database);
            for Vector {
                code, says, means, ..
            } in own()
            {
                let told = match meaning(table, code, says) {
                    Class::Race => "race",
                    Class::Shape => "shape",
                    Class::Kind(kind) => kind.code(),
                };
                assert_eq!(told, means, "{database} {code} {says}");
            }
            for row in table {
                for known in row.codes.split(' ') {
                    let shows = |vector: &Vector| {
                        vector.code.starts_with(known.trim_end_matches('*'))
                            && vector.says.contains(row.part)
                    };
                    assert!(own().any(shows), "{database}: {known} {}", row.part);
                }
            }
        }
    }
}
