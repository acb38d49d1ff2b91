//! 3-D FFTs: arrays of files, and what is refused.

use std::fs;

use crate::{json, run};

/// A .npy file of 16 x 16 x 16 complex64: one at a point, zero elsewhere.
fn impulse(at: usize) -> Vec<u8> {
    array(|point| [if point == at { 1.0 } else { 0.0 }, 0.0])
}

/// A .npy file of 16 x 16 x 16 complex64, by index.
fn array(point: impl Fn(usize) -> [f32; 2]) -> Vec<u8> {
    let mut header = "{'descr': '<c8', 'fortran_order': False, 'shape': (16, 16, 16), }".to_owned();
    header += &" ".repeat(117 - header.len());
    let data = (0..4096).flat_map(point).flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
    [b"\x93NUMPY\x01\x00\x76\x00", header.as_bytes(), b"\n", &data].concat()
}

#[test]
fn an_impulse_is_a_wave() {
    let directory = tempfile::tempdir().unwrap();
    let [input, output] = ["x.npy", "y.npy"].map(|name| directory.path().join(name).to_str().unwrap().to_owned());
    // The point (x, y, z) = (1, 2, 0).
    fs::write(&input, impulse(1 + 16 * 2)).unwrap();
    let arguments = ["fft3d", "--n", "16", "--cards", "mock:novo-g:2x2x2", "--input", &input, "--output", &output];
    let printed = json(&arguments);
    assert_eq!(
        (&printed["verified"], &printed["points"], &printed["input"]),
        (&true.into(), &16.into(), &(*input).into())
    );
    for turn in printed["turns"].as_array().unwrap() {
        assert_eq!(turn["seen"], turn["expected"]);
    }
    let file = fs::read(&output).unwrap();
    let data = &file[file.len() - 8 * 4096..];
    let part = |at: usize| f64::from(f32::from_le_bytes(data[4 * at..][..4].try_into().unwrap()));
    for at in 0..4096 {
        let (x, y) = (at % 16, at / 16 % 16);
        let (sin, cos) = (-std::f64::consts::TAU * (x + 2 * y) as f64 / 16.0).sin_cos();
        let (re, im) = (part(2 * at), part(2 * at + 1));
        assert!((re - cos).abs() < 1e-5 && (im - sin).abs() < 1e-5, "{at}: {re}, {im}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.npy");
    let path = file.to_str().unwrap();
    let fails = |arguments: &[&str], code: i32, message: &str| {
        let output = run(&[&["fft3d"], arguments].concat());
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{printed}");
        assert!(printed.contains(message), "{printed}");
    };
    fails(&["--n", "48"], 7, "no core transforms lines of this length (these fit: 16, 32, 64, 128)");
    fails(
        &["--n", "16", "--cards", "mock:novo-g:8x8x8"],
        7,
        "fewer lines in a direction than there are cards (these fit: 32, 64, 128)",
    );
    for part in ["the corner turns of 128 points need buffers of ", ", the cards' hold 8192 (these fit: 16, 32, 64)"] {
        fails(&["--n", "128", "--cards", "mock:novo-g:2x2x2"], 7, part);
    }
    fails(&["--cards", "mock:novo-g:4x4x2"], 7, "expected three equal sides of 2, 4, 8 or 16 cards");
    fails(&["--n", "128", "--cores", "32"], 7, "expected 1 to 31");
    fails(&["--input", "/nowhere/x.npy"], 4, "/nowhere/x.npy");
    fails(&["--cards", "mock:optweb:4"], 1, "mock:optweb:4/0 has no statically scheduled router");
    fails(&["--cards", "mock:novo-g:4x4x4/5"], 4, "card 0 is missing (expected all 64 cards");
    fails(&["--cards", "mock:novo-g:4x4"], 2, "such as 4x4x4, with 2 to 512 cards): 4x4x1 would fit");
    fails(&["--cards", "mock:optweb:4+drop=0-1@0"], 2, "+drop has no effect on these cards");
    fails(&["--cards", "mock:novo-g:4x4x4+drop=0-2@0"], 4, "no link between cards 0 and 2");
    fails(&["--input", path, "--seed", "1"], 2, "--seed has no effect");
    fs::write(&file, impulse(0)).unwrap();
    fails(&["--input", path], 7, "an array of shape [16, 16, 16] (expected [64, 64, 64])");
    fails(&["--n", "16", "--input", path, "--output", path], 7, "is also an input");
    for (length, found) in [(1000, "1000 B"), (32895, "32895 B"), (32897, "32897 B")] {
        let mut bytes = impulse(0);
        bytes.resize(length, 0);
        fs::write(&file, bytes).unwrap();
        let why = format!("header and 16 x 16 x 16 points have 32896 B, the file has {found}");
        fails(&["--n", "16", "--input", path], 7, &why);
    }
    for (bad, found) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        // The point (x, y, z) = (5, 4, 3), and one after it.
        fs::write(&file, array(|at| if at == 5 + 16 * (4 + 16 * 3) || at == 4000 { [bad, -2.0] } else { [1.0; 2] }))
            .unwrap();
        fails(
            &["--n", "16", "--input", path],
            7,
            &format!("the point (5, 4, 3) has the parts {found} and -2 (expected"),
        );
    }
    fs::write(&file, "no array").unwrap();
    fails(&["--n", "16", "--input", path], 7, "invalid .npy file");
    let text = String::from_utf8_lossy(&impulse(0)[..128]).replace("<c8", "<f8");
    fs::write(&file, [text.as_bytes(), &[0; 8 * 4096]].concat()).unwrap();
    fails(&["--n", "16", "--input", path], 7, "x.npy");
}

