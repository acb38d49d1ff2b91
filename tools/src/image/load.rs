//! `fpgactl image load`: loads an accelerator by partial reconfiguration.

use std::path::Path;
use std::time::Instant;

use cmdseq::text::printable;
use fpga_select::{Kind, Selector};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::{Cli, ImageLoad};
use crate::exit::{Exit, Failure, Result};
use crate::image::card::{ImageCard, UNCHANGED};
use crate::image::kept::Kept;
use crate::image::upstream::{PortAbove, Upstream};
use crate::image::{parse, read};
use crate::interrupt::{self, Interrupt};
use crate::{cards, functions, output, size};

/// What a card holds after a load that failed.
const NOTHING: &str = "no accelerator is loaded";
/// The message of a signal after a load.
pub(super) const INTERRUPTED_LOADED: &str = "interrupted; the image is loaded";
/// What is said before the failure of what follows a load.
pub(super) const LOADED_BUT: &str = "the image is loaded, but";
/// What helps while the journal is kept.
const RECOVER: &str = "use `fpgactl image recover`";

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed<'a> {
    schema: &'static str,
    selector: &'a str,
    kind: &'static str,
    file: String,
    format: &'static str,
    interface: String,
    accelerators: Vec<String>,
    bytes: u64,
    seconds: f64,
    /// The port above the card; null if there is none, or it reports no errors.
    upstream: Option<PortAbove>,
}

pub(crate) fn run(cli: &Cli, arguments: &ImageLoad) -> Result<()> {
    let interrupt = Interrupt::listen_until_restored()?;
    let data = read(&arguments.file)?;
    check_before(&interrupt)?;
    let image = parse(&arguments.file, &data)?;
    let selector = Selector::parse(&arguments.card)?;
    let mut card = ImageCard::open(&selector)?;
    check_before(&interrupt)?;
    let bitstream = card.checked(&arguments.file, &image, arguments.unchecked)?;
    let kept = Kept::of(&selector, &arguments.state)?;
    let mut upstream = None;
    if let Some(kept) = &kept {
        let note = |text: &str| {
            if !cli.json {
                eprintln!("note: {text}");
            }
        };
        if kept.pending()?.is_some() {
            note("an earlier load of this card was killed; this one replaces it");
        }
        if kept.good()?.is_none() {
            note("no earlier image of this card is kept: if this load fails, the card is left without an accelerator");
        }
        upstream = Upstream::mask(&functions::sysfs(cli), &selector, arguments.port, kept)?;
        if let Some(reason) = upstream.as_ref().and_then(Upstream::refusal) {
            note(&reason);
        }
        let begun = kept.begin(&data);
        let begun = begun.and_then(|()| check_before(&interrupt).map_err(|failure| told(failure, kept.not_begun())));
        if let Err(failure) = begun {
            return unmask(upstream, Err(failure));
        }
    }
    let port = upstream.as_ref().map(Upstream::printed);
    let began = Instant::now();
    let loaded = card.load(bitstream, "loading", &interrupt).and_then(|()| card.check_loaded(&image));
    let seconds = began.elapsed().as_secs_f64();
    let loaded = match loaded {
        Ok(()) => kept.as_ref().map_or(Ok(()), note_loaded),
        Err(failure) => Err(roll_back(&mut card, kept.as_ref(), failure)),
    };
    unmask(upstream, loaded)?;
    let printed = Printed {
        schema: "fpgactl.image-load/1",
        selector: &arguments.card,
        kind: selector.kind().name(),
        file: arguments.file.display().to_string(),
        format: image.format().name(),
        interface: card.interface().to_string(),
        accelerators: card.brought(&image)?,
        bytes: bitstream.len() as u64,
        seconds,
        upstream: port,
    };
    let lines = || text(&printed, selector.kind());
    interrupt::ending_at_once_with(INTERRUPTED_LOADED, || output::print(cli.json, &printed, lines))
}

/// Fails after a signal that came before the load was started.
pub(super) fn check_before(interrupt: &Interrupt) -> Result<()> {
    interrupt.check().map_err(|_| Failure::new(Exit::Interrupted, format!("interrupted before the load; {UNCHANGED}")))
}

/// Notes that the image is loaded. A failure says that it is, and does not end the command as a missing file would.
pub(super) fn note_loaded(kept: &Kept) -> Result<()> {
    kept.succeeded().map_err(|failure| Failure::new(Exit::Failed, failure.message()).about(LOADED_BUT))
}

