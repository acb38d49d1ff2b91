//! One instruction, which the switches of the network compute: one draft for each form that they have.

use super::direct;
use super::draft::Draft;
use crate::Capabilities;
use crate::instruction::Form;
use crate::refusal::Refusal;
use crate::request::{Collective, Request};
use crate::switch::{self, BLOCK_BYTES_MAX};

/// What a collective is to switches.
fn in_switch(collective: Collective) -> Option<switch::Collective> {
    switch::Collective::ALL.iter().copied().find(|one| one.name() == collective.name())
}

/// Whether switches may compute `collective`.
pub(super) fn has(collective: Collective) -> bool {
    in_switch(collective).is_some()
}

/// The programs of `request` in every form that the switches have for it.
pub(super) fn build(request: &Request, capabilities: &Capabilities) -> Result<Vec<Draft>, Refusal> {
    let refuse = |cause: String| Err(Refusal::general(cause));
    let Some(units) = capabilities.switch else {
        return refuse("switch needs a network whose switches compute; the switches of these cards only route".into());
    };
    let (ranks, bytes) = (request.ranks(), request.bytes);
    let Some(collective) = in_switch(request.collective) else {
        let known: Vec<&str> = switch::Collective::ALL.iter().map(|one| one.name()).collect();
        let known = known.join(", ");
        return refuse(format!("the switches do not compute {} (available: {known})", request.collective));
    };
    if let Some(combine) = request.combine.filter(|combine| !units.combines(*combine)) {
        return refuse(format!("the units of the switches do not support {combine} elements"));
    }
    if !(1..=u64::from(BLOCK_BYTES_MAX)).contains(&bytes) || ranks < 2 {
        return refuse(format!(
            "the switches compute for at least two ranks, in blocks of 1 to {BLOCK_BYTES_MAX} B: found {ranks} ranks, {bytes} B"
        ));
    }
    let may_be = |form: &&Form| units.has(collective, **form) && (**form != Form::Ring || ranks.is_power_of_two());
    let draft = |form: &Form| {
        let mut draft = direct::build(request, capabilities)?.finish(request, capabilities)?;
        draft
            .programs
            .iter_mut()
            .flat_map(|program| &mut program.instructions)
            .for_each(|one| one.flags |= form.flag());
        Ok(draft)
    };
    let drafts: Vec<Draft> = Form::ALL.iter().filter(may_be).map(draft).collect::<Result<_, Refusal>>()?;
    if drafts.is_empty() {
        return refuse(format!("the switches have no form of {} for {ranks} ranks", request.collective));
    }
    Ok(drafts)
}
