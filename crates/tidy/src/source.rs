//! One Rust file: its tokens, its imports, and which of its lines are test code.
//!
//! Tokens come from the compiler's own lexer (as a library), so comments and strings never match a rule.

mod others;
mod shown;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// A token and its line.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub text: String,
    pub line: usize,
    pub ident: bool,
}

/// A path as written, with the number of generic arguments of each segment.
#[derive(Clone, Debug)]
pub(crate) struct PathUse {
    /// Fully resolved through the file's imports.
    pub segments: Vec<(String, usize)>,
    pub line: usize,
}

pub(crate) struct Source {
    pub tokens: Vec<Token>,
    pub paths: Vec<PathUse>,
    /// Lines where text is made by `Debug`, but for what stops the program, or is in an implementation of
    /// `Debug`.
    pub debugged: Vec<usize>,
    /// Lines of arms for all others, in matches that tell operations apart.
    pub others: Vec<usize>,
    test_lines: Vec<RangeInclusive<usize>>,
}

impl Source {
    pub(crate) fn parse(text: &str) -> Result<Source, String> {
        let at = |e: syn::Error| format!("line {}: {e}", e.span().start().line);
        let file = syn::parse_file(text).map_err(at)?;
        let body: TokenStream = syn::parse_str(&strip_shebang(text)).map_err(at)?;
        let mut debugged = Vec::new();
        shown::find(body.clone(), &mut debugged);
        let mut tokens = Vec::new();
        flatten(body, &mut tokens);
        let mut items = Items::default();
        items.visit_file(&file);
        let mut paths = items.imports;
        let aliases: BTreeMap<&str, &PathUse> = items.names.iter().map(|(n, p)| (n.as_str(), p)).collect();
        paths.extend(written_paths(&tokens).into_iter().map(|p| resolve(p, &aliases)));
        debugged.retain(|l| !items.debug_lines.iter().any(|r| r.contains(l)));
        Ok(Source {
            tokens,
            paths,
            debugged,
            others: items.others,
            test_lines: items.test_lines,
        })
    }

    /// Whether a line belongs to an item that only tests compile.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.test_lines.iter().any(|r| r.contains(&line))
    }

    /// Lines where the tokens of `pattern` (separated by spaces) follow each other.
    pub(crate) fn find(&self, pattern: &str) -> Vec<usize> {
        let want: Vec<&str> = pattern.split(' ').collect();
        self.tokens
            .windows(want.len())
            .filter(|w| w.iter().zip(&want).all(|(t, want)| t.text == *want))
            .map(|w| w[0].line)
            .collect()
    }
}

fn strip_shebang(text: &str) -> String {
    if text.starts_with("#!/") {
        text.replacen("#!", "//", 1)
    } else {
        text.into()
    }
}

fn flatten(stream: TokenStream, out: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(g) => {
                let (open, close) = match g.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                out.push(Token {
                    text: open.into(),
                    line,
                    ident: false,
                });
                flatten(g.stream(), out);
                out.push(Token {
                    text: close.into(),
                    line: g.span_close().start().line,
                    ident: false,
                });
            }
            TokenTree::Ident(i) => out.push(Token {
                text: i.to_string(),
                line,
                ident: true,
            }),
            TokenTree::Punct(p) => out.push(Token {
                text: p.as_char().to_string(),
                line,
                ident: false,
            }),
            // A literal's text is data: keep its place only.
            TokenTree::Literal(_) => out.push(Token {
                text: "\"\"".into(),
                line,
                ident: false,
            }),
        }
    }
}

/// All `a::b::<C>::d` in a token list, macros' arguments included.
fn written_paths(tokens: &[Token]) -> Vec<PathUse> {
    let text = |i: usize| tokens.get(i).map_or("", |t| t.text.as_str());
    let colons = |i: usize| text(i) == ":" && text(i + 1) == ":";
    let mut paths = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let after_dot = i > 0 && text(i - 1) == ".";
        if !tokens[i].ident || after_dot {
            i += 1;
            continue;
        }
        let line = tokens[i].line;
        let mut segments = vec![(tokens[i].text.clone(), 0)];
        let mut at = i + 1;
        loop {
            let turbofish = colons(at) && text(at + 2) == "<";
            if turbofish || text(at) == "<" {
                let open = if turbofish { at + 2 } else { at };
                if let (Some((args, close)), Some(last)) = (generic_args(tokens, open), segments.last_mut()) {
                    last.1 = args;
                    at = close + 1;
                }
            }
            if colons(at) && tokens.get(at + 2).is_some_and(|t| t.ident) {
                segments.push((text(at + 2).into(), 0));
                at += 3;
            } else {
                break;
            }
        }
        // Only the names are consumed: generic arguments hold paths of their own.
        i += 1;
        while colons(i) && tokens.get(i + 2).is_some_and(|t| t.ident) {
            i += 3;
        }
        paths.push(PathUse { segments, line });
    }
    paths
}

