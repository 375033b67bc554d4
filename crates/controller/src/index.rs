//! The cache of a watch. Each object is reduced at once to the fields that decisions read.
//!
//! kube's own store keeps whole objects, and kube 5.0 wakes only the last task that waits for the first list. This cache keeps
//! less, reports only changes of reduced objects, and wakes all tasks that wait.

use kube::runtime::watcher::Event;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use tokio::sync::watch;

/// The reader of the cache.
#[derive(Debug)]
pub(crate) struct Index<K, V> {
    objects: Arc<RwLock<BTreeMap<K, V>>>,
    first_list: watch::Receiver<FirstList>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstList {
    Expected,
    /// The list failed, and is repeated.
    Failed,
    Arrived,
}

/// The writer of the cache.
#[derive(Debug)]
pub(crate) struct IndexWriter<K, V> {
    objects: Arc<RwLock<BTreeMap<K, V>>>,
    first_list: watch::Sender<FirstList>,
    incoming: BTreeMap<K, V>,
}

/// The key and the reduced value of an object. The value is `None` if decisions do not need the object now.
pub(crate) type Reduced<K, V> = (K, Option<V>);

/// An empty index and its writer.
pub(crate) fn index<K: Ord, V>() -> (Index<K, V>, IndexWriter<K, V>) {
    let objects = Arc::<RwLock<BTreeMap<K, V>>>::default();
    let (sender, first_list) = watch::channel(FirstList::Expected);
    let index = Index {
        objects: objects.clone(),
        first_list,
    };
    let writer = IndexWriter {
        objects,
        first_list: sender,
        incoming: BTreeMap::new(),
    };
    (index, writer)
}

// Not derived: a derived `Clone` would require that keys and values implement `Clone`.
impl<K, V> Clone for Index<K, V> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            first_list: self.first_list.clone(),
        }
    }
}

impl<K, V> Index<K, V> {
    /// The current values. Hold the guard only briefly, because the watch waits meanwhile.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, BTreeMap<K, V>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the first list has arrived.
    pub(crate) fn is_filled_now(&self) -> bool {
        *self.first_list.borrow() == FirstList::Arrived
    }

    /// Waits for the first list. Returns `false` if the watch ended before its first list.
    pub(crate) async fn is_filled(&self) -> bool {
        self.reaches(|list| *list == FirstList::Arrived).await
    }

    /// Waits until the first list arrives or fails. Returns `false` if the watch ended before.
    pub(crate) async fn is_tried(&self) -> bool {
        self.reaches(|list| *list != FirstList::Expected).await
    }

    async fn reaches(&self, state: impl FnMut(&FirstList) -> bool) -> bool {
        self.first_list.clone().wait_for(state).await.is_ok()
    }
}

impl<K, V> IndexWriter<K, V> {
    /// A function that records an error of the watch.
    pub(crate) fn on_error(&self) -> impl Fn() + Send + 'static {
        let first_list = self.first_list.clone();
        move || {
            first_list.send_if_modified(|list| {
                let is_first = *list == FirstList::Expected;
                if is_first {
                    *list = FirstList::Failed;
                }
                is_first
            });
        }
    }
}

impl<K: Ord + Clone, V: Clone + PartialEq> IndexWriter<K, V> {
    /// Applies an event. Returns the changed entries with the new value, or with the last value if the object was removed.
    pub(crate) fn take<O>(
        &mut self,
        event: Event<O>,
        reduce: impl Fn(&O) -> Option<Reduced<K, V>>,
    ) -> Vec<(K, V)> {
        match event {
            Event::Apply(object) => reduce(&object)
                .and_then(|(key, value)| self.set(key, value))
                .into_iter()
                .collect(),
            Event::Delete(object) => reduce(&object)
                .and_then(|(key, _)| self.set(key, None))
                .into_iter()
                .collect(),
            Event::Init => {
                self.incoming = BTreeMap::new();
                Vec::new()
            }
            Event::InitApply(object) => {
                let matters = reduce(&object).and_then(|(key, value)| Some((key, value?)));
                self.incoming.extend(matters);
                Vec::new()
            }
            Event::InitDone => self.relisted(),
        }
    }