#[test]
fn a_dropped_packet_stalls_the_transform() {
    let stalled = ["fft3d", "--n", "16", "--cards", "mock:novo-g:2x2x2+drop=0-1@5", "--timeout", "2"];
    let output = run(&stalled);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{printed}");
    for part in ["in the YZ corner turn: card 1 got 128 of 129 packets, and lacks 3 points, first (", ") of card 0 "] {
        assert!(printed.contains(part), "{printed}");
    }
    // A link that carries no more packets than that loses none.
    json(&["fft3d", "--n", "16", "--cards", "mock:novo-g:2x2x2+drop=0-1@100000"]);
}

/// Inputs that single precision has, with a transform that it does not have.
#[test]
fn a_result_that_is_not_finite_is_not_verified() {
    let directory = tempfile::tempdir().unwrap();
    let [input, output] = ["x.npy", "y.npy"].map(|name| directory.path().join(name).to_str().unwrap().to_owned());
    fs::write(&input, array(|_| [3e38, 3e38])).unwrap();
    let arguments = ["fft3d", "--n", "16", "--cards", "mock:novo-g:2x2x2", "--input", &input, "--output", &output];
    for more in [&[][..], &["--json"]] {
        let ended = run(&[&arguments[..], more].concat());
        let printed = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(3), "{printed}");
        assert!(ended.stdout.is_empty() && !fs::exists(&output).unwrap(), "{printed}");
        assert!(printed.contains("the point (0, 0, 0) of the result has the parts "), "{printed}");
        assert!(printed.contains("the largest number of single precision is 3.402823e38"), "{printed}");
    }
}

/// Products below the normal numbers lose digits, which the bound regards.
#[test]
fn small_numbers_are_transformed() {
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("x.npy").to_str().unwrap().to_owned();
    for size in [1e-45, 1e-42, 1e-38] {
        fs::write(&input, array(|at| [size * (at * at % 11) as f32, -size * (at % 7) as f32])).unwrap();
        let printed = json(&["fft3d", "--n", "16", "--cards", "mock:novo-g:2x2x2", "--input", &input]);
        assert!(printed["error"].as_f64().unwrap() <= printed["error_bound"].as_f64().unwrap(), "{printed}");
    }
}

/// Only sequencers use the links that these act on.
#[test]
fn options_without_effect_on_routers_are_refused() {
    for option in ["errors=1000", "cut=0-1@0", "flap=0-1@1", "slow=1", "garble=0-1@3"] {
        let cards = format!("mock:novo-g:2x2x2+posted=1+{option}");
        let name = option.split('=').next().unwrap();
        for command in [&["fft3d", "--n", "16"][..], &["route", "show"]] {
            let output = run(&[command, &["--cards", &cards]].concat());
            let printed = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{printed}");
            assert!(printed.contains(&format!("+{name} has no effect on packets of tables")), "{printed}");
        }
    }
    let cards = "mock:novo-g:2x2x2+posted=1";
    json(&["fft3d", "--n", "16", "--cards", cards]);
    json(&["route", "show", "--cards", cards]);
}
