//! Zeroed memory straight from the system: page aligned, in huge pages where wanted, touched only on use.
#![expect(unsafe_code, reason = "maps anonymous memory and hands out slices of it")]

use std::ptr::NonNull;

/// A zeroed region. Pages that were never touched cost no memory.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<u8>,
    len: usize,
    mapped: usize,
}

// SAFETY: a region is plain memory owned by this value; who may touch which part is decided by its users.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives shared slices or raw pointers only.
unsafe impl Sync for Region {}

/// Alignment of every region: a cache line, the width of the widest vector.
pub(crate) const ALIGN: usize = 64;

impl Region {
    /// A region of at least `len` zeroed bytes; `None` when the system refuses.
    pub(crate) fn new(len: usize, huge_pages: bool) -> Option<Region> {
        let mapped = len.max(ALIGN).next_multiple_of(if huge_pages { 2 << 20 } else { 4096 });
        let start = map(mapped, huge_pages)?;
        Some(Region { start, len, mapped })
    }

    /// The first byte.
    pub(crate) fn ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The bytes from `offset` on as floats.
    pub(crate) fn floats(&self, offset: usize, len: usize) -> &[f32] {
        assert!(offset.is_multiple_of(4) && offset + 4 * len <= self.len, "floats within the region");
        // SAFETY: in bounds and aligned as asserted; every bit pattern is a float.
        unsafe { std::slice::from_raw_parts(self.ptr().add(offset).cast(), len) }
    }

    /// The bytes from `offset` on.
    pub(crate) fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset + len <= self.len, "bytes within the region");
        // SAFETY: in bounds as asserted, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.ptr().add(offset), len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        unmap(self.start, self.mapped);
    }
}

#[cfg(unix)]
fn map(len: usize, huge_pages: bool) -> Option<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping; the result is checked.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    #[cfg(target_os = "linux")]
    if huge_pages {
        // SAFETY: advice on the mapping made above; a refusal changes nothing.
        unsafe { libc::madvise(start, len, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = huge_pages;
    NonNull::new(start.cast())
}

#[cfg(unix)]
fn unmap(start: NonNull<u8>, len: usize) {
    // SAFETY: exactly the mapping made by `map`, unmapped once.
    unsafe { libc::munmap(start.as_ptr().cast(), len) };
}
