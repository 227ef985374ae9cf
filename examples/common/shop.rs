//! The shop that the buyers buy from: a storage that knows nothing of locks.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold::FencingToken;

/// A stock of one article.
///
/// [`write_fenced`](Self::write_fenced) is all that a guard does: the storage remembers the
/// greatest token that it has seen and refuses a write with a smaller one. Whoever holds a
/// smaller token was replaced meanwhile, whether it knows or not. An equal token is fine: a
/// holder may write many times.
#[derive(Debug)]
pub struct Shop {
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Books {
    stock: u32,
    sold: u32,
    greatest: Option<FencingToken>,
}

impl Shop {
    /// A shop with this stock, and none sold.
    pub fn with_stock(stock: u32) -> Self {
        let (sold, greatest) = (0, None);
        Self {
            books: Mutex::new(Books {
                stock,
                sold,
                greatest,
            }),
        }
    }

    /// How many are in stock, as the shop believes.
    pub fn stock(&self) -> u32 {
        self.books().stock
    }

    /// How many were sold.
    pub fn sold(&self) -> u32 {
        self.books().sold
    }

    /// Books a sale, and takes the new stock from whoever writes.
    pub fn write(&self, stock: u32) {
        let mut books = self.books();
        books.stock = stock;
        books.sold += 1;
    }

    /// Books a sale, and takes the new stock, unless a greater token was seen.
    pub fn write_fenced(&self, token: FencingToken, stock: u32) -> Result<(), Refused> {
        let mut books = self.books();
        if let Some(greatest) = books.greatest.filter(|greatest| token < *greatest) {
            return Err(Refused { greatest });
        }
        // Checked and written under one mutex: a real storage does both in one transaction.
        books.greatest = Some(token);
        books.stock = stock;
        books.sold += 1;
        Ok(())
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write had a smaller token than one that was seen.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The greatest token that was seen.
    pub greatest: FencingToken,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {} was seen already", self.greatest)
    }
}

impl std::error::Error for Refused {}
