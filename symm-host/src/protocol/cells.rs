//! Atomic words as the protocol needs them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// An atomic word of type `V`.
pub trait Word<V: Copy> {
    /// Loads the word.
    fn load(&self, order: Ordering) -> V;
    /// Stores the word.
    fn store(&self, value: V, order: Ordering);
    /// Adds, wrapping; returns the value before.
    fn fetch_add(&self, value: V, order: Ordering) -> V;
    /// Keeps the larger value; returns the value before.
    fn fetch_max(&self, value: V, order: Ordering) -> V;
    /// Replaces `current` by `new`; the error is the value found.
    fn compare_exchange(&self, current: V, new: V, success: Ordering, failure: Ordering) -> Result<V, V>;
}

/// A fence between the loads and stores around it.
pub trait Fence {
    /// A sequentially consistent fence.
    fn full();
}

macro_rules! word {
    ($atomic:ty, $value:ty) => {
        impl Word<$value> for $atomic {
            fn load(&self, order: Ordering) -> $value {
                <$atomic>::load(self, order)
            }
            fn store(&self, value: $value, order: Ordering) {
                <$atomic>::store(self, value, order);
            }
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                <$atomic>::fetch_add(self, value, order)
            }
            fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                <$atomic>::fetch_max(self, value, order)
            }
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                <$atomic>::compare_exchange(self, current, new, success, failure)
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);

/// The processor's own fence.
#[derive(Clone, Copy, Debug)]
pub struct Hardware;

impl Fence for Hardware {
    fn full() {
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}
