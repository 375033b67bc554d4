//! The slots within the caps: a run takes a slot before it gets a placeholder, and keeps the slot until it is done.
//!
//! Runs take slots in the order of their creation. A namespace without a free slot does not delay other namespaces.

use super::{NEW_AT_ONCE, Name, Position};
use crate::caps::{Cap, Caps, OverCap};
use std::collections::{BTreeMap, HashMap};

/// The runs that have a slot or wait for one.
#[derive(Debug, Default)]
pub(super) struct Slots {
    caps: Caps,
    runs: BTreeMap<Position, Slot>,
    /// The taken slots by namespace.
    taken: HashMap<String, usize>,
}

#[derive(Debug)]
struct Slot {
    name: Name,
    is_taken: bool,
    /// The run has a placeholder, or has started.
    is_used: bool,
}

/// The taken slots, as far as the runs were counted.
struct Count<'a> {
    slots: &'a Slots,
    total: usize,
    more: HashMap<&'a str, usize>,
}

impl Slots {
    /// If the caps change, runs without a placeholder lose their slots and take them again.
    pub(super) fn set_caps(&mut self, caps: &Caps) {
        if self.caps == *caps {
            return;
        }
        self.caps = caps.clone();
        self.taken.clear();
        for slot in self.runs.values_mut() {
            slot.is_taken &= slot.is_used;
            if slot.is_taken {
                *self.taken.entry(slot.name.0.clone()).or_default() += 1;
            }
        }
    }

    /// Adds or updates a run. A run that has a placeholder, or has started, has a slot whatever the caps are.
    pub(super) fn record(&mut self, position: Position, name: &Name, has_slot: bool) {
        let slot = self.runs.entry(position).or_insert_with(|| Slot {
            name: name.clone(),
            is_taken: false,
            is_used: false,
        });
        slot.is_used = has_slot;
        if has_slot {
            self.occupy(position);
        }
    }

    fn occupy(&mut self, position: Position) {
        if let Some(slot) = self.runs.get_mut(&position).filter(|slot| !slot.is_taken) {
            slot.is_taken = true;
            *self.taken.entry(slot.name.0.clone()).or_default() += 1;
        }
    }

    /// Removes a run. Returns the runs that can take a slot now.
    pub(super) fn remove(&mut self, position: Position) -> Vec<Name> {
        match self.runs.remove(&position) {
            Some(slot) if slot.is_taken => {
                if let Some(taken) = self.taken.get_mut(&slot.name.0) {
                    *taken = taken.saturating_sub(1);
                }
                self.next()
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Takes a slot for the run, unless a cap has none.
    pub(super) fn take(&mut self, position: Position) -> Option<OverCap> {
        let slot = self.runs.get(&position).filter(|slot| !slot.is_taken)?;
        let name = slot.name.clone();
        let over_cap = self.over_cap(position, &name.0);
        if over_cap.is_none() {
            self.occupy(position);
        }
        over_cap
    }

    fn over_cap(&self, position: Position, namespace: &str) -> Option<OverCap> {
        if self.caps.is_empty() {
            return None;
        }
        let mut count = Count::new(self);
        let older = self.waiting().take_while(|(at, _)| **at < position);
        let over = older.filter_map(|(_, slot)| Some((count.take(&slot.name.0)?, slot.name.0.as_str())));
        let over: Vec<_> = over.collect();
        let cap = count.take(namespace)?;
        let is_ahead = |(other, of): &&(Cap, &str)| {
            *other == cap && (matches!(cap, Cap::Cluster(_)) || *of == namespace)
        };
        let ahead = over.iter().filter(is_ahead).count();
        Some(OverCap { cap, ahead })
    }

    /// The oldest runs that can take a slot.
    pub(super) fn next(&self) -> Vec<Name> {
        if self.caps.is_empty() {
            return Vec::new();
        }
        let mut count = Count::new(self);
        let next = self
            .waiting()
            .filter(|(_, slot)| count.take(&slot.name.0).is_none());
        next.map(|(_, slot)| slot.name.clone())
            .take(NEW_AT_ONCE)
            .collect()
    }

    fn waiting(&self) -> impl Iterator<Item = (&Position, &Slot)> {
        self.runs.iter().filter(|(_, slot)| !slot.is_taken)
    }
}

impl<'a> Count<'a> {
    fn new(slots: &'a Slots) -> Self {
        Self {
            slots,
            total: slots.taken.values().sum(),
            more: HashMap::new(),
        }
    }

    /// Takes a slot of this namespace. Returns the cap that has none.
    fn take(&mut self, namespace: &'a str) -> Option<Cap> {
        let caps = &self.slots.caps;
        let taken = self.slots.taken.get(namespace).copied().unwrap_or_default();
        let more = self.more.entry(namespace).or_default();
        let of_namespace = caps
            .in_namespace(namespace)
            .filter(|cap| taken + *more >= cap.limit());
        let of_cluster = caps
            .cluster
            .filter(|limit| self.total >= *limit)
            .map(Cap::Cluster);
        let over = of_namespace.or(of_cluster);
        if over.is_none() {
            *more += 1;
            self.total += 1;
        }
        over
    }
}

#[cfg(test)]
mod tests;
