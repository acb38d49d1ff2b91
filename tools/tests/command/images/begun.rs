//! Loads that end before they have begun to write: the card holds what it held, and the error says so.

use fpga_hal::vfio_user::Server;
use fpga_mock::xdma::{Shape, XdmaCards};
use fpga_mock::{Fabric, Profile};

use super::{CARD, OTHER, failed};
use crate::{json, run, stdout};

#[test]
fn a_load_that_does_not_begin_leaves_the_card_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let fabric = Fabric::new(Profile { shell: fpga_mock::Shell::AlveoXdma, ..Profile::optweb(2) }).unwrap();
    let cards = XdmaCards::before(&fabric, Shape::default());
    let _server = Server::bind(path("0.sock"), cards.endpoint(0)).unwrap().spawn().unwrap();
    let (target, state) = (format!("vfio-user:{}", path("0.sock")), path("state"));
    let image = |guid: &str| {
        let file = path(&format!("{guid}.bit"));
        stdout(&["mock", "image", "--output", &file, "--guid", guid, "--bytes", "4KiB"]);
        file
    };
    let (other, card) = (image(OTHER), image(CARD));
    let words = |file| ["image", "load", file, &target, "--unchecked", "--state-dir", &state];
    // Without an image to go back to, and with one.
    for _ in 0..2 {
        cards.icap(0).stick_decoupler(true);
        let (code, text) = failed(&run(&words(&other)));
        assert!(code == 5 && text.contains("cut its region off"), "{code}: {text}");
        assert!(text.ends_with(&format!("; the card was not changed, and holds accelerator {CARD}\n")), "{text}");
        cards.icap(0).stick_decoupler(false);
        let recovered = json(&["image", "recover", &target, "--state-dir", &state]);
        assert_eq!(recovered["done"], "nothing");
        json(&words(&card));
    }
}
