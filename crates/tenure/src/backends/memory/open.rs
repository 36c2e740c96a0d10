//! From `memory:`, or from options in code, to a store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use super::{Memory, NAME, Store, lock};
use crate::error::Error;
use crate::store::{Address, Context, Opening, Scheme, Sealed, StoreOptions};

pub(crate) static SCHEMES: [Scheme; 1] = [Scheme::new(NAME, open).local().own_store()];

/// The stores that have a name, while they are used.
static NAMED: Mutex<BTreeMap<String, Weak<Store>>> = Mutex::new(BTreeMap::new());

/// Opens `memory:` and `memory:name`.
fn open(address: Address, context: Context) -> Opening {
    Box::pin(async move {
        let name = address.place();
        let options = if name.is_empty() { MemoryOptions::new() } else { MemoryOptions::named(name) };
        options.open(context).await
    })
}

/// Locks inside of this process.
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing until a locker connects with them"]
pub struct MemoryOptions {
    name: Option<String>,
}

impl MemoryOptions {
    /// A store of its own for each locker.
    pub fn new() -> Self {
        Self::default()
    }

    /// A store that all lockers of the process with this name share. In a test, each locker stands for a process.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()) }
    }
}

impl Sealed for MemoryOptions {}

impl StoreOptions for MemoryOptions {
    fn scheme(&self) -> &'static str {
        NAME
    }

    fn place(&self) -> Option<String> {
        self.name.clone()
    }

    fn open(&self, Context { client, clock, .. }: Context) -> Opening {
        let name = self.name.clone();
        Box::pin(async move {
            let Some(name) = name else { return Ok(Arc::new(Memory::new(client, clock)).into()) };
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
                let allowed = "memory: or memory:name, where a name has letters, digits, ., _ and -";
                return Err(Error::config("the memory: URL", "has an address", allowed));
            }
            let mut named = lock(&NAMED);
            named.retain(|_, store| store.strong_count() > 0);
            if let Some(store) = named.get(&name).and_then(Weak::upgrade) {
                return Ok(Arc::new(Memory::over(store, client)).into());
            }
            let memory = Memory::new(client, clock);
            named.insert(name, Arc::downgrade(&memory.store));
            Ok(Arc::new(memory).into())
        })
    }
}