/// Restores the masks of the port above, however the load has ended.
pub(super) fn unmask<T>(upstream: Option<Upstream<'_>>, loaded: Result<T>) -> Result<T> {
    match (loaded, upstream.map_or(Ok(()), Upstream::restore)) {
        (loaded, Ok(())) => loaded,
        (Ok(_), Err(failure)) => Err(failure.about(LOADED_BUT)),
        (Err(failure), Err(also)) => Err(failure.with_help(also.message())),
    }
}

/// Loads the image that was there before. Returns the failure, with what the card holds now.
fn roll_back(card: &mut ImageCard, kept: Option<&Kept>, failure: Failure) -> Failure {
    if !card.is_changed() {
        // A file that is refused has no part in what the card does.
        let is_refused = failure.exit() == Exit::Refused;
        let failure = if is_refused { failure } else { failure.with_help(&card.unchanged()) };
        return told(failure, kept.map_or(Ok(()), Kept::not_begun));
    }
    match kept {
        Some(kept) => undo(card, kept, failure).0,
        None => failure.with_help(NOTHING),
    }
}

/// Loads the last image that was loaded before, to its end. Returns the failure, with what the card holds now, and the image's name if
/// it is loaded. The journal is kept as long as trying again may help.
pub(super) fn undo(card: &mut ImageCard, kept: &Kept, failure: Failure) -> (Failure, Option<String>) {
    let good = kept.good();
    let before = good.and_then(|good| {
        good.map(|data| load_kept(card, kept, &data, "rolling back", &Interrupt::default())).transpose()
    });
    let holds = if card.is_changed() { NOTHING } else { UNCHANGED };
    match before {
        Ok(Some(before)) => match kept.gave_up() {
            Ok(()) => (failure.with_help(&format!("rolled back to {before}")), Some(before)),
            Err(also) => (failure.with_help(&format!("rolled back to {before}, but {}", also.message())), None),
        },
        Ok(None) => match failure.exit() {
            // It says itself that nothing is loaded.
            Exit::Interrupted => (failure.with_help(&format!("{RECOVER} to load the image")), None),
            // An image that recovering has found, and that was refused. A load that was killed before it may be left.
            Exit::Refused => (told(failure.with_help(UNCHANGED), kept.not_begun()), None),
            // The card did not let a load begin.
            _ if !card.is_changed() => (failure.with_help(&format!("{UNCHANGED}; {RECOVER} to try again")), None),
            // It would fail again.
            _ => (told(failure.with_help(NOTHING), kept.gave_up()), None),
        },
        // Both were refused before anything was started: the card is not the one that they were kept for.
        Err(also) if failure.exit() == Exit::Refused && also.exit() == Exit::Refused => {
            let folder = printable(&kept.folder().to_string_lossy());
            let help = format!("{}; {UNCHANGED}: if the images are another card's, delete {folder}", also.message());
            (failure.with_help(&help), None)
        }
        Err(also) => {
            let help = format!("rolling back failed, {holds}: {}; {RECOVER} to try again", also.message());
            (failure.with_help(&help), None)
        }
    }
}

/// Adds to a failure that the journal cannot be changed.
fn told(failure: Failure, journal: Result<()>) -> Failure {
    match journal {
        Ok(()) => failure,
        Err(also) => failure.with_help(also.message()),
    }
}

/// Loads a kept image, and returns its name. Whether it is for the card was checked, or waived, before it was kept.
pub(super) fn load_kept(
    card: &mut ImageCard,
    kept: &Kept,
    data: &[u8],
    what: &'static str,
    interrupt: &Interrupt,
) -> Result<String> {
    let path = kept.folder();
    let image = parse(path, data)?;
    let bitstream = card.checked(path, &image, true)?;
    card.load(bitstream, what, interrupt)?;
    card.check_loaded(&image)?;
    Ok(named(path, &card.brought(&image)?))
}

/// Names an image by what it has brought, or by where it is.
fn named(path: &Path, accelerators: &[String]) -> String {
    match accelerators {
        [] => format!("the image kept in {}", printable(&path.to_string_lossy())),
        all => format!("accelerator {}", all.join(", ")),
    }
}

fn text(printed: &Printed<'_>, kind: Kind) -> String {
    let Printed { selector, bytes, seconds, accelerators, .. } = printed;
    let holds = match accelerators.as_slice() {
        [] => String::new(),
        all => format!(", accelerator {}", all.join(", ")),
    };
    let note = if kind == Kind::Mock { cards::MOCK_CARDS_NOTE } else { "" };
    format!("{selector}: loaded {} in {seconds:.2} s{holds}\n{note}", size::show(*bytes))
}
