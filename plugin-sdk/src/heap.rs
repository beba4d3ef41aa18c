//! A plugin's heap, whose first bytes lie in the memory that a component begins with.
//!
//! Each request has a guest of its own, and most guests allocate some hundred bytes. Growing a guest's memory for them
//! takes the host as long as all else that opening a policy takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::ptr;

/// Bytes that come without growing.
const FIRST: usize = 32 << 10;

#[cfg(target_arch = "wasm32")]
#[global_allocator]
static HEAP: Heap = Heap::new();

/// The first bytes, handed out one after another, and the system's allocator behind them.
struct Heap {
    first: First,
    /// Where the next ones begin.
    top: Cell<usize>,
    /// How many blocks of the first bytes are in use.
    n_used: Cell<usize>,
}

#[repr(align(16))]
struct First(UnsafeCell<[u8; FIRST]>);

impl Heap {
    const fn new() -> Self {
        Heap { first: First(UnsafeCell::new([0; FIRST])), top: Cell::new(0), n_used: Cell::new(0) }
    }

    fn base(&self) -> *mut u8 {
        self.first.0.get().cast()
    }

    /// Where a block lies in the first bytes, if it does.
    fn offset(&self, block: *mut u8) -> Option<usize> {
        (block as usize).checked_sub(self.base() as usize).filter(|offset| *offset < FIRST)
    }

    /// The end of a block that begins at `start`, where there is room for it.
    fn end(start: usize, size: usize) -> Option<usize> {
        start.checked_add(size).filter(|end| *end <= FIRST)
    }
}

#[expect(unsafe_code, reason = "an allocator deals in raw memory")]
// SAFETY: a component has one thread.
unsafe impl Sync for Heap {}

#[expect(unsafe_code, reason = "an allocator deals in raw memory")]
// SAFETY: a block of the first bytes lies between `top` before and after its allocation, and `top` comes back below its
// end only when it, or every block, is free. All other blocks are the system's from beginning to end.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let start = self.top.get().next_multiple_of(layout.align());
        match Self::end(start, layout.size()).filter(|_| layout.align() <= align_of::<First>()) {
            Some(end) => {
                self.top.set(end);
                self.n_used.set(self.n_used.get() + 1);
                // SAFETY: `start` is within the first bytes.
                unsafe { self.base().add(start) }
            }
            // SAFETY: the caller's promise.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(start) = self.offset(block) else {
            // SAFETY: no block of ours, so the system's.
            return unsafe { System.dealloc(block, layout) };
        };
        self.n_used.set(self.n_used.get() - 1);
        if self.n_used.get() == 0 {
            self.top.set(0);
        } else if start + layout.size() == self.top.get() {
            self.top.set(start);
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Some(start) = self.offset(block) else {
            // SAFETY: no block of ours, so the system's.
            return unsafe { System.realloc(block, layout, new_size) };
        };
        let is_last = start + layout.size() == self.top.get();
        if let Some(end) = Self::end(start, new_size).filter(|_| is_last) {
            self.top.set(end);
            return block;
        }
        // SAFETY: the caller promises that the new size is good for this alignment. Both blocks hold what is copied, and
        // the old one is given back as it was taken.
        unsafe {
            let moved = self.alloc(Layout::from_size_align_unchecked(new_size, layout.align()));
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "an allocator deals in raw memory")]
mod tests {
    use super::*;

    /// Blocks that are filled each with its own byte, whatever comes between.
    struct Blocks<'a> {
        heap: &'a Heap,
        blocks: Vec<(*mut u8, Layout, u8)>,
    }

    impl Blocks<'_> {
        fn take(&mut self, size: usize, align: usize) {
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: the size is not zero.
            let block = unsafe { self.heap.alloc(layout) };
            assert!(!block.is_null() && (block as usize).is_multiple_of(align));
            self.fill(block, layout);
        }

        fn fill(&mut self, block: *mut u8, layout: Layout) {
            let byte = self.blocks.len() as u8 ^ layout.size() as u8;
            // SAFETY: the block has that size.
            unsafe { block.write_bytes(byte, layout.size()) };
            self.blocks.push((block, layout, byte));
        }

        fn check(&self, block: *mut u8, size: usize, byte: u8) {
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(block, size) };
            assert!(bytes.iter().all(|found| *found == byte), "another block wrote here");
        }

        fn give(&mut self, at: usize) {
            let (block, layout, byte) = self.blocks.swap_remove(at);
            self.check(block, layout.size(), byte);
            // SAFETY: it is gone from the list.
            unsafe { self.heap.dealloc(block, layout) };
        }

        fn resize(&mut self, at: usize, size: usize) {
            let (block, layout, byte) = self.blocks.swap_remove(at);
            // SAFETY: it is gone from the list, and the size is not zero.
            let moved = unsafe { self.heap.realloc(block, layout, size) };
            self.check(moved, layout.size().min(size), byte);
            self.fill(moved, Layout::from_size_align(size, layout.align()).unwrap());
        }
    }

    #[test]
    fn no_block_lies_in_another_within_the_first_bytes_and_beyond() {
        let heap = Heap::new();
        let mut blocks = Blocks { heap: &heap, blocks: Vec::new() };
        // The numbers of a small generator: sizes from 1 to 4096, alignments from 1 to 32.
        let mut state = 1_u32;
        let mut next = |n: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % n
        };
        let (mut n_within, mut n_beyond) = (0, 0);
        for round in 0..20_000 {
            let n_blocks = blocks.blocks.len();
            match next(4) {
                // Now and then everything goes.
                _ if round % 1_000 == 999 => (0..n_blocks).for_each(|_| blocks.give(0)),
                0 | 1 => {
                    let most = 2 << next(12);
                    blocks.take(1 + next(most), 1 << next(6));
                }
                2 if n_blocks > 0 => blocks.resize(next(n_blocks), 1 + next(4_096)),
                _ if n_blocks > 0 => blocks.give(next(n_blocks)),
                _ => {}
            }
            if let Some((block, ..)) = blocks.blocks.last() {
                *(if heap.offset(*block).is_some() { &mut n_within } else { &mut n_beyond }) += 1;
            }
        }
        (0..blocks.blocks.len()).for_each(|_| blocks.give(0));
        assert_eq!((heap.top.get(), heap.n_used.get()), (0, 0), "all is there again");
        assert!(n_within > 1_000 && n_beyond > 1_000, "{n_within} within, {n_beyond} beyond");
    }

    #[test]
    fn what_is_given_back_in_order_is_used_again() {
        let heap = Heap::new();
        let mut blocks = Blocks { heap: &heap, blocks: Vec::new() };
        blocks.take(64, 8);
        for _ in 0..10_000 {
            blocks.take(100, 4);
            blocks.resize(1, 200);
            blocks.take(24, 8);
            blocks.give(2);
            blocks.give(1);
        }
        assert_eq!(heap.top.get(), 64);
    }
}
