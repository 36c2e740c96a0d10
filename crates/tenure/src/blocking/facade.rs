//! Methods that are those of the async type, made for threads.

/// One line per method: `set` changes an option, `get` tells what is known, `wait` waits for an answer, `hold` for a guard, `try_hold` for one
/// that there may not be. The type has the async one as its only field, and `asked` names the owner that asks.
macro_rules! facade {
    ($of:ident: $($kind:ident $name:ident($($arg:ident: $type:ty),*) $(-> $answer:ty)?;)*) => {
        impl $of {
            $(facade!(@$kind $of $name($($arg: $type),*) $($answer)?);)*
        }
    };
    (@set $of:ident $name:ident($($arg:ident: $type:ty),*)) => {
        #[doc = concat!("As [`crate::", stringify!($of), "::", stringify!($name), "`].")]
        pub fn $name(self, $($arg: $type),*) -> Self {
            Self(self.0.$name($($arg),*))
        }
    };
    (@get $of:ident $name:ident($($arg:ident: $type:ty),*) $answer:ty) => {
        #[doc = concat!("As [`crate::", stringify!($of), "::", stringify!($name), "`].")]
        #[must_use]
        pub fn $name(&self, $($arg: $type),*) -> $answer {
            self.0.$name($($arg),*)
        }
    };
    (@wait $of:ident $name:ident($($arg:ident: $type:ty),*) $answer:ty) => {
        #[doc = concat!("As [`crate::", stringify!($of), "::", stringify!($name), "`].")]
        pub fn $name(&self, $($arg: $type),*) -> crate::error::Result<$answer> {
            crate::blocking::block_on(self.asked().$name($($arg),*))
        }
    };
    (@hold $of:ident $name:ident($($arg:ident: $type:ty),*)) => {
        #[doc = concat!("As [`crate::", stringify!($of), "::", stringify!($name), "`].")]
        pub fn $name(&self, $($arg: $type),*) -> crate::error::Result<crate::blocking::Guard> {
            crate::blocking::block_on(self.asked().$name($($arg),*)).map(crate::blocking::Guard::new)
        }
    };
    (@try_hold $of:ident $name:ident($($arg:ident: $type:ty),*)) => {
        #[doc = concat!("As [`crate::", stringify!($of), "::", stringify!($name), "`].")]
        pub fn $name(&self, $($arg: $type),*) -> crate::error::Result<Option<crate::blocking::Guard>> {
            Ok(crate::blocking::block_on(self.asked().$name($($arg),*))?.map(crate::blocking::Guard::new))
        }
    };
}
pub(super) use facade;
