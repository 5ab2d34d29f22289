//! Costs by cache size: a snapshot, and the Pods of one owner, among 100 to 100,000 objects.

use anyhow::Result;
use mortise_core::object::owner::Owner;
use mortise_core::object::{Interner, Object};
use mortise_core::store::Store;

use super::plugin::pod;
use crate::measure::Case;
use crate::sample::{OWNER_UID, Pod};

const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];
/// Snapshots per measurement, since one is shorter than reading the clock.
const BATCH: u64 = 1_000;
const LOOKUPS: usize = 1_000;

pub(crate) fn stores() -> Result<Vec<(usize, Store)>> {
    SIZES.iter().map(|size| Ok((*size, filled(*size)?))).collect()
}

fn filled(objects: usize) -> Result<Store> {
    let (mut store, mut interner) = (Store::new(), Interner::default());
    for number in 0..objects {
        store.list_item(Object::decode(Pod::new(number / 10, number % 10).json().as_bytes(), &mut interner)?);
    }
    Ok(store)
}

pub(crate) fn cases<'a>(stores: &'a [(usize, Store)], cases: &mut Vec<Case<'a>>) {
    for (size, store) in stores {
        cases.push(Case::new(format!("snapshot, {size} objects"), move |stopwatch| {
            stopwatch.many(BATCH, || (0..BATCH).for_each(|_| drop(std::hint::black_box(store.snapshot()))));
            Ok(())
        }));
    }
    for (size, store) in stores {
        let (snapshot, kind) = (store.snapshot(), pod());
        let owner = Owner { uid: OWNER_UID.into(), namespace: None };
        cases.push(Case::new(format!("the 10 Pods of one owner, {size} objects"), move |stopwatch| {
            for _ in 0..LOOKUPS {
                let found = stopwatch.one(|| snapshot.owned(&kind, &owner).count());
                anyhow::ensure!(found == 10, "the owner has {found} Pods");
            }
            Ok(())
        }));
    }
}