    fn set(&mut self, key: K, value: Option<V>) -> Option<(K, V)> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let Some(value) = value else {
            return objects.remove_entry(&key);
        };
        let before = objects.insert(key.clone(), value.clone());
        (before.as_ref() != Some(&value)).then_some((key, value))
    }

    fn relisted(&mut self) -> Vec<(K, V)> {
        let now = std::mem::take(&mut self.incoming);
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *objects, now);
        let changed = difference(before, &objects);
        drop(objects);
        self.first_list.send_replace(FirstList::Arrived);
        changed
    }
}

fn difference<K: Ord + Clone, V: Clone + PartialEq>(
    before: BTreeMap<K, V>,
    now: &BTreeMap<K, V>,
) -> Vec<(K, V)> {
    let other = now.iter().filter(|(key, value)| before.get(key) != Some(value));
    let mut changed: Vec<_> = other.map(|(key, value)| (key.clone(), value.clone())).collect();
    changed.extend(before.into_iter().filter(|(key, _)| !now.contains_key(key)));
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    type Object = (&'static str, Option<u8>);

    fn take(writer: &mut IndexWriter<&'static str, u8>, event: Event<Object>) -> Vec<(&'static str, u8)> {
        writer.take(event, |(name, value)| Some((*name, *value)))
    }

    fn listed(writer: &mut IndexWriter<&'static str, u8>, objects: &[Object]) -> Vec<(&'static str, u8)> {
        take(writer, Event::Init);
        for object in objects {
            take(writer, Event::InitApply(*object));
        }
        take(writer, Event::InitDone)
    }

    #[tokio::test]
    async fn the_first_list_fills_the_index_and_is_a_change() {
        let (index, mut writer) = index();
        assert_eq!(listed(&mut writer, &[("a", Some(1)), ("b", None)]), [("a", 1)]);
        assert!(index.is_filled().await);
        assert_eq!(*index.read(), BTreeMap::from([("a", 1)]));
    }

    #[test]
    fn only_what_changed_is_told() {
        let (index, mut writer) = index();
        listed(&mut writer, &[("a", Some(1))]);
        assert!(take(&mut writer, Event::Apply(("a", Some(1)))).is_empty());
        assert_eq!(take(&mut writer, Event::Apply(("a", Some(2)))), [("a", 2)]);
        assert_eq!(take(&mut writer, Event::Apply(("a", None))), [("a", 2)]);
        assert!(take(&mut writer, Event::Delete(("a", Some(2)))).is_empty());
        assert!(index.read().is_empty());
    }

    #[test]
    fn a_new_list_reports_added_changed_and_deleted_objects() {
        let (index, mut writer) = index();
        listed(
            &mut writer,
            &[("same", Some(1)), ("other", Some(1)), ("gone", Some(1))],
        );
        let changed = listed(
            &mut writer,
            &[("same", Some(1)), ("other", Some(2)), ("new", Some(3))],
        );
        assert_eq!(changed, [("new", 3), ("other", 2), ("gone", 1)]);
        assert_eq!(index.read().len(), 3);
    }

    #[tokio::test]
    async fn a_first_list_that_failed_is_tried_and_fills_the_index_later() {
        let (index, mut writer) = index();
        let on_error = writer.on_error();
        on_error();
        assert!(index.is_tried().await && !index.is_filled_now());
        listed(&mut writer, &[("a", Some(1))]);
        on_error();
        assert!(index.is_filled_now());
    }

    #[tokio::test]
    async fn a_watch_that_ends_before_its_first_list_blocks_no_reader() {
        let (index, writer) = index::<&str, u8>();
        drop(writer);
        assert!(!index.is_filled().await && !index.is_tried().await);
    }
}
