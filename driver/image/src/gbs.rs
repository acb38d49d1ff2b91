//! Intel's GBS files: what an image is for, and the bitstream.
//!
//! Source: OPAE, `libbitstream`.

use serde_json::Value;
use uuid::Uuid;

use crate::error::Result;
use crate::reader::Reader;
use crate::signed::is_signed;

/// What a file with a description begins with: the GUID `58656f6e-4650-4741-b747-425376303031`, as its bytes are written.
pub const MAGIC: [u8; 16] = *b"XeonFPGA\xb7GBSv001";
/// What a file without one begins with, and `magic-no` in a description.
pub const MAGIC_NUMBER: u32 = 0x1d1f_8680;
/// Most bytes of a description.
const DESCRIPTION_MAX: u32 = 1 << 20;
/// Versions of the description that mean the same.
const VERSIONS: [u64; 3] = [1, 640, 650];

/// An accelerator of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accelerator {
    /// Its name.
    pub name: String,
    /// GUID in its feature list.
    pub guid: Uuid,
    /// How many contexts it has.
    pub contexts: u64,
}

/// A file.
#[derive(Debug, Clone, PartialEq)]
pub struct Gbs<'a> {
    /// The interface of the shell that the image is made for.
    pub interface: Option<Uuid>,
    /// The platform that the image is made for, where it is named.
    pub platform: Option<String>,
    /// What the image holds.
    pub accelerators: Vec<Accelerator>,
    /// Frequencies of its clock in MHz: high, low.
    pub clock_mhz: [Option<f64>; 2],
    /// Power in W.
    pub power_w: Option<f64>,
    /// What goes to the card.
    pub bitstream: &'a [u8],
    /// Whether the bitstream has a signature, which the card checks.
    pub is_signed: bool,
}

impl<'a> Gbs<'a> {
    /// Takes a file apart.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid), with the place in the file.
    pub fn parse(file: &'a [u8]) -> Result<Self> {
        let file = Reader::new("GBS", file);
        if file.bytes().starts_with(&MAGIC) {
            return with_description(file);
        }
        if file.u32(0, "the header")? != MAGIC_NUMBER {
            return Err(file.error(0, "it does not begin as GBS files do"));
        }
        // The id of the interface is written backwards.
        let mut id: [u8; 16] = file.array(4, "the id of the interface")?;
        id.reverse();
        finish(
            file,
            20,
            Gbs {
                interface: Some(Uuid::from_bytes(id)),
                platform: None,
                accelerators: Vec::new(),
                clock_mhz: [None; 2],
                power_w: None,
                bitstream: &[],
                is_signed: false,
            },
        )
    }
}

/// Adds the bitstream, which begins at `offset`.
fn finish<'a>(file: Reader<'a>, offset: u64, gbs: Gbs<'a>) -> Result<Gbs<'a>> {
    let bitstream = &file.bytes()[offset as usize..];
    if bitstream.is_empty() {
        return Err(file.error(offset, "there is no bitstream"));
    }
    Ok(Gbs { bitstream, is_signed: is_signed(bitstream), ..gbs })
}

fn with_description(file: Reader<'_>) -> Result<Gbs<'_>> {
    const TEXT: u64 = 20;
    let bytes = file.u32(16, "the description's length")?;
    if bytes > DESCRIPTION_MAX {
        return Err(file.error(16, format!("the description has {bytes} bytes, more than {DESCRIPTION_MAX}")));
    }
    let text = file.slice(TEXT, bytes.into(), "the description")?;
    // Some tools end it with NUL characters.
    let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let description: Value =
        serde_json::from_slice(&text[..end]).map_err(|error| file.error(TEXT, format!("the description: {error}")))?;
    let described = Description { file, at: TEXT };
    let image = described.object(&description, "afu-image")?;
    described.check_version(&description)?;
    match image.get("magic-no").and_then(Value::as_u64) {
        Some(magic) if magic == u64::from(MAGIC_NUMBER) => {}
        Some(magic) => return Err(file.error(TEXT, format!("\"magic-no\" is {magic}; expected {MAGIC_NUMBER}"))),
        None => return Err(file.error(TEXT, "the description has no number \"magic-no\"")),
    }
    let clusters = match image.get("accelerator-clusters") {
        None => &[][..],
        Some(Value::Array(clusters)) => clusters,
        Some(_) => return Err(file.error(TEXT, "\"accelerator-clusters\" is no list")),
    };
    let gbs = Gbs {
        interface: described.uuid(image, "interface-uuid")?,
        platform: described.text(&description, "platform-name")?,
        accelerators: clusters.iter().map(|cluster| described.accelerator(cluster)).collect::<Result<_>>()?,
        clock_mhz: [described.number(image, "clock-frequency-high")?, described.number(image, "clock-frequency-low")?],
        power_w: described.number(image, "power")?,
        bitstream: &[],
        is_signed: false,
    };
    finish(file, TEXT + u64::from(bytes), gbs)
}

/// The description of a file.
#[derive(Clone, Copy)]
struct Description<'a> {
    file: Reader<'a>,
    at: u64,
}

impl Description<'_> {
    fn error(&self, what: String) -> crate::error::Error {
        self.file.error(self.at, what)
    }

    fn object<'v>(&self, of: &'v Value, key: &str) -> Result<&'v Value> {
        let found = of.get(key).filter(|value| value.is_object());
        found.ok_or_else(|| self.error(format!("the description has no object {key:?}")))
    }

    fn check_version(&self, description: &Value) -> Result<()> {
        match description.get("version") {
            None => Ok(()),
            Some(version) if version.as_u64().is_some_and(|version| VERSIONS.contains(&version)) => Ok(()),
            Some(version) => {
                Err(self.error(format!("the description is of version {version}; 1, 640 and 650 are known")))
            }
        }
    }

    fn text(&self, of: &Value, key: &str) -> Result<Option<String>> {
        match of.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if text.chars().any(char::is_control) => {
                Err(self.error(format!("{key:?} has control characters")))
            }
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.error(format!("{key:?} is {other}; expected a text"))),
        }
    }

    fn number(&self, of: &Value, key: &str) -> Result<Option<f64>> {
        match of.get(key) {
            None => Ok(None),
            // Tools write "auto" for what they have not set.
            Some(Value::String(text)) if text.starts_with("auto") => Ok(None),
            Some(value) => match value.as_f64().filter(|number| *number >= 0.0) {
                Some(number) => Ok(Some(number)),
                None => Err(self.error(format!("{key:?} is {value}; expected a number"))),
            },
        }
    }

    fn uuid(&self, of: &Value, key: &str) -> Result<Option<Uuid>> {
        let Some(text) = self.text(of, key)? else { return Ok(None) };
        Uuid::try_parse(&text).map(Some).map_err(|_| self.error(format!("{key:?} is {text:?}; expected a UUID")))
    }

    fn accelerator(&self, of: &Value) -> Result<Accelerator> {
        let missing = |key: &str| self.error(format!("an accelerator has no {key:?}"));
        Ok(Accelerator {
            name: self.text(of, "name")?.ok_or_else(|| missing("name"))?,
            guid: self.uuid(of, "accelerator-type-uuid")?.ok_or_else(|| missing("accelerator-type-uuid"))?,
            contexts: match of.get("total-contexts") {
                None => 1,
                Some(count) => count
                    .as_u64()
                    .ok_or_else(|| self.error(format!("\"total-contexts\" is {count}; expected a number")))?,
            },
        })
    }
}