/// The number of type arguments between the `<` at `open` and its `>`, and where that is. `None` if this `<`
/// compares.
fn generic_args(tokens: &[Token], open: usize) -> Option<(usize, usize)> {
    let (mut depth, mut group, mut args, mut empty) = (0usize, 0usize, 0, true);
    for (i, token) in tokens.iter().enumerate().skip(open).take(400) {
        match token.text.as_str() {
            "(" | "[" | "{" => group += 1,
            ")" | "]" | "}" => group = group.checked_sub(1)?,
            ";" if group == 0 => return None,
            "<" if group == 0 => depth += 1,
            ">" if group == 0 && tokens[i - 1].text != "-" => {
                depth -= 1;
                if depth == 0 {
                    // A trailing comma ends an argument that was counted.
                    return Some((args + usize::from(!empty), i));
                }
            }
            "," if group == 0 && depth == 1 => {
                args += 1;
                empty = true;
                continue;
            }
            _ => {}
        }
        if i > open {
            empty = false;
        }
    }
    None
}

fn resolve(mut path: PathUse, aliases: &BTreeMap<&str, &PathUse>) -> PathUse {
    if let Some(full) = path
        .segments
        .first()
        .and_then(|(name, _)| aliases.get(name.as_str()))
    {
        let mut segments = full.segments.clone();
        if let (Some(last), Some((_, args))) = (segments.last_mut(), path.segments.first()) {
            last.1 = *args;
        }
        segments.extend(path.segments.drain(1..));
        path.segments = segments;
    }
    path
}

/// Walks the items: imports, and which lines only tests compile.
#[derive(Default)]
struct Items {
    imports: Vec<PathUse>,
    names: Vec<(String, PathUse)>,
    test_lines: Vec<RangeInclusive<usize>>,
    debug_lines: Vec<RangeInclusive<usize>>,
    others: Vec<usize>,
}

impl Items {
    fn note(&mut self, attrs: &[syn::Attribute], item: &impl Spanned) {
        if attrs.iter().any(only_in_tests) {
            self.test_lines
                .push(item.span().start().line..=item.span().end().line);
        }
    }

    fn import(&mut self, tree: &syn::UseTree, prefix: &[(String, usize)]) {
        let with = |name: &syn::Ident| {
            let mut segments = prefix.to_vec();
            if name != "self" {
                segments.push((name.to_string(), 0));
            }
            PathUse {
                segments,
                line: name.span().start().line,
            }
        };
        match tree {
            syn::UseTree::Path(p) => self.import(&p.tree, &with(&p.ident).segments),
            syn::UseTree::Group(g) => g.items.iter().for_each(|t| self.import(t, prefix)),
            syn::UseTree::Name(n) => {
                let path = with(&n.ident);
                let local = path.segments.last().map(|(s, _)| s.clone()).unwrap_or_default();
                self.names.push((local, path.clone()));
                self.imports.push(path);
            }
            syn::UseTree::Rename(r) => {
                let path = with(&r.ident);
                self.names.push((r.rename.to_string(), path.clone()));
                self.imports.push(path);
            }
            syn::UseTree::Glob(g) => {
                let mut segments = prefix.to_vec();
                segments.push(("*".into(), 0));
                self.imports.push(PathUse {
                    segments,
                    line: g.span().start().line,
                });
            }
        }
    }
}

impl<'ast> Visit<'ast> for Items {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attrs = match item {
            syn::Item::Mod(i) => &i.attrs,
            syn::Item::Fn(i) => &i.attrs,
            syn::Item::Impl(i) => &i.attrs,
            syn::Item::Use(i) => &i.attrs,
            syn::Item::Struct(i) => &i.attrs,
            syn::Item::Enum(i) => &i.attrs,
            syn::Item::Const(i) => &i.attrs,
            syn::Item::Static(i) => &i.attrs,
            syn::Item::Type(i) => &i.attrs,
            syn::Item::Trait(i) => &i.attrs,
            syn::Item::Macro(i) => &i.attrs,
            _ => &Vec::new(),
        };
        self.note(attrs, item);
        if let syn::Item::Impl(i) = item
            && let Some((_, of, _)) = &i.trait_
            && of.segments.last().is_some_and(|s| s.ident == "Debug")
        {
            self.debug_lines
                .push(item.span().start().line..=item.span().end().line);
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
        self.note(&f.attrs, f);
        visit::visit_impl_item_fn(self, f);
    }

    fn visit_expr_match(&mut self, found: &'ast syn::ExprMatch) {
        let arm = others::arm_for_others(found);
        self.others.extend(arm.map(|arm| arm.start().line));
        visit::visit_expr_match(self, found);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &[]);
    }
}

/// `#[test]`, `#[cfg(test)]` and `#[cfg(all(test, ...))]`; `any` and `not` leave the item in other builds
/// too.
fn only_in_tests(attr: &syn::Attribute) -> bool {
    if attr.path().is_ident("test") {
        return true;
    }
    let syn::Meta::List(list) = &attr.meta else {
        return false;
    };
    if !list.path.is_ident("cfg") {
        return false;
    }
    let mut tokens = Vec::new();
    flatten(list.tokens.clone(), &mut tokens);
    let has = |word: &str| tokens.iter().any(|t| t.ident && t.text == word);
    has("test") && !has("any") && !has("not")
}
