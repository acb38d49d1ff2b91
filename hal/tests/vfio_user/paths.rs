//! Paths that a server's socket may have.

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::Path;

use fpga_hal::vfio_user::Server;

use crate::card::{self, Card};
use crate::raw::Raw;
use crate::setting::Directory;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Serves at `path`, and connects; or returns why the path is refused.
fn serve(path: &Path) -> Result<(), String> {
    let refused = |error: fpga_hal::Error| std::error::Error::source(&error).expect("a cause").to_string();
    let _serving = Server::bind(path, Card::new()).and_then(Server::spawn).map_err(refused)?;
    assert_eq!(Raw::open(path).read_u32(0, card::ID), card::ID_VALUE);
    Ok(())
}

#[test]
fn nobody_else_can_replace_a_component_of_the_path() {
    let directory = Directory::new();
    let (outer, inner) = (directory.0.join("outer"), directory.0.join("outer/inner"));
    fs::create_dir_all(&inner).unwrap();
    set_mode(&inner, 0o700);
    let path = inner.join("card");
    for (mode, is_fine) in
        [(0o755, true), (0o775, false), (0o757, false), (0o777, false), (0o1777, true), (0o700, true)]
    {
        set_mode(&outer, mode);
        match serve(&path) {
            Ok(()) => assert!(is_fine, "{mode:o}"),
            Err(why) => assert!(!is_fine && why.contains("outer (mode"), "{mode:o}: {why}"),
        }
    }
    // Nor a component of the target of a symbolic link.
    let link = directory.0.join("link");
    symlink("outer/../outer/inner", &link).unwrap();
    assert_eq!(serve(&link.join("card")), Ok(()));
    set_mode(&outer, 0o777);
    assert!(serve(&link.join("card")).unwrap_err().contains("outer (mode"));
    set_mode(&outer, 0o755);
    let round = directory.0.join("round");
    symlink("round", &round).unwrap();
    assert!(serve(&round.join("card")).is_err());
    fs::write(outer.join("file"), "").unwrap();
    assert!(serve(&outer.join("file/card")).is_err());
}

#[test]
fn a_symbolic_link_of_another_user_is_not_followed() {
    let directory = Directory::new();
    let (cards, link) = (directory.0.join("cards"), directory.0.join("link"));
    fs::create_dir(&cards).unwrap();
    set_mode(&cards, 0o700);
    symlink(&cards, &link).unwrap();
    assert_eq!(serve(&link.join("card")), Ok(()));
    // Only root can create another user's link. Otherwise a link of the system is used.
    match lchown(&link, Some(65534), None) {
        Ok(()) => {
            let why = serve(&link.join("card")).unwrap_err();
            assert!(why.contains("link is a symbolic link of user 65534"), "{why}");
            // Nor may the path have another user's directory.
            fs::remove_file(&link).unwrap();
            std::os::unix::fs::chown(&cards, Some(65534), None).unwrap();
            assert!(serve(&cards.join("card")).unwrap_err().contains("cards belongs to user 65534"));
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
}

#[test]
#[ignore = "run by the test below, in a directory of its own"]
fn a_server_in_this_directory() {
    serve(Path::new("card")).unwrap();
    let server = Server::bind("./card", Card::new()).unwrap();
    let absolute = std::env::current_dir().unwrap().join("card");
    assert_eq!(server.path(), absolute);
    // As `fpgactl list` finds it.
    let bound = || fs::read_to_string("/proc/net/unix").unwrap();
    assert!(bound().lines().any(|line| line.ends_with(absolute.to_str().unwrap())), "{}", bound());
    drop(server);

    // An absolute path that no socket address holds.
    let deep = ["d"; 8].map(|letter| letter.repeat(16)).join("/");
    fs::create_dir_all(&deep).unwrap();
    std::env::set_current_dir(&deep).unwrap();
    serve(Path::new("card")).unwrap();
    assert!(!Path::new("card").exists());
    assert!(Server::bind(std::env::current_dir().unwrap().join("card"), Card::new()).is_err());
    std::env::set_current_dir(absolute.parent().unwrap()).unwrap();
    fs::remove_dir_all(deep.split('/').next().unwrap()).unwrap();
}

#[test]
fn a_path_may_be_a_file_name() {
    let directory = Directory::new();
    let test = ["--exact", "paths::a_server_in_this_directory", "--ignored"];
    let test =
        std::process::Command::new(std::env::current_exe().unwrap()).args(test).current_dir(&directory.0).output();
    let output = test.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 0);
}
