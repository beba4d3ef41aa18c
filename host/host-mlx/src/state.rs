//! What a group of sequences keeps between steps.
//!
//! All rows of a group share one frame of columns: a row that holds fewer tokens has its pad of unused columns
//! in front, so that every row writes the same column. A sequence alone is a group of one row without a pad.
//! Plain caches grow by [`STEP`] columns; those of a window turn round in place once it is full.

use mlx_rs::{Array, Dtype};

use crate::fault::Fault;
use crate::ops;

/// Columns by which a cache grows.
const STEP: usize = 256;
/// Columns of a page: a replayed step gives its page anew, and a full one goes into the cache.
pub(crate) const PAGE: usize = 16;

/// What one slot keeps.
#[derive(Clone, Debug)]
pub(crate) enum SlotState {
    /// Reads another slot's.
    Shared,
    /// A column a token: keys and values, or index keys.
    Columns(Columns),
    /// Moves on with each token: the last inputs of a convolution, the state of a recurrence.
    Moving(Array),
}

/// Arrays `[rows, H, columns, D]` that get a column a token.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    /// Keys and values, or index keys alone; of codes each with scales and biases. Empty before the first token.
    arrays: Vec<Array>,
    /// Columns of a turning cache.
    window: Option<usize>,
    /// Where a turning cache writes next.
    idx: usize,
    /// The newest columns, while steps are replayed.
    page: Option<Page>,
}

/// Columns that are not in the cache yet.
#[derive(Clone, Debug)]
struct Page {
    /// Keys and values `[rows, H, PAGE, D]`.
    arrays: [Array; 2],
    /// Columns in the cache: the page's come behind them.
    first: usize,
    /// How many of its columns are used.
    filled: usize,
}

/// What a replayed step reads.
#[derive(Clone, Debug)]
pub(crate) struct Paged {
    /// Keys and values `[rows, H, capacity, D]`.
    pub(crate) cache: [Array; 2],
    /// Their page `[rows, H, PAGE, D]`.
    pub(crate) page: [Array; 2],
    /// Columns in the cache.
    pub(crate) first: usize,
    /// Columns in the page.
    pub(crate) filled: usize,
}

impl Paged {
    /// Columns that the cache has room for.
    pub(crate) fn capacity(&self) -> usize {
        self.cache[0].shape()[2] as usize
    }
}

/// What a step reads, and which positions stand in its columns.
#[derive(Clone, Debug)]
pub(crate) struct Fetched {
    /// One a kept array, `[rows, H, columns, D]`.
    pub(crate) arrays: Vec<Array>,
    pub(crate) place: Place,
}

/// How columns map to positions of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// Columns that are read.
    pub(crate) n_columns: usize,
    /// The column behind the newest one.
    idx: usize,
    /// The position behind the newest one.
    offset: usize,
}

impl Place {
    /// The position in the frame of the oldest column.
    pub(crate) fn oldest(&self) -> usize {
        self.offset - self.n_columns
    }

    /// The position in the frame of each column.
    pub(crate) fn positions(&self) -> Vec<i32> {
        let newest_turn = self.offset as i32 - self.idx as i32;
        let position = |column: usize| {
            let turn = if column < self.idx { newest_turn } else { newest_turn - self.n_columns as i32 };
            turn + column as i32
        };
        (0..self.n_columns).map(position).collect()
    }

    /// Whether columns stand in the order of their positions.
    pub(crate) fn is_in_order(&self) -> bool {
        self.idx == self.n_columns
    }
}

impl Columns {
    pub(crate) fn new(window: Option<usize>) -> Self {
        Columns { arrays: Vec::new(), window, idx: 0, page: None }
    }

    fn len(&self) -> usize {
        self.arrays.first().map_or(0, |array| array.shape()[2] as usize)
    }

    /// Appends the columns of `new` (one array a kept array, as it is kept) behind `offset` tokens.
    ///
    /// More than one column needs a group of one row in a turning cache.
    pub(crate) fn append(&mut self, offset: usize, new: &[Array]) -> Result<Fetched, Fault> {
        let n_new = new[0].shape()[2] as usize;
        self.settle()?;
        match self.window {
            None => self.append_plain(offset, new, n_new),
            Some(window) if n_new == 1 => self.append_in_place(offset, new, window),
            Some(window) => self.append_in_order(offset, new, n_new, window),
        }
    }

