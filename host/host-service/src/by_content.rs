//! Things that are made once for all who hold them, by the digest of what they are made of.
//!
//! Nothing is kept for its own sake: what nobody holds any more is gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Shared things by a key that tells their content apart.
pub(crate) struct ByContent<T: ?Sized> {
    held: Mutex<BTreeMap<String, Weak<T>>>,
}

impl<T: ?Sized> Default for ByContent<T> {
    fn default() -> Self {
        ByContent { held: Mutex::default() }
    }
}

impl<T: ?Sized> ByContent<T> {
    /// The thing of that key, made where nobody holds one. Others wait meanwhile, so that nothing is made twice.
    ///
    /// # Errors
    /// Those of `make`; nothing is remembered then.
    pub(crate) fn get<E>(&self, key: &str, make: impl FnOnce() -> Result<Arc<T>, E>) -> Result<Arc<T>, E> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = held.get(key).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let made = make()?;
        held.retain(|_, known| known.strong_count() > 0);
        held.insert(key.to_owned(), Arc::downgrade(&made));
        Ok(made)
    }

    /// The thing of that key, where somebody holds it.
    pub(crate) fn known(&self, key: &str) -> Option<Arc<T>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).get(key).and_then(Weak::upgrade)
    }

    /// Everything that somebody holds.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).values().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(cache: &ByContent<u32>, key: &str, value: u32) -> Arc<u32> {
        cache.get(key, || Ok::<_, ()>(Arc::new(value))).expect("it is made")
    }

    #[test]
    fn a_thing_is_made_once_while_somebody_holds_it() {
        let cache = ByContent::default();
        let first = make(&cache, "a", 1);
        assert!(Arc::ptr_eq(&first, &make(&cache, "a", 2)));
        assert_eq!(*make(&cache, "b", 3), 3, "another content");
        drop(first);
        assert!(cache.known("a").is_none() && cache.all().is_empty());
        assert_eq!(*make(&cache, "a", 4), 4, "nobody held it");
        assert_eq!(cache.get("c", || Err::<Arc<u32>, _>("no")), Err("no"));
        assert!(cache.known("c").is_none());
    }
}
