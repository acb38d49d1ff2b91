//! Generated handles on mock cards: typed words go from the host of one card to that of another.

mod app_channels;

use std::fmt::Debug;
use std::time::Duration;

use app_channels::*;
use fpga_channels::{Part, generate, parse};
use fpga_driver::channel::{Error, Network, Settings};
use fpga_hal::in_process;
use fpga_mock::ChannelCards;
use fpga_mock::circus::{Design, Profile, Torus};
use fpga_tests::run::domain;

/// Longer than anything here takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// For waits that are to time out.
const SHORT: Duration = Duration::from_millis(30);

fn network() -> Network {
    let cards = ChannelCards::new(&Profile::published(), Design::new(Torus::new(4, 2).unwrap())).unwrap();
    let domain = domain();
    let attach = |node| in_process::attach(cards.endpoint(node), &domain, &format!("card {node}")).unwrap();
    let mut network = Network::open((0..cards.nodes()).map(attach)).unwrap();
    network.load().unwrap();
    network
}

/// To write them again, in this folder: `fpgactl channel generate app.xml --only rust --output .`
#[test]
fn the_handles_here_are_those_that_are_generated() {
    let definition = parse(include_bytes!("app.xml")).unwrap();
    let [file] = &generate(&definition, "app", &[Part::Rust], &[]).unwrap()[..] else { panic!("more than a file") };
    assert_eq!(file.name, "app_channels.rs");
    assert_eq!(file.text, include_str!("app_channels.rs"));
}

/// What every pair of handles has; the generated types share no trait.
macro_rules! check {
    ($network:expr, $writer:ty, $reader:ty, $word:ty, $bytes:literal, $words:expr) => {{
        assert_eq!(<$writer>::SETTINGS, <$reader>::SETTINGS);
        assert_eq!(<$writer>::SETTINGS.word_bytes, $bytes);
        let mut reader = <$reader>::open($network, 6).unwrap();
        let mut writer = <$writer>::open($network, 1, 6).unwrap();
        let words: [$word; 2] = $words;

        // A message that goes on has its last word in the next call.
        writer.write_more(&words, PATIENCE).unwrap();
        writer.write(&words, PATIENCE).unwrap();
        writer.flush(PATIENCE).unwrap();
        let mut found = [words[0]; 4];
        reader.read_exact(&mut found, PATIENCE).unwrap();
        assert_eq!(found, [words[0], words[1], words[0], words[1]]);
        assert_eq!(reader.try_read(&mut found).unwrap(), 0);

        assert_eq!(writer.try_write(&words[1..]).unwrap(), 1);
        assert_eq!(reader.read(&mut found, PATIENCE).unwrap(), 1);
        assert_eq!(found[0], words[1]);

        // What arrived before the time was over is in place.
        writer.write(&words, PATIENCE).unwrap();
        found = [words[0]; 4];
        let error = reader.read_exact(&mut found[1..], SHORT).unwrap_err();
        assert!(matches!(error, Error::TimedOut { done, .. } if done == 2 * $bytes), "{error}");
        assert_eq!(found[1..3], words);
        writer.close(PATIENCE).unwrap();
    }};
}

/// Elements that differ, with the bit patterns at the ends of their types.
fn elements<T: Copy + Debug, const N: usize>(first: T, others: T, last: T) -> [T; N] {
    std::array::from_fn(|at| match at {
        0 => first,
        _ if at == N - 1 => last,
        _ => others,
    })
}

#[test]
fn typed_words_reach_the_other_host() {
    let network = &network();
    check!(network, Out0Writer, In0Reader, u8, 1, [0, u8::MAX]);
    check!(network, Out1Writer, In1Reader, [i16; 4], 8, [elements(-1, 7, i16::MIN), elements(2, -3, i16::MAX)]);
    check!(network, Out2Writer, In2Reader, u64, 8, [u64::MAX - 1, 1 << 40]);
    check!(
        network,
        Out3Writer,
        In3Reader,
        [f32; 16],
        64,
        [elements(-1.5, 2.5e-40, f32::MAX), elements(0.1, 7.0, -0.0)]
    );
    check!(
        network,
        Out4Writer,
        In4Reader,
        [f64; 2],
        16,
        [elements(-1.5, 0.0, f64::MIN_POSITIVE), elements(0.1, 0.0, 1e300)]
    );
    let lost = network.losses(6).unwrap();
    assert_eq!((lost.full, lost.no_route, lost.no_channel), (0, 0, 0));
}

#[test]
fn an_end_that_another_handle_has_open_is_refused() {
    let network = network();
    let _reader = In2Reader::open(&network, 6).unwrap();
    assert!(In2Reader::open(&network, 6).is_err());
    assert_eq!(In2Reader::SETTINGS, Settings { id: 2, word_bytes: 8, depth: 16 });
    In2Reader::open(&network, 5).unwrap();
}
