//! Builds every mutant of a file into it, each behind a switch.

use std::collections::{BTreeSet, HashMap};

use proc_macro2::{LineColumn, Span};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Block, Expr, parse_quote};

use crate::list::{Genre, Mutant};

/// The text of `source` with a switch for each of `mutants`, and the ids of the mutants that got one.
pub fn switched(source: &str, mutants: &[&Mutant]) -> Result<(String, BTreeSet<u32>), syn::Error> {
    let mut file = syn::parse_file(source)?;
    let mut at: HashMap<(Genre, usize, usize), Vec<&Mutant>> = HashMap::new();
    for mutant in mutants {
        at.entry((mutant.genre, mutant.span.start.line, mutant.span.start.column)).or_default().push(mutant);
    }
    let mut switches = Switches { at, placed: BTreeSet::new() };
    switches.visit_file_mut(&mut file);
    Ok((prettyplease::unparse(&file), switches.placed))
}

struct Switches<'a> {
    at: HashMap<(Genre, usize, usize), Vec<&'a Mutant>>,
    placed: BTreeSet<u32>,
}

fn on(id: u32) -> Expr {
    parse_quote!(crate::mutants::on(#id))
}

impl<'a> Switches<'a> {
    /// The mutants of a kind that begin at a place; none in the second call for that place.
    fn take(&mut self, genre: Genre, span: Span) -> Vec<&'a Mutant> {
        let LineColumn { line, column } = span.start();
        self.at.remove(&(genre, line, column + 1)).unwrap_or_default()
    }

    fn body(&mut self, signature: &syn::Signature, block: &mut Block) {
        let Some(first) = block.stmts.first() else { return };
        let mutants = self.take(Genre::FnValue, first.span());
        visit_mut::visit_block_mut(self, block);
        // Two returns of a hidden type would have to be of one type.
        let output = &signature.output;
        if quote::quote!(#output).to_string().contains("impl ") {
            return;
        }
        for mutant in mutants {
            let Ok(value) = syn::parse_str::<Expr>(&mutant.replacement) else { continue };
            let on = on(mutant.id);
            block.stmts.insert(0, parse_quote!(if #on { return #value; }));
            self.placed.insert(mutant.id);
        }
    }
}

/// `(if CONDITION { FIRST } else { SECOND })`, from syntax and not from text, which would lose the order of operators.
fn either(condition: Expr, first: Expr, second: Expr) -> Expr {
    let mut chosen: syn::ExprIf = parse_quote!(if #condition {} else {});
    chosen.then_branch.stmts.push(syn::Stmt::Expr(first, None));
    if let Some((_, branch)) = &mut chosen.else_branch
        && let Expr::Block(branch) = &mut **branch
    {
        branch.block.stmts.push(syn::Stmt::Expr(second, None));
    }
    Expr::Paren(syn::ExprParen { attrs: Vec::new(), paren_token: Default::default(), expr: Box::new(Expr::If(chosen)) })
}

/// Whether the expression is part of a chain with `let`, which no `if` can hold as a value.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl VisitMut for Switches<'_> {
    // No switch can stand where the compiler computes.
    fn visit_item_const_mut(&mut self, _: &mut syn::ItemConst) {}
    fn visit_item_static_mut(&mut self, _: &mut syn::ItemStatic) {}
    fn visit_impl_item_const_mut(&mut self, _: &mut syn::ImplItemConst) {}
    fn visit_trait_item_const_mut(&mut self, _: &mut syn::TraitItemConst) {}
    fn visit_expr_const_mut(&mut self, _: &mut syn::ExprConst) {}
    fn visit_variant_mut(&mut self, _: &mut syn::Variant) {}
    fn visit_type_mut(&mut self, _: &mut syn::Type) {}
    fn visit_pat_mut(&mut self, _: &mut syn::Pat) {}
    fn visit_expr_repeat_mut(&mut self, repeat: &mut syn::ExprRepeat) {
        self.visit_expr_mut(&mut repeat.expr);
    }
    fn visit_generic_argument_mut(&mut self, _: &mut syn::GenericArgument) {}

    fn visit_item_fn_mut(&mut self, item: &mut syn::ItemFn) {
        if item.sig.constness.is_none() {
            self.body(&item.sig, &mut item.block);
        }
    }

    fn visit_impl_item_fn_mut(&mut self, item: &mut syn::ImplItemFn) {
        if item.sig.constness.is_none() {
            self.body(&item.sig, &mut item.block);
        }
    }

    fn visit_trait_item_fn_mut(&mut self, item: &mut syn::TraitItemFn) {
        if let Some(block) = &mut item.default {
            self.body(&item.sig, block);
        }
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let before = expr.clone();
        let mutants = match &*expr {
            Expr::Binary(binary) if !has_let(expr) => self.take(Genre::BinaryOperator, binary.op.span()),
            Expr::Unary(unary) => self.take(Genre::UnaryOperator, unary.op.span()),
            _ => Vec::new(),
        };
        visit_mut::visit_expr_mut(self, expr);
        for mutant in mutants {
            let changed = match &before {
                Expr::Binary(binary) => {
                    let Ok(op) = syn::parse_str::<syn::BinOp>(&mutant.replacement) else { continue };
                    Expr::Binary(syn::ExprBinary { op, ..binary.clone() })
                }
                Expr::Unary(unary) => (*unary.expr).clone(),
                _ => continue,
            };
            *expr = either(on(mutant.id), changed, expr.clone());
            self.placed.insert(mutant.id);
        }
    }

    fn visit_arm_mut(&mut self, arm: &mut syn::Arm) {
        let deleted = self.take(Genre::MatchArm, arm.span());
        let guards = match &arm.guard {
            Some((_, guard)) => self.take(Genre::MatchArmGuard, guard.span()),
            None => Vec::new(),
        };
        visit_mut::visit_arm_mut(self, arm);
        for mutant in guards {
            let on = on(mutant.id);
            let Some((_, guard)) = &mut arm.guard else { continue };
            let value = match mutant.replacement.as_str() {
                "true" => parse_quote!(true),
                "false" => parse_quote!(false),
                _ => continue,
            };
            **guard = either(on, value, (**guard).clone());
            self.placed.insert(mutant.id);
        }
        for mutant in deleted {
            let on = on(mutant.id);
            match &mut arm.guard {
                Some((_, guard)) => {
                    **guard = either(on, parse_quote!(false), (**guard).clone());
                }
                None => arm.guard = Some((Default::default(), parse_quote!(!#on))),
            }
            self.placed.insert(mutant.id);
        }
    }

    fn visit_expr_struct_mut(&mut self, expr: &mut syn::ExprStruct) {
        let rest = expr.rest.clone();
        for field in &mut expr.fields {
            let mutants = self.take(Genre::StructField, field.span());
            visit_mut::visit_field_value_mut(self, field);
            let Some(rest) = &rest else { continue };
            for mutant in mutants {
                let (on, value, member) = (on(mutant.id), &field.expr, &field.member);
                field.expr = either(on, parse_quote!((#rest).#member), value.clone());
                field.colon_token = Some(Default::default());
                self.placed.insert(mutant.id);
            }
        }
        if let Some(rest) = &mut expr.rest {
            self.visit_expr_mut(rest);
        }
    }
}
