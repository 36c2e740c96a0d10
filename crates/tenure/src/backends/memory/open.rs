//! From `memory:` to a store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use super::{Memory, NAME, Store, lock};
use crate::store::{Address, Context, Opening, Scheme};

pub(crate) static SCHEMES: [Scheme; 1] = [Scheme::new(NAME, open).local().own_store()];

/// The stores that have a name, while they are used.
static NAMED: Mutex<BTreeMap<String, Weak<Store>>> = Mutex::new(BTreeMap::new());

/// Opens `memory:`, a store of its own, or `memory:name`, which the lockers of the process share by that name.
fn open(address: Address, context: Context) -> Opening {
    Box::pin(async move {
        let name = address.place();
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
            return Err(address.refuse("has an address", "memory: or memory:name, where a name has letters, digits, ., _ and -"));
        }
        if name.is_empty() {
            return Ok(Arc::new(Memory::new(context.client, context.clock)).into());
        }
        let mut named = lock(&NAMED);
        named.retain(|_, store| store.strong_count() > 0);
        if let Some(store) = named.get(name).and_then(Weak::upgrade) {
            return Ok(Arc::new(Memory::over(store, context.client)).into());
        }
        let memory = Memory::new(context.client, context.clock);
        named.insert(name.to_owned(), Arc::downgrade(&memory.store));
        Ok(Arc::new(memory).into())
    })
}
