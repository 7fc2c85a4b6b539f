//! Turns `extern` functions into a table of pointers with one method each.
//!
//! bindgen has such a form too, but a call of it panics where the library lacks the symbol; here it is an error, so that one
//! binding serves several releases.

use quote::{format_ident, quote};
use syn::{File, FnArg, ForeignItem, ForeignItemFn, Item, Pat, ReturnType};

/// `text` with its `extern` blocks replaced by `struct Functions`.
pub(super) fn table(text: &str) -> Result<String, String> {
    let mut file: File =
        syn::parse_file(text).map_err(|e| format!("what bindgen wrote does not parse: {e}"))?;
    let mut functions: Vec<ForeignItemFn> = Vec::new();
    let mut kept = Vec::new();
    for item in file.items {
        match item {
            Item::ForeignMod(block) => {
                for item in block.items {
                    match item {
                        ForeignItem::Fn(function) => functions.push(function),
                        other => return Err(format!("neither function nor type: {other:?}")),
                    }
                }
            }
            other => kept.push(other),
        }
    }
    functions.sort_by_key(|function| function.sig.ident.to_string());

    let (mut names, mut fields, mut methods) = (Vec::new(), Vec::new(), Vec::new());
    for function in &functions {
        let name = &function.sig.ident;
        let symbol = name.to_string();
        let (mut arguments, mut types) = (Vec::new(), Vec::new());
        for input in &function.sig.inputs {
            let FnArg::Typed(argument) = input else { return Err(format!("{name} has a receiver")) };
            let Pat::Ident(pattern) = argument.pat.as_ref() else {
                return Err(format!("{name} has an argument without a name"));
            };
            arguments.push(&pattern.ident);
            types.push(argument.ty.as_ref());
        }
        let returned = match &function.sig.output {
            ReturnType::Default => quote!(()),
            ReturnType::Type(_, ty) => quote!(#ty),
        };
        names.push(symbol.clone());
        let output = &function.sig.output;
        fields.push(quote!(#name: Option<unsafe extern "C" fn(#(#types),*) #output>));
        // SAFETY (of what is written here): the pointer is the library's function of this name, whose declaration this is;
        // its own rules are the caller's.
        methods.push(quote! {
            pub unsafe fn #name(&self #(, #arguments: #types)*) -> Result<#returned, Unavailable> {
                let function = self.#name.ok_or(Unavailable { symbol: #symbol })?;
                Ok(unsafe { function(#(#arguments),*) })
            }
        });
    }
    let idents: Vec<_> = names.iter().map(|name| format_ident!("{name}")).collect();
    let count = names.len();
    // SAFETY (of the transmute written here): a pointer and an optional function pointer have one size, and null is `None`.
    let table = quote! {
        /// The host library's functions that take bytes, by name.
        ///
        /// A method calls the function of its name. What it does, who must call it and what must hold for its arguments is
        /// said in NVSHMEM's documentation; that is each method's safety contract. Where the loaded release does not export
        /// the function, the method returns [`Unavailable`] and calls nothing.
        #[derive(Clone, Copy, Debug)]
        pub struct Functions { #(#fields),* }
        impl Functions {
            /// Names of all bound functions, sorted.
            pub const NAMES: [&'static str; #count] = [#(#names),*];
            /// Takes every function from `symbol`, which returns null for what the library lacks.
            ///
            /// # Safety
            /// What `symbol` returns is null or the function of that name in an NVSHMEM host library that stays loaded.
            pub(crate) unsafe fn load(symbol: impl Fn(&'static str) -> *mut core::ffi::c_void) -> Self {
                unsafe { Self { #(#idents: core::mem::transmute(symbol(#names))),* } }
            }
            #(#methods)*
        }
    };
    kept.push(syn::parse_quote!(
        use crate::Unavailable;
    ));
    let table: File = syn::parse2(table).map_err(|e| format!("the table does not parse: {e}"))?;
    kept.extend(table.items);
    file.items = kept;
    Ok(format!("// Written by ci/gen-bindings from NVSHMEM's headers.\n\n{}", prettyplease::unparse(&file)))
}
