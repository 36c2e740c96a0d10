//! The values of placeholders.

/// The value of one placeholder.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// NULL.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

macro_rules! values {
    ($($from:ty => $to:ident($convert:expr);)*) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$to($convert(value))
            }
        })*
    };
}

values! {
    bool => Bool(std::convert::identity);
    i16 => Int(i64::from);
    i32 => Int(i64::from);
    u32 => Int(i64::from);
    i64 => Int(std::convert::identity);
    f64 => Float(std::convert::identity);
    &str => Text(str::to_owned);
    &String => Text(String::clone);
    String => Text(std::convert::identity);
    Vec<u8> => Bytes(std::convert::identity);
    &[u8] => Bytes(<[u8]>::to_vec);
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The values of a fragment's placeholders, in order: `()`, `[1, 2]`, a vector, or a tuple of several types.
pub trait Binds {
    /// One by one.
    fn values(self) -> Vec<Value>;
}

impl Binds for () {
    fn values(self) -> Vec<Value> {
        Vec::new()
    }
}

impl<V: Into<Value>, const N: usize> Binds for [V; N] {
    fn values(self) -> Vec<Value> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<V: Into<Value>> Binds for Vec<V> {
    fn values(self) -> Vec<Value> {
        self.into_iter().map(Into::into).collect()
    }
}

macro_rules! tuples {
    ($(($($name:ident)*))*) => {
        $(impl<$($name: Into<Value>),*> Binds for ($($name,)*) {
            #[expect(non_snake_case, reason = "one name for the type and its value")]
            fn values(self) -> Vec<Value> {
                let ($($name,)*) = self;
                vec![$($name.into()),*]
            }
        })*
    };
}

tuples! {
    (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H)
}
