//! A queue that is nearly always empty or of length one.

use std::collections::VecDeque;

/// A queue that stores its first entry inline.
#[derive(Debug)]
pub(super) struct InlineQueue<T> {
    first: Option<T>,
    /// Empty while `first` is.
    #[expect(
        clippy::box_collection,
        reason = "rarely there, and a quarter of the size in each of a million clients"
    )]
    more: Option<Box<VecDeque<T>>>,
}

impl<T> Default for InlineQueue<T> {
    fn default() -> Self {
        Self { first: None, more: None }
    }
}

impl<T> InlineQueue<T> {
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.as_ref().map_or(0, |more| more.len())
    }
    #[inline]
    pub(super) fn front(&self) -> Option<&T> {
        self.first.as_ref()
    }
    pub(super) fn get(&self, i: usize) -> Option<&T> {
        if i == 0 { self.first.as_ref() } else { self.more.as_ref()?.get(i - 1) }
    }
    #[inline]
    pub(super) fn get_mut(&mut self, i: usize) -> Option<&mut T> {
        if i == 0 { self.first.as_mut() } else { self.more.as_mut()?.get_mut(i - 1) }
    }
    #[inline]
    pub(super) fn push_back(&mut self, entry: T) {
        if self.first.is_none() {
            self.first = Some(entry);
        } else {
            self.more.get_or_insert_default().push_back(entry);
        }
    }
    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<T> {
        let next = self.more.as_mut().and_then(|more| more.pop_front());
        std::mem::replace(&mut self.first, next)
    }
    pub(super) fn clear(&mut self) {
        self.first = None;
        self.more = None;
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.more.iter().flat_map(|more| more.iter()))
    }
}

impl<T> FromIterator<T> for InlineQueue<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        let mut short = Self::default();
        entries.into_iter().for_each(|entry| short.push_back(entry));
        short
    }
}

impl<T> IntoIterator for InlineQueue<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::collections::vec_deque::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(*self.more.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_queue(steps in proptest::collection::vec(proptest::option::of(0u8..255), 0..60)) {
            let (mut short, mut model) = (InlineQueue::default(), VecDeque::new());
            for step in steps {
                match step {
                    Some(n) => {
                        short.push_back(n);
                        model.push_back(n);
                    }
                    None => prop_assert_eq!(short.pop_front(), model.pop_front()),
                }
                prop_assert_eq!(short.len(), model.len());
                prop_assert_eq!(short.front(), model.front());
                prop_assert!((0..model.len() + 1).all(|i| short.get(i) == model.get(i)));
                prop_assert!((0..model.len() + 1).all(|i| short.get_mut(i) == model.get_mut(i)));
                prop_assert!(short.iter().eq(&model));
                prop_assert!(model.iter().copied().collect::<InlineQueue<u8>>().iter().eq(&model));
            }
            prop_assert!(short.into_iter().eq(model));
        }
    }
}
