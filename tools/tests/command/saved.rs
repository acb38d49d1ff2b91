//! Plans that are saved, and run from the file.

use crate::{json, run, stdout};

/// A folder, and the names of files in it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// An array of `count` numbers that no other rank has.
    fn array(&self, name: &str, count: i32, rank: i32) -> String {
        use npyz::WriterBuilder as _;
        let path = self.path(name);
        let shape = [count as u64];
        let file = std::fs::File::create(&path).unwrap();
        let mut writer = npyz::WriteOptions::new().default_dtype().shape(&shape).writer(file).begin_nd().unwrap();
        writer.extend((0..count).map(|index| index * 7919 + rank * 104_729)).unwrap();
        writer.finish().unwrap();
        path
    }
}

const CARDS: [&str; 2] = ["--cards", "mock:optweb:4"];

fn of_cards<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, &CARDS].concat()
}

/// `coll --output`, and `plan --save` with `run` of the file, queued and stored, have the same bytes in their files.
#[test]
fn what_is_saved_gives_what_coll_gives() {
    let allgatherv = ["allgatherv", "--counts", "4096,0,64,1KiB", "--dtype", "i32"];
    let allreduce = ["allreduce", "--bytes", "4KiB", "--op", "sum", "--dtype", "i32"];
    let blocks = ["output0", "output1", "output2"];
    for (operation, counts, outputs, ways) in [
        (&allreduce[..], [1024; 4], &["output"][..], &[&[][..], &["--persistent"]][..]),
        // Its blocks lie in several places, and its tables are not stored with a program.
        (&allgatherv[..], [1024, 0, 16, 256], &blocks[..], &[&[][..]][..]),
    ] {
        let folder = Folder::new();
        let inputs: Vec<String> =
            (0..4).zip(counts).map(|(rank, count)| folder.array(&format!("in-{rank}.npy"), count, rank)).collect();
        let (given, out) = (inputs.join(","), folder.path("out.npy"));
        stdout(&of_cards(&[&["coll"], operation, &["--input", &given, "--output", &out]].concat()));
        let saved = folder.path("saved.seqb");
        stdout(&of_cards(&[&["plan"], operation, &["--save", &saved]].concat()));
        for way in ways {
            let mut arguments = vec!["run".to_owned(), saved.clone()];
            for (rank, input) in (0..4).zip(&inputs).filter(|(rank, _)| counts[*rank] > 0) {
                arguments.extend(["--load".to_owned(), format!("input@{rank}={input}")]);
            }
            for name in outputs {
                arguments.extend(["--dump".to_owned(), format!("{name}={}", folder.path(name))]);
            }
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            stdout(&of_cards(&[&arguments, *way].concat()));
            for rank in 0..4 {
                let array = std::fs::File::open(folder.path(&format!("out-{rank}.npy"))).unwrap();
                let expected: Vec<i32> = npyz::NpyFile::new(array).unwrap().into_vec().unwrap();
                let expected: Vec<u8> = expected.into_iter().flat_map(i32::to_le_bytes).collect();
                let part = |name: &&str| std::fs::read(folder.path(&format!("{name}-{rank}"))).unwrap();
                let found: Vec<u8> = outputs.iter().flat_map(part).collect();
                assert!(found == expected, "{} {way:?}: rank {rank}", operation[0]);
            }
        }
    }
}

#[test]
fn a_launch_rings_each_card_once() {
    let folder = Folder::new();
    let saved = folder.path("saved.seqb");
    let plan = ["plan", "allreduce", "--bytes", "64KiB", "--op", "max", "--algorithm", "ring", "--save", &saved];
    stdout(&of_cards(&plan));
    let printed = json(&of_cards(&["run", &saved, "--persistent", "--repeat", "3"]));
    let persistent = &printed["persistent"];
    assert_eq!(printed["completions"].as_array().map(Vec::len), Some(0));
    for (key, count) in [("launches", 3), ("cards", 4), ("doorbells", 12)] {
        assert_eq!(persistent[key], count, "{key}");
    }
    assert!(persistent["instructions"].as_u64().unwrap() > 4, "a ring has several steps on each card");
    assert_eq!(persistent["ranks"].as_array().map(Vec::len), Some(4));
    let text = stdout(&of_cards(&["run", &saved, "--persistent"]));
    assert!(text.contains("\n1 launch, 4 doorbells on 4 cards: "), "{text}");

    // What a loop repeats is stored once.
    let path = folder.path("loop.seq");
    std::fs::write(&path, "ranks 4\nrepeat 1000\n  barrier\nend\n").unwrap();
    let printed = json(&of_cards(&["run", &path, "--persistent"]));
    assert_eq!((&printed["persistent"]["stored"], &printed["persistent"]["instructions"]), (&8.into(), &4004.into()));
    let text = stdout(&of_cards(&["run", &path, "--persistent"]));
    let expected = "\n1 launch, 4 doorbells on 4 cards: 8 instructions stored, 4004 run per launch\n";
    assert!(text.contains(expected), "{text}");

    let vector = folder.path("vector.seqb");
    stdout(&of_cards(&["plan", "gatherv", "--counts", "64,0,64,64", "--save", &vector]));
    let output = run(&of_cards(&["run", &vector, "--persistent"]));
    assert_eq!(output.status.code(), Some(7));
    assert!(String::from_utf8(output.stderr).unwrap().contains("needs tables"));
    assert_eq!(run(&["run", &saved, "--repeat", "3"]).status.code(), Some(2), "without --persistent");
}

