//! Listings by name, page by page: the cursor of a page is the last name of the one before.

use std::fmt::Display;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use levada_api::{ErrorCode, Problem, echo};
use levada_model::limits::{LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX};

use crate::extract::Params;

/// Which page of a listing is wanted.
pub(crate) struct Page<N> {
    /// Most entries.
    pub(crate) limit: usize,
    /// It begins behind this name.
    pub(crate) after: Option<N>,
}

impl<N: TryFrom<String>> Page<N> {
    /// Reads `limit=` and `cursor=`.
    pub(crate) fn read(params: &mut Params) -> Result<Self, Problem> {
        let limit = params.clamped("limit", 1, LIST_LIMIT_DEFAULT as u64, LIST_LIMIT_MAX as u64)?;
        let after = params.text("cursor").map(|cursor| read_cursor(&cursor)).transpose()?;
        Ok(Self { limit: usize::try_from(limit).expect("cut to a small number"), after })
    }
}

impl<N: PartialOrd> Page<N> {
    /// The page of a listing that is all there, by name, in the words of the interface; and the cursor of the next.
    pub(crate) fn cut<T, W>(
        self,
        all: Vec<T>,
        name: impl Fn(&T) -> &N,
        word: impl Fn(T) -> W,
    ) -> (Vec<W>, Option<String>)
    where
        N: Display,
    {
        let Self { limit, after } = self;
        let mut left = all.into_iter().filter(|it| after.as_ref().is_none_or(|after| name(it) > after)).peekable();
        let (mut page, mut last) = (Vec::new(), None);
        for it in left.by_ref().take(limit) {
            last = Some(next_cursor(&name(&it).to_string()));
            page.push(word(it));
        }
        (page, left.peek().and(last))
    }
}

/// The cursor of the page behind this name.
pub(crate) fn next_cursor(last: &str) -> String {
    URL_SAFE_NO_PAD.encode(last)
}

fn read_cursor<N: TryFrom<String>>(cursor: &str) -> Result<N, Problem> {
    let name = URL_SAFE_NO_PAD.decode(cursor).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    name.and_then(|name| N::try_from(name).ok())
        .ok_or_else(|| Problem::new(ErrorCode::InvalidCursor, format!("{:?} is no cursor of a listing", echo(cursor))))
}
