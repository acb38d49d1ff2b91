//! `fpgactl image recover`: completes a load that was killed, or undoes it.

use fpga_select::Selector;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{Cli, ImageRecover};
use crate::exit::{Exit, Failure, Result};
use crate::image::card::ImageCard;
use crate::image::kept::Kept;
use crate::image::load::{INTERRUPTED_LOADED, LOADED_BUT, check_before, load_kept, note_loaded, undo, unmask};
use crate::image::upstream::{Upstream, restore_noted};
use crate::interrupt::{self, Interrupt};
use crate::{functions, output};

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
enum Done {
    /// No load was killed.
    Nothing,
    /// The new image is loaded.
    Completed,
    /// The image before is loaded.
    Undone,
}

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    kind: &'static str,
    done: Done,
    /// What is loaded now; null if nothing was done.
    image: Option<String>,
    /// The port whose masks the killed load had not restored; null if there is none.
    unmasked: Option<String>,
}

pub(crate) fn run(cli: &Cli, arguments: &ImageRecover) -> Result<()> {
    let interrupt = Interrupt::listen_until_restored()?;
    let selector = Selector::parse(&arguments.card)?;
    let Some(kept) = Kept::of(&selector, &arguments.state)? else {
        return Err(Failure::usage(format!(
            "{} has nothing to recover: mock cards end with their command",
            arguments.card
        )));
    };
    let sysfs = functions::sysfs(cli);
    // Whatever becomes of the masks, the image comes first.
    let noted = restore_noted(&sysfs, &kept);
    let card = match kept.pending()? {
        Some(_) => Some(ImageCard::open(&selector)?),
        None => None,
    };
    // Another load of the card may have ended before this command had opened the card.
    let (done, image) = match (card, kept.pending()?) {
        (Some(mut card), Some(data)) => {
            let upstream = match &noted {
                Ok(left) => Upstream::mask(&sysfs, &selector, left.as_ref().map(|left| left.port), &kept)?,
                Err(_) => None,
            };
            let completed = check_before(&interrupt).and_then(|()| complete(&mut card, &kept, &data, &interrupt));
            unmask(upstream, completed)?
        }
        _ => (Done::Nothing, None),
    };
    let noted = noted.map_err(|failure| match done {
        Done::Nothing => failure,
        Done::Completed => failure.about(LOADED_BUT),
        Done::Undone => failure.about("the image before is loaded, but"),
    })?;
    let unmasked = noted.filter(|left| left.is_restored).map(|left| left.port.to_string());
    let (schema, kind) = ("fpgactl.image-recover/1", selector.kind().name());
    let printed = Printed { schema, selector: &arguments.card, kind, done, image, unmasked };
    let interrupted = match done {
        Done::Nothing => interrupt::PLAIN,
        Done::Completed => INTERRUPTED_LOADED,
        Done::Undone => "interrupted; the image before is loaded",
    };
    interrupt::ending_at_once_with(interrupted, || output::print(cli.json, &printed, || text(&printed)))
}

fn text(printed: &Printed<'_>) -> String {
    let image = printed.image.as_deref().unwrap_or_default();
    let done = match printed.done {
        Done::Nothing => "no load was killed".to_owned(),
        Done::Completed => format!("completed: {image}"),
        Done::Undone => format!("undone: {image}"),
    };
    let masks = printed.unmasked.as_ref().map_or_else(String::new, |port| format!("; masks of port {port} restored"));
    format!("{}: {done}{masks}\n", printed.selector)
}

/// Loads the new image, or else the one before.
fn complete(card: &mut ImageCard, kept: &Kept, data: &[u8], interrupt: &Interrupt) -> Result<(Done, Option<String>)> {
    let failure = match load_kept(card, kept, data, "loading", interrupt) {
        Ok(image) => {
            note_loaded(kept)?;
            return Ok((Done::Completed, Some(image)));
        }
        Err(failure) => failure,
    };
    match undo(card, kept, failure) {
        (failure, Some(image)) if failure.exit() != Exit::Interrupted => Ok((Done::Undone, Some(image))),
        (failure, _) => Err(failure),
    }
}