/// What a saved plan is, in one piece and in several, is found; and what it is not, refused with the reason.
#[test]
fn only_what_is_expected_is_run() {
    let folder = Folder::new();
    let saved = folder.path("saved.seqb");
    for (plan, expected, wrong) in [
        (
            &["allreduce", "--bytes", "4KiB", "--op", "sum", "--dtype", "f32"][..],
            "allreduce,bytes=4KiB",
            &["allreduce,bytes=4KiB,op=max", "allreduce,bytes=4KiB,dtype=f64", "broadcast,bytes=4KiB"][..],
        ),
        (&["allgather", "--bytes", "64"], "allgather,bytes=64", &["alltoall,bytes=16"]),
        (&["alltoall", "--bytes", "64"], "alltoall,bytes=64", &["allgather,bytes=64"]),
        (&["gatherv", "--counts", "64,0,32,64"], "gatherv,counts=64/0/32/64", &["gatherv,counts=64/0/32/64,root=1"]),
        (&["send", "--bytes", "64"], "send,bytes=64", &["send,bytes=64,root=3,peer=0"]),
        // 0 is a size like any other.
        (&["broadcast", "--bytes", "0"], "broadcast,bytes=0", &["broadcast,bytes=64"]),
        (&["scatterv", "--counts", "0,0,0,0"], "scatterv,counts=0/0/0/0", &["scatterv,counts=0/0/64/0"]),
    ] {
        stdout(&of_cards(&[&["plan"], plan, &["--save", &saved]].concat()));
        stdout(&of_cards(&["run", &saved, "--expect", expected]));
        for other in wrong {
            let output = run(&of_cards(&["run", &saved, "--json", "--expect", other]));
            let error = crate::parsed(&output.stderr);
            assert_eq!((output.status.code(), output.stdout.len()), (Some(7), 0), "{other}: {error}");
            // The programs are another collective, or have no buffers for what it moves.
            let has_no_buffer = error["message"].as_str().unwrap().contains("buffer `");
            assert!(error["reason"] == "expectation" || has_no_buffer, "{other}: {error}");
        }
    }
    let output = run(&of_cards(&["run", &saved, "--json", "--expect", "send,bytes=64,peer=4"]));
    assert_eq!(output.status.code(), Some(7));
    for wrong in [
        "send",
        "allreduce,bytes=64KiB,bytes=32KiB",
        "allreduce,bytes=4KiB,root=3",
        "gatherv,counts=64/0/32/64,bytes=99",
        "barrier,bytes=99,dtype=i8,input=x",
    ] {
        assert_eq!(run(&["run", &saved, "--expect", wrong]).status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn a_text_may_be_expected_without_running_it() {
    let folder = Folder::new();
    let text = folder.path("all.seq");
    let program = "\
buffer mine = card size 4KiB
buffer all = card size 1MiB
allgather source mine, destination all unstriped, bytes 4KiB
";
    std::fs::write(&text, program).unwrap();
    let buffers = "bytes=4KiB,input=mine,output=all";
    let printed = json(&of_cards(&["lint", &text, "--expect", &format!("allgather,{buffers}")]));
    assert_eq!((&printed["expected"], &printed["warnings"]), (&"allgather".into(), &serde_json::json!([])));
    let output = run(&of_cards(&["lint", &text, "--json", "--expect", "alltoall,bytes=1KiB,input=mine,output=all"]));
    let error = crate::parsed(&output.stderr);
    assert_eq!((output.status.code(), &error["reason"]), (Some(7), &"expectation".into()), "{error}");
    // It is verified for the cards there are.
    let output = run(&of_cards(&["lint", &text, "--ranks", "2", "--expect", &format!("allgather,{buffers}")]));
    assert_eq!(output.status.code(), Some(7));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--cards selects 4 cards"));
}

/// Without `--cards`, an expectation is verified for mock cards as all else is, or not at all.
#[test]
fn what_is_expected_needs_no_cards_where_a_mock_fabric_has_as_many() {
    let folder = Folder::new();
    let text = folder.path("all.seq");
    let program = "buffer mine = card size 4KiB\nbuffer all = card size 12KiB\n\
                   allgather source mine, destination all, bytes 4KiB\n";
    std::fs::write(&text, format!("ranks 3\n{program}")).unwrap();
    let expected = "allgather,bytes=4KiB,input=mine,output=all";
    let printed = json(&["lint", &text, "--expect", expected]);
    assert_eq!((&printed["expected"], &printed["verified_for"]), (&"allgather".into(), &"mock:optweb:3".into()));
    let output = run(&["lint", &text, "--json", "--expect", "alltoall,bytes=4KiB,input=all,output=all"]);
    let error = crate::parsed(&output.stderr);
    assert_eq!((output.status.code(), &error["reason"]), (Some(7), &"expectation".into()), "{error}");
    // There is no fabric of one card.
    std::fs::write(&text, format!("ranks 1\n{program}")).unwrap();
    let output = run(&["lint", &text, "--json", "--expect", expected]);
    let error = crate::parsed(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(7), 0), "{error}");
    assert_eq!(error["message"], "--expect: no mock fabric for ranks = 1; select cards with --cards");
}

/// In the order of ranks every algorithm gives the same bits; a sum of f32 in the orders of two algorithms does not.
#[test]
fn sums_in_the_order_of_ranks_are_the_same_whatever_the_way() {
    let sum = |algorithm: &str, order: &str| {
        let folder = Folder::new();
        let out = folder.path("out.npy");
        let coll = ["coll", "allreduce", "--bytes", "4KiB", "--op", "sum", "--dtype", "f32", "--output", &out];
        let cards = ["--cards", "mock:optweb:8", "--algorithm", algorithm, "--order", order];
        let printed = json(&[&coll[..], &cards].concat());
        assert_eq!((&printed["algorithm"], &printed["verified"]), (&algorithm.into(), &true.into()));
        (0..8).map(|rank| std::fs::read(folder.path(&format!("out-{rank}.npy"))).unwrap()).collect::<Vec<_>>()
    };
    let direct = sum("direct", "rank");
    for algorithm in ["multipath", "ring"] {
        assert!(sum(algorithm, "rank") == direct, "{algorithm}");
    }
    assert!(sum("binomial", "any") != direct, "pairs are folded first");
    let refused = run(&[
        "coll",
        "allreduce",
        "--bytes",
        "4KiB",
        "--op",
        "sum",
        "--dtype",
        "f32",
        "--order",
        "rank",
        "--algorithm",
        "binomial",
    ]);
    assert_eq!(refused.status.code(), Some(7));
    assert_eq!(run(&["coll", "allreduce", "--op", "sum", "--order", "card"]).status.code(), Some(2));
}

/// The sequencer's own loop runs where programs are stored, and nowhere else.
#[test]
fn a_loop_of_the_sequencer_runs_in_a_stored_program() {
    let folder = Folder::new();
    let text = folder.path("loop.seq");
    // Each round moves on by a block: three of the four have the pattern, and what lies behind has not.
    let lines = [
        "ranks 2",
        "buffer a = card at 0 size 256",
        "repeat 3 step 64 argument 1",
        "  fill destination a argument 1, bytes 64, extent 0x0101010101010101",
        "end",
        "barrier",
    ];
    std::fs::write(&text, lines.join("\n")).unwrap();
    let refused = run(&["run", &text, "--cards", "mock:optweb:2", "--json"]);
    assert_eq!(refused.status.code(), Some(7));
    let dump = format!("a@1={}", folder.path("a.raw"));
    let printed = json(&["run", &text, "--cards", "mock:optweb:2", "--persistent", "--dump", &dump]);
    assert_eq!(printed["persistent"]["doorbells"], 2, "{printed}");
    let data = std::fs::read(folder.path("a.raw")).unwrap();
    assert_eq!(data, [[1; 192].as_slice(), &[0; 64]].concat());
}

/// What is expected of a resident program is expected of it with its loops unrolled; other collectives are refused.
#[test]
fn stored_programs_with_loops_may_be_expected() {
    let folder = Folder::new();
    let text = folder.path("ring.seq");
    // The second launch finds the input as the first has left it.
    let lines = [
        "ranks 2",
        "buffer input = card at 0 size 192",
        "buffer output = card at 4KiB size 192",
        "repeat 3 step 64 argument 1",
        "  sendrecv peer 1 - rank, root 1 - rank, source input argument 1, destination output argument 1, bytes 64",
        "end",
    ];
    std::fs::write(&text, lines.join("\n")).unwrap();
    let expecting = |it| ["run", &text, "--cards", "mock:optweb:2", "--persistent", "--repeat", "3", "--expect", it];
    stdout(&expecting("sendrecv,bytes=192"));
    stdout(&["lint", &text, "--cards", "mock:optweb:2", "--expect", "sendrecv,bytes=192"]);
    let output = run(&expecting("allreduce,bytes=192"));
    assert_eq!(output.status.code(), Some(7));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("must be the sum of f32 of byte 0"), "{said}");
}

/// It would end well once, and find its communicator gone when it is launched again.
#[test]
fn what_cannot_be_launched_twice_is_not_stored() {
    let folder = Folder::new();
    let text = folder.path("freeing.seq");
    let lines = ["ranks 2", "communicator a = 1 of 0, 1", "barrier communicator a", "free communicator a"];
    std::fs::write(&text, lines.join("\n")).unwrap();
    let command = ["run", &text, "--cards", "mock:optweb:2", "--persistent", "--repeat", "3"];
    let output = run(&command);
    assert_eq!(output.status.code(), Some(7));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("the next launch would begin with different communicators"), "{said}");
    // Not stored, it is run once.
    stdout(&command[..4]);
}

