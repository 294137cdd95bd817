//! Matches that tell operations apart, and have an arm for all others.

use proc_macro2::Span;
use syn::Pat;

/// The enum whose variants are told apart.
const ENUM: &str = "Op";

/// Where the arm for all others is, of a match whose other arms name operations.
pub(super) fn arm_for_others(found: &syn::ExprMatch) -> Option<Span> {
    if !found.arms.iter().any(|arm| names_operations(&arm.pat)) {
        return None;
    }
    let others = found
        .arms
        .iter()
        .find(|arm| arm.guard.is_none() && is_wild(&arm.pat));
    others.map(|arm| arm.fat_arrow_token.spans[0])
}

/// Whether a pattern is an operation, or a tuple that has one: not one inside what it takes apart.
fn names_operations(pat: &Pat) -> bool {
    let path = match pat {
        Pat::Or(or) => return or.cases.iter().any(names_operations),
        Pat::Tuple(tuple) => return tuple.elems.iter().any(names_operations),
        Pat::Paren(paren) => return names_operations(&paren.pat),
        Pat::Reference(reference) => return names_operations(&reference.pat),
        Pat::Ident(ident) => return ident.subpat.as_ref().is_some_and(|(_, p)| names_operations(p)),
        Pat::Struct(of) => &of.path,
        Pat::TupleStruct(of) => &of.path,
        Pat::Path(of) => &of.path,
        _ => return false,
    };
    let mut segments = path.segments.iter().rev().skip(1);
    segments.next().is_some_and(|s| s.ident == ENUM)
}

/// Whether a pattern is good for everything: `_`, a name, or a tuple of these.
fn is_wild(pat: &Pat) -> bool {
    match pat {
        Pat::Wild(_) => true,
        Pat::Ident(ident) => {
            let constant = ident.ident.to_string().starts_with(|c: char| c.is_uppercase());
            ident.subpat.is_none() && !constant
        }
        Pat::Tuple(tuple) => tuple.elems.iter().all(is_wild),
        Pat::Paren(paren) => is_wild(&paren.pat),
        _ => false,
    }
}
