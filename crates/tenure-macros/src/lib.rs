//! The attribute `#[tenure::locked]`. Use it by way of the crate `tenure`, feature `macros`, which documents it.

mod wait;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Code;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Error, Expr, FnArg, Ident, ItemFn, LitStr, Pat, Result, ReturnType, parse_macro_input};

use self::wait::Wait;

/// Runs an async function under a lock. See `tenure::locked`.
#[proc_macro_attribute]
pub fn locked(args: TokenStream, function: TokenStream) -> TokenStream {
    let mut given = Given::default();
    let parser = syn::meta::parser(|meta| given.read(&meta));
    parse_macro_input!(args with parser);
    let function = parse_macro_input!(function as ItemFn);
    given.expand(function).unwrap_or_else(|e| e.to_compile_error()).into()
}

/// What the attribute says.
#[derive(Default)]
struct Given {
    key: Option<LitStr>,
    wait: Option<Wait>,
    busy: Option<Expr>,
    locker: Option<Expr>,
    guard: Option<Ident>,
}

impl Given {
    fn read(&mut self, meta: &syn::meta::ParseNestedMeta<'_>) -> Result<()> {
        let name = meta.path.require_ident()?.to_string();
        let twice = match &*name {
            "key" => self.key.replace(meta.value()?.parse()?).is_some(),
            "wait" => self.wait.replace(Wait::read(&meta.value()?.parse()?)?).is_some(),
            "busy" => self.busy.replace(meta.value()?.parse()?).is_some(),
            "locker" => self.locker.replace(meta.value()?.parse()?).is_some(),
            "guard" => self.guard.replace(meta.value()?.parse()?).is_some(),
            _ => return Err(meta.error("unknown; allowed are key, wait, busy, locker, guard")),
        };
        if twice { Err(meta.error(format!("{name} is there twice"))) } else { Ok(()) }
    }

    fn expand(self, function: ItemFn) -> Result<Code> {
        let ItemFn { attrs, vis, sig, block } = function;
        if sig.asyncness.is_none() {
            return Err(Error::new(sig.fn_token.span(), "a locked function is async: it waits for its lock"));
        }
        let ReturnType::Type(_, output) = &sig.output else {
            let problem = "a locked function returns a Result whose error is made from tenure::Error: the lock may be lost";
            return Err(Error::new(sig.span(), problem));
        };
        let needed =
            |what: &str, example: &str| Error::new(sig.ident.span(), format!("what is the {what}? For example {example}"));
        let key = self.key.ok_or_else(|| needed("key", "key = \"order:{id}\""))?;
        let wait = self.wait.ok_or_else(|| needed("longest wait", "wait = \"5s\", or wait = \"forever\""))?;
        let locker = self.locker.unwrap_or_else(|| syn::parse_quote!(locker));
        let guard = self.guard.unwrap_or_else(|| Ident::new("guard", sig.ident.span()));
        let named_so = |pattern: &FnArg| matches!(pattern, FnArg::Typed(arg) if matches!(&*arg.pat, Pat::Ident(name) if name.ident == guard));
        if let Some(argument) = sig.inputs.iter().find(|argument| named_so(argument)) {
            let problem = format!("the lock's own guard is {guard} inside: rename the argument, or the guard (guard = held)");
            return Err(Error::new(argument.span(), problem));
        }
        let acquire = match (wait, self.busy) {
            (Wait::Forever, None) => quote! {
                match __mutex.lock().await {
                    ::core::result::Result::Ok(__guard) => __guard,
                    ::core::result::Result::Err(__error) => {
                        return ::core::result::Result::Err(::core::convert::From::from(__error));
                    }
                }
            },
            (Wait::For(nanos), Some(busy)) => quote! {
                match __mutex.try_lock_for(::core::time::Duration::from_nanos(#nanos)).await {
                    ::core::result::Result::Ok(::core::option::Option::Some(__guard)) => __guard,
                    ::core::result::Result::Ok(::core::option::Option::None) => return #busy,
                    ::core::result::Result::Err(__error) => {
                        return ::core::result::Result::Err(::core::convert::From::from(__error));
                    }
                }
            },
            (Wait::Forever, Some(busy)) => {
                return Err(Error::new(busy.span(), "a call that waits forever never finds the lock busy"));
            }
            (Wait::For(_), None) => return Err(needed("answer when the lock is busy", "busy = Err(MyError::Busy)")),
        };
        Ok(quote! {
            #(#attrs)*
            #vis #sig {
                let __mutex = ::tenure::Locker::mutex(&#locker, ::std::format!(#key));
                let #guard = #acquire;
                let __done = #guard
                    .run(async {
                        // Says what it returns, for the question marks in it.
                        #[allow(unreachable_code, clippy::all, clippy::pedantic)]
                        if false {
                            let __output: #output = loop {};
                            return __output;
                        }
                        #block
                    })
                    .await;
                match __done {
                    ::core::result::Result::Ok(__output) => {
                        // What was done is done. A store that cannot be reached now is told in the background.
                        ::core::mem::drop(#guard.release().await);
                        __output
                    }
                    ::core::result::Result::Err(__lost) => {
                        ::core::result::Result::Err(::core::convert::From::from(::tenure::Error::from(__lost)))
                    }
                }
            }
        })
    }
}