/// Host memory is bound to queued instructions only: it is refused before anything is written, with its line.
#[test]
fn a_stored_program_names_no_host_memory() {
    let folder = Folder::new();
    let text = folder.path("host.seq");
    let refused = |arguments: &[&str]| {
        let output = run(&[arguments, &["--json"]].concat());
        let error = crate::parsed(&output.stderr);
        assert_eq!((output.status.code(), &error["reason"]), (Some(7), &"stored".into()), "{error}");
        assert_eq!((&error["rank"], &error["instruction"]), (&0.into(), &1.into()), "{error}");
        assert_eq!(error["places"][0]["line"], 5, "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("copy: a resident program names no host memory"), "{message}");
    };
    let buffers = "ranks 2\nbuffer h = host size 128\nbuffer x = card size 128\n";
    for (source, destination) in [("h", "x"), ("x", "h")] {
        let copy = format!("copy source {source}, destination {destination}, bytes 64");
        std::fs::write(&text, format!("{buffers}nop\n{copy}\nbarrier\n")).unwrap();
        refused(&["run", &text, "--cards", "mock:optweb:2", "--persistent"]);
        // Not stored, it is right.
        stdout(&["run", &text, "--cards", "mock:optweb:2"]);
        stdout(&["lint", &text]);
    }
    // With a loop, it could only be stored.
    let repeated = "repeat 2 step 64 argument 0\ncopy source h argument 0, destination x argument 0, bytes 64\nend";
    std::fs::write(&text, format!("{buffers}{repeated}\nbarrier\n")).unwrap();
    refused(&["run", &text, "--cards", "mock:optweb:2", "--persistent"]);
    refused(&["lint", &text]);
    std::fs::write(&text, "ranks 2\nnop\n\n\ncopy source host 1 << 46, destination 0, bytes 64\nbarrier\n").unwrap();
    refused(&["run", &text, "--allow-raw-host", "--cards", "mock:optweb:2", "--persistent"]);
    // Errors of other instructions do not hide it, nor cards whose sequencer reaches no host memory.
    let unmatched = "if rank == 0\nsend peer 1, source x, bytes 64\nend";
    std::fs::write(&text, format!("{buffers}nop\ncopy source h, destination x, bytes 64\n{unmatched}\n")).unwrap();
    for cards in ["mock:optweb:2", "mock:alveo-xdma:2"] {
        refused(&["run", &text, "--cards", cards, "--persistent"]);
    }
}

/// The fastest alltoall of a Dragonfly has tables, which no stored program has.
#[test]
fn a_plan_for_stored_programs_has_no_tables() {
    let folder = Folder::new();
    let saved = folder.path("saved.seqb");
    let cards = ["--cards", "mock:optweb:2x2"];
    let plan = [&["plan", "alltoall", "--bytes", "16KiB", "--save", &saved][..], &cards].concat();
    let stored = [&["run", &saved, "--persistent"][..], &cards].concat();
    stdout(&plan);
    let refused = run(&stored);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(7) && error.contains("no resident program has"), "{error}");
    stdout(&[&plan[..], &["--persistent"]].concat());
    stdout(&stored);
    let refused = run(&[&["plan", "allgatherv", "--bytes", "64", "--persistent"][..], &cards].concat());
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(7) && error.contains("no resident program has"), "{error}");
}
