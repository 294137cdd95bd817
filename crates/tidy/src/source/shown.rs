//! Where text that somebody may read is made by `Debug`.

use proc_macro2::{TokenStream, TokenTree};

/// Macros that stop the program, or that are for those who change it: nothing in their arguments counts.
const NOT_SHOWN: [&str; 12] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
    "panic",
    "unreachable",
    "debug",
    "trace",
    "todo",
    "unimplemented",
];
/// Macros that log, with fields that may begin with `?`.
const LOGS: [&str; 5] = ["info", "warn", "error", "event", "span"];

/// Adds the lines.
pub(super) fn find(stream: TokenStream, out: &mut Vec<usize>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    for (i, tree) in trees.iter().enumerate() {
        match tree {
            TokenTree::Group(group) => {
                let called = called(&trees[..i]);
                if called.is_some_and(|name| NOT_SHOWN.contains(&name.as_str())) {
                    continue;
                }
                if called_is_log(&trees[..i]) {
                    fields(&group.stream().into_iter().collect::<Vec<_>>(), out);
                }
                find(group.stream(), out);
            }
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                let is_doc = matches!(&trees[..i], [TokenTree::Ident(doc), _] if doc == "doc");
                if text.contains('"') && !is_doc && is_debug(&text) {
                    out.push(literal.span().start().line);
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// Whether a string has a placeholder that formats by `Debug`: `{:?}`, `{x:#?}`, `{0:02x?}`.
fn is_debug(text: &str) -> bool {
    text.match_indices("?}").any(|(at, _)| {
        let open = text[..at].rfind('{');
        open.is_some_and(|open| text[open..at].contains(':') && !text[open..at].contains(' '))
    })
}

/// The name of the macro whose arguments come behind these.
fn called(before: &[TokenTree]) -> Option<String> {
    match before {
        [.., TokenTree::Ident(name), TokenTree::Punct(bang)] if bang.as_char() == '!' => {
            Some(name.to_string())
        }
        _ => None,
    }
}

fn called_is_log(before: &[TokenTree]) -> bool {
    called(before).is_some_and(|name| LOGS.contains(&name.as_str()))
}

/// `?field` at the beginning of an argument, and `name = ?field`.
fn fields(trees: &[TokenTree], out: &mut Vec<usize>) {
    for (i, tree) in trees.iter().enumerate() {
        let TokenTree::Punct(mark) = tree else { continue };
        let begins = match i.checked_sub(1).map(|i| &trees[i]) {
            None => true,
            Some(TokenTree::Punct(p)) => matches!(p.as_char(), ',' | '='),
            Some(TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Literal(_)) => false,
        };
        if mark.as_char() == '?' && begins {
            out.push(mark.span().start().line);
        }
    }
}