    /// Opens a page behind `offset` columns of a plain cache, `shape` being `[rows, H, _, D]`, and gives what a
    /// replayed step reads. A page that is full goes into the cache first.
    pub(crate) fn open_page(&mut self, offset: usize, shape: [i32; 4], dtype: Dtype) -> Result<Paged, Fault> {
        if self.page.as_ref().is_some_and(|page| page.filled == PAGE) {
            self.write_page()?;
        }
        if self.page.is_none() {
            let [rows, heads, _, width] = shape;
            let empty = ops::zeros(&[rows, heads, PAGE as i32, width], dtype)?;
            self.page = Some(Page { arrays: [empty.clone(), empty], first: offset, filled: 0 });
        }
        let page = self.page.clone().expect("opened just now");
        let behind = page.first + PAGE;
        if behind > self.len() {
            // Whole steps, so that caches of all lengths share few capacities: each is traced once.
            let more = behind.next_multiple_of(STEP) - page.first;
            let patterns = page.arrays.clone();
            self.each(&patterns, |old, pattern| grown(old, pattern, page.first, more))?;
        }
        let [k, v] = &self.arrays[..] else { return Err(Fault("a page needs keys and values".to_owned())) };
        let cache = [k.clone(), v.clone()];
        Ok(Paged { cache, page: page.arrays, first: page.first, filled: page.filled })
    }

    /// Takes the page that a replayed step gave, with one column more.
    pub(crate) fn turn_page(&mut self, arrays: [Array; 2]) {
        if let Some(page) = &mut self.page {
            page.arrays = arrays;
            page.filled += 1;
            self.idx = page.first + page.filled;
        }
    }

    /// Writes what the page holds into the cache; the page goes on behind it.
    fn write_page(&mut self) -> Result<(), Fault> {
        let Some(page) = self.page.take() else { return Ok(()) };
        if page.filled > 0 {
            let used = page.arrays.iter().map(|array| ops::slice(array, 2, 0, page.filled));
            let used = used.collect::<Result<Vec<_>, _>>()?;
            self.each(&used, |old, new| write(old, new, page.first))?;
        }
        self.page = Some(Page { first: page.first + page.filled, filled: 0, arrays: page.arrays });
        Ok(())
    }

    /// Writes what a page holds into the cache and closes it.
    pub(crate) fn settle(&mut self) -> Result<(), Fault> {
        self.write_page()?;
        self.page = None;
        Ok(())
    }

    fn append_plain(&mut self, offset: usize, new: &[Array], n_new: usize) -> Result<Fetched, Fault> {
        if offset + n_new > self.len() {
            let more = STEP * n_new.div_ceil(STEP);
            self.each(new, |old, new| grown(old, new, offset, more))?;
        }
        self.each(new, |old, new| write(old, new, offset))?;
        self.idx = offset + n_new;
        self.fetch(self.idx, self.idx)
    }

    fn append_in_place(&mut self, offset: usize, new: &[Array], window: usize) -> Result<Fetched, Fault> {
        let len = self.len();
        if self.arrays.is_empty() || (offset >= len && len < window) {
            let more = STEP.min(window - len);
            self.each(new, |old, new| grown(old, new, len, more))?;
            self.idx = len;
        }
        let len = self.len();
        if len > window {
            for array in &mut self.arrays {
                *array = ops::slice(array, 2, len - window, len)?;
            }
            self.idx = window;
        }
        if self.idx == window {
            self.idx = 0;
        }
        let idx = self.idx;
        self.each(new, |old, new| write(old, new, idx))?;
        self.idx += 1;
        let offset = offset + 1;
        self.fetch(offset.min(window), offset)
    }

    fn append_in_order(
        &mut self,
        offset: usize,
        new: &[Array],
        n_new: usize,
        window: usize,
    ) -> Result<Fetched, Fault> {
        if self.arrays.is_empty() {
            self.arrays = new.to_vec();
        } else {
            self.straighten(offset)?;
            let keep = self.len().min(window - 1);
            for (array, new) in self.arrays.iter_mut().zip(new) {
                let len = array.shape()[2] as usize;
                *array = ops::concat(&[&ops::slice(array, 2, len - keep, len)?, new], 2)?;
            }
        }
        self.idx = self.len();
        self.fetch(self.idx, offset + n_new)
    }

    /// Puts the columns into the order of their positions and cuts unused ones.
    fn straighten(&mut self, offset: usize) -> Result<(), Fault> {
        let (len, idx) = (self.len(), self.idx);
        let is_full = self.window.is_some_and(|window| offset >= window);
        for array in &mut self.arrays {
            *array = if idx == len {
                array.clone()
            } else if is_full {
                ops::concat(&[&ops::slice(array, 2, idx, len)?, &ops::slice(array, 2, 0, idx)?], 2)?
            } else {
                ops::slice(array, 2, 0, idx)?
            };
        }
        self.idx = self.len();
        Ok(())
    }

    fn each(
        &mut self,
        new: &[Array],
        f: impl Fn(Option<Array>, &Array) -> Result<Array, Fault>,
    ) -> Result<(), Fault> {
        // The old handle goes into the call, so that MLX may write in place.
        let mut old = std::mem::take(&mut self.arrays).into_iter();
        for new in new {
            self.arrays.push(f(old.next(), new)?);
        }
        Ok(())
    }

    fn fetch(&self, n_columns: usize, offset: usize) -> Result<Fetched, Fault> {
        let arrays =
            self.arrays.iter().map(|array| ops::slice(array, 2, 0, n_columns)).collect::<Result<_, _>>()?;
        Ok(Fetched { arrays, place: Place { n_columns, idx: self.idx, offset } })
    }

