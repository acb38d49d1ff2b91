//! NumPy arrays in and out.

use std::path::{Path, PathBuf};

use npyz::WriterBuilder as _;

use crate::{json, run, stdout};

fn save(path: &Path, values: &[f32]) {
    let file = std::fs::File::create(path).unwrap();
    let mut writer =
        npyz::WriteOptions::new().default_dtype().shape(&[values.len() as u64]).writer(file).begin_nd().unwrap();
    writer.extend(values.iter().copied()).unwrap();
    writer.finish().unwrap();
}

fn load(path: &Path) -> Vec<f32> {
    npyz::NpyFile::new(std::fs::File::open(path).unwrap()).unwrap().into_vec().unwrap()
}

struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Self {
        Directory(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file of `length` values for each rank, and their names with commas.
    fn inputs(&self, lengths: &[usize]) -> String {
        let path = |rank: usize| self.path(&format!("in{rank}.npy"));
        for (rank, length) in lengths.iter().enumerate() {
            let values: Vec<f32> = (0..*length).map(|index| (100 * rank + index) as f32).collect();
            save(&path(rank), &values);
        }
        let names: Vec<_> = (0..lengths.len()).map(|rank| path(rank).to_str().unwrap().to_owned()).collect();
        names.join(",")
    }

    fn is_without_output(&self) -> bool {
        std::fs::read_dir(self.0.path())
            .unwrap()
            .all(|entry| !entry.unwrap().file_name().to_str().unwrap().contains("out"))
    }
}

#[test]
fn vector_forms_divide_and_join() {
    let directory = Directory::new();
    let inputs = directory.inputs(&[3, 0, 5, 1]);
    let output = directory.path("out.npy");
    // The arrays say how long the blocks are.
    let printed = json(&["coll", "gatherv", "--input", &inputs, "--root", "3", "--output", output.to_str().unwrap()]);
    assert_eq!(printed["counts"], serde_json::json!([12, 0, 20, 4]));
    assert_eq!(load(&output), [0., 1., 2., 200., 201., 202., 203., 204., 300.]);
    let whole = output.to_str().unwrap();
    let parts = directory.path("part.npy");
    json(&["coll", "scatterv", "--counts", "12,0,20,4", "--input", whole, "--output", parts.to_str().unwrap()]);
    assert_eq!(load(&directory.path("part-2.npy")), [200., 201., 202., 203., 204.]);
    assert!(load(&directory.path("part-1.npy")).is_empty(), "rank 1 gets nothing");
    let counts = "4,8,0,0/0,0,0,0/4,4,4,8/0,0,4,0";
    json(&["coll", "alltoallv", "--counts", counts, "--input", &inputs, "--output", whole]);
    assert_eq!(load(&directory.path("out-1.npy")), [1., 2., 201.]);
    assert_eq!(load(&directory.path("out-2.npy")), [202., 300.]);
}

/// Which files are written depends on the collective, not on the sizes: an empty output replaces what an earlier run has left.
#[test]
fn empty_outputs_are_empty_arrays() {
    for (operation, lengths) in [
        (&["allreduce", "--op", "sum", "--bytes", "0"][..], &[0, 0][..]),
        (&["gatherv", "--counts", "0,0"], &[0]),
        (&["scatterv", "--counts", "0,16"], &[0, 4]),
        (&["exscan", "--op", "sum", "--bytes", "0"], &[0]),
        (&["allgather", "--bytes", "0"], &[0, 0]),
    ] {
        let directory = Directory::new();
        let several = ["out-0.npy", "out-1.npy"];
        let names = if lengths.len() == 1 { &["out.npy"][..] } else { &several };
        for name in names {
            save(&directory.path(name), &[1.0; 3]);
        }
        let output = directory.path("out.npy");
        let tail = ["--cards", "mock:optweb:2", "--dtype", "f32", "--output", output.to_str().unwrap()];
        let printed = json(&[&["coll"], operation, &tail].concat());
        let paths: Vec<_> = names.iter().map(|name| directory.path(name)).collect();
        assert_eq!(printed["outputs"], serde_json::json!(paths), "{operation:?}");
        for (path, length) in paths.iter().zip(lengths) {
            assert_eq!(load(path).len(), *length, "{operation:?}: {}", path.display());
        }
    }
}

#[test]
fn alltoall_transposes() {
    let directory = Directory::new();
    let inputs = directory.inputs(&[8; 4]);
    let output = directory.path("out.npy");
    let printed = json(&["coll", "alltoall", "--input", &inputs, "--output", output.to_str().unwrap()]);
    assert_eq!((&printed["bytes"], &printed["seed"]), (&8.into(), &serde_json::Value::Null));
    assert_eq!(printed["outputs"].as_array().unwrap().len(), 4);
    for rank in 0..4 {
        let expected: Vec<f32> = (0..4).flat_map(|from| [0, 1].map(|i| (100 * from + 2 * rank + i) as f32)).collect();
        assert_eq!(load(&directory.path(&format!("out-{rank}.npy"))), expected, "rank {rank}");
    }
}

#[test]
fn one_array_is_scattered_and_one_is_gathered() {
    let directory = Directory::new();
    let whole = directory.inputs(&[12]);
    let piece = directory.path("piece.npy");
    stdout(&["coll", "scatter", "--input", &whole, "--output", piece.to_str().unwrap(), "--dtype", "f32"]);
    let names: Vec<_> = (0..4).map(|rank| directory.path(&format!("piece-{rank}.npy"))).collect();
    assert_eq!(load(&names[2]), [6.0, 7.0, 8.0]);
    let inputs: Vec<_> = names.iter().map(|path| path.to_str().unwrap()).collect();
    let joined = directory.path("joined.npy");
    stdout(&["coll", "gather", "--root", "1", "--input", &inputs.join(","), "--output", joined.to_str().unwrap()]);
    assert_eq!(load(&joined), load(Path::new(&whole)));
}

#[test]
fn arrays_are_summed() {
    let directory = Directory::new();
    let inputs = directory.inputs(&[3; 4]);
    let output = directory.path("out.npy");
    let coll = |operation: &str| {
        json(&["coll", operation, "--op", "sum", "--input", &inputs, "--output", output.to_str().unwrap()])
    };
    let printed = coll("allreduce");
    assert_eq!((&printed["reduction"], &printed["dtype"]), (&"sum".into(), &"f32".into()));
    assert_eq!((&printed["bytes"], &printed["verified"]), (&12.into(), &true.into()));
    for rank in 0..4 {
        assert_eq!(load(&directory.path(&format!("out-{rank}.npy"))), [600.0, 604.0, 608.0], "rank {rank}");
    }
    coll("exscan");
    assert_eq!(load(&directory.path("out-3.npy")), [300.0, 303.0, 306.0]);
    coll("reduce");
    assert_eq!(load(&output), [600.0, 604.0, 608.0]);
}

/// NumPy has no bf16: its arrays are of u16, and only the command line says what they are.
#[test]
fn arrays_of_u16_may_be_bf16() {
    let directory = Directory::new();
    let path = |rank: usize| directory.path(&format!("half{rank}.npy"));
    for rank in 0..2 {
        let file = std::fs::File::create(path(rank)).unwrap();
        let mut writer = npyz::WriteOptions::new().default_dtype().shape(&[1]).writer(file).begin_nd().unwrap();
        // 1.0 and 2.0.
        writer.push(&[0x3f80_u16, 0x4000][rank]).unwrap();
        writer.finish().unwrap();
    }
    let inputs = format!("{},{}", path(0).display(), path(1).display());
    let output = directory.path("out.npy");
    let words = ["coll", "reduce", "--op", "sum", "--dtype", "bf16", "--cards", "mock:optweb:2", "--input", &inputs];
    stdout(&[&words[..], &["--output", output.to_str().unwrap()]].concat());
    let sum: Vec<u16> = npyz::NpyFile::new(std::fs::File::open(&output).unwrap()).unwrap().into_vec().unwrap();
    assert_eq!(sum, [0x4040]);
}

/// As on a disk that is full, but the kernel tells by a signal that would end the command.
#[test]
fn an_output_beyond_the_limit_of_files_leaves_none() {
    let directory = Directory::new();
    let output = directory.path("out.npy");
    let coll = ["coll", "broadcast", "--bytes", "1MiB", "--cards", "mock:optweb:2", "--json"];
    let coll = [&coll[..], &["--output", output.to_str().unwrap()]].concat();
    let failed = crate::command_with_room(100, &coll).output().unwrap();
    let error = crate::parsed(&failed.stderr);
    assert_eq!((failed.status.code(), &error["kind"]), (Some(1), &"failed".into()), "{error}");
    assert!(directory.is_without_output());
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let directory = Directory::new();
    let output = directory.path("out.npy");
    let refused = |operation: &[&str], inputs: &str, rank: Option<u32>| {
        let tail = ["--input", inputs, "--output", output.to_str().unwrap(), "--json"];
        let result = run(&[&["coll"], operation, &tail].concat());
        let error = crate::parsed(&result.stderr);
        assert_eq!((result.status.code(), &error["rank"]), (Some(7), &serde_json::json!(rank)), "{error}");
        assert!(directory.is_without_output());
    };
    refused(&["allgather"], &directory.inputs(&[8, 8, 7, 8]), Some(2));
    refused(&["allgather"], &directory.inputs(&[8, 8, 8]), Some(3));
    refused(&["alltoall"], &directory.inputs(&[9; 4]), Some(0));
    refused(&["scatter"], &directory.inputs(&[8; 2]), None);
    refused(&["scatter", "--bytes", "12"], &directory.inputs(&[8]), Some(0));
    refused(&["allgather", "--dtype", "i32"], &directory.inputs(&[8; 4]), Some(0));
    // Parts of an element, whose type only the arrays say.
    let two_cards = ["--cards", "mock:optweb:2"];
    refused(&["scatter", "--bytes", "2"], &directory.inputs(&[2]), None);
    refused(&[&["scatterv", "--counts", "3,13"], &two_cards[..]].concat(), &directory.inputs(&[4]), None);
    refused(&[&["alltoallv", "--counts", "3,5"], &two_cards[..]].concat(), &directory.inputs(&[2; 2]), None);
    let cut = directory.path("cut.npy");
    let whole = std::fs::read(directory.path("in0.npy")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() - 1]).unwrap();
    refused(&["scatter"], cut.to_str().unwrap(), None);
    std::fs::write(&cut, b"\x93NUMPY\x01\x00").unwrap();
    refused(&["scatter"], cut.to_str().unwrap(), None);
}
