//! A layer that puts a prefix before every name, so that programs can share a store.

use crate::backend::Layer;
use crate::error::{Error, Result};
use crate::name::Resource;

/// Puts a prefix before every name. `inspect` shows names without it.
#[derive(Debug)]
pub struct Prefixed {
    prefix: String,
}

impl Prefixed {
    /// Puts `prefix` before every name.
    pub fn new(prefix: String) -> Result<Self> {
        Resource::new(&prefix)?;
        Ok(Self { prefix })
    }
}

impl Layer for Prefixed {
    fn rename(&self, name: &Resource) -> Result<Option<Resource>> {
        Ok(Some(Resource::new(format!("{}{name}", self.prefix))?))
    }

    fn rename_prefix(&self, prefix: &str) -> String {
        format!("{}{prefix}", self.prefix)
    }

    fn unname(&self, name: Resource) -> Result<Option<Resource>> {
        match name.as_str().strip_prefix(&self.prefix) {
            // A name that is the prefix alone is not ours: it has no name left.
            Some("") => Ok(None),
            Some(bare) => Ok(Some(Resource::new(bare)?)),
            None => {
                let problem = format!("is not under {:?}", self.prefix);
                Err(Error::config(format!("the name {:?}", name.as_str()), problem, "names under the prefix"))
            }
        }
    }
}