    /// The columns of one row in the order of their positions, without its pad and without what its window has
    /// left behind.
    pub(crate) fn row(&self, row: usize, pad: usize, offset: usize) -> Result<Columns, Fault> {
        let mut alone = self.clone();
        alone.settle()?;
        alone.straighten_all(offset)?;
        let len = alone.len();
        let kept = (offset - pad).min(len).min(self.window.unwrap_or(usize::MAX));
        for array in &mut alone.arrays {
            let one = ops::slice(array, 0, row, row + 1)?;
            *array = ops::contiguous(&ops::slice(&one, 2, len - kept, len)?)?;
        }
        if kept == 0 {
            alone.arrays.clear();
        }
        alone.idx = kept;
        Ok(alone)
    }

    fn straighten_all(&mut self, offset: usize) -> Result<(), Fault> {
        if self.arrays.is_empty() {
            return Ok(());
        }
        if self.window.is_some() {
            return self.straighten(offset);
        }
        for array in &mut self.arrays {
            *array = ops::slice(array, 2, 0, offset)?;
        }
        self.idx = offset;
        Ok(())
    }

    /// Rows side by side, each already in order ([`Columns::row`]), in a frame of `width` tokens.
    pub(crate) fn side_by_side(rows: &[Columns], width: usize) -> Result<Columns, Fault> {
        let window = rows[0].window;
        let n_columns = window.map_or(width, |window| width.min(window));
        let n_arrays = rows.iter().map(|row| row.arrays.len()).max().unwrap_or(0);
        let mut arrays = Vec::with_capacity(n_arrays);
        for i in 0..n_arrays {
            let pattern = rows.iter().find_map(|row| row.arrays.get(i));
            let Some(pattern) = pattern else { continue };
            let padded = rows.iter().map(|row| padded(row.arrays.get(i), pattern, n_columns));
            let padded = padded.collect::<Result<Vec<_>, _>>()?;
            arrays.push(ops::concat(&padded.iter().collect::<Vec<_>>(), 0)?);
        }
        Ok(Columns { arrays, window, idx: n_columns, page: None })
    }

    /// Forgets all but the first `offset` tokens, of `from`; whether it could. No page is open.
    pub(crate) fn trim(&mut self, from: usize, offset: usize) -> bool {
        match self.window {
            None => self.idx = offset,
            Some(window) if from < window && self.len() <= window => self.idx = offset,
            Some(_) if from == offset => {}
            Some(_) => return false,
        }
        if offset == 0 {
            self.arrays.clear();
            self.idx = 0;
        }
        true
    }

    /// What brings it back to where it is after one token more: arrays only where the next append drops some.
    pub(crate) fn mark(&self) -> Mark {
        let drops = self.window.is_some_and(|window| self.len() > window);
        Mark {
            idx: self.idx,
            arrays: drops.then(|| self.arrays.clone()),
            was_empty: self.arrays.is_empty(),
            page: self.page.clone(),
        }
    }

    /// Undoes one append of one token.
    pub(crate) fn back_to(&mut self, mark: Mark) {
        // A page that went into the cache since then goes there again with the same columns.
        self.page = mark.page;
        self.idx = mark.idx;
        if let Some(arrays) = mark.arrays {
            self.arrays = arrays;
        } else if mark.was_empty {
            self.arrays.clear();
        }
    }

    pub(crate) fn arrays(&self) -> &[Array] {
        &self.arrays
    }
}

/// See [`Columns::mark`].
#[derive(Debug)]
pub(crate) struct Mark {
    idx: usize,
    arrays: Option<Vec<Array>>,
    was_empty: bool,
    page: Option<Page>,
}

/// `old`, cut to `used` columns, with `more` columns of zeros behind.
fn grown(old: Option<Array>, new: &Array, used: usize, more: usize) -> Result<Array, Fault> {
    let mut shape = new.shape().to_vec();
    shape[2] = more as i32;
    let room = ops::zeros(&shape, new.dtype())?;
    match old {
        None => Ok(room),
        Some(old) => ops::concat(&[&ops::slice(&old, 2, 0, used)?, &room], 2),
    }
}

fn write(old: Option<Array>, new: &Array, at: usize) -> Result<Array, Fault> {
    match old {
        Some(old) => ops::update(&old, new, 2, at),
        None => Ok(new.clone()),
    }
}

/// One row's columns behind zeros, `n_columns` in all.
fn padded(row: Option<&Array>, pattern: &Array, n_columns: usize) -> Result<Array, Fault> {
    let held = row.map_or(0, |row| row.shape()[2] as usize);
    let mut shape = pattern.shape().to_vec();
    (shape[0], shape[2]) = (1, (n_columns - held) as i32);
    let zeros = ops::zeros(&shape, pattern.dtype())?;
    match row {
        Some(row) if held == n_columns => Ok(row.clone()),
        Some(row) => ops::concat(&[&zeros, row], 2),
        None => Ok(zeros),
    }
}

