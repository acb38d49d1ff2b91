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
fn what_does_not_fit_is_refused_and_nothing_is_written() {
    let directory = Directory::new();
    let output = directory.path("out.npy");
    let refused = |operation: &[&str], inputs: &str, rank: Option<u32>| {
        let tail = ["--input", inputs, "--output", output.to_str().unwrap(), "--json"];
        let result = run(&[&["coll"], operation, &tail].concat());
        let error: serde_json::Value = serde_json::from_slice(&result.stderr).unwrap();
        assert_eq!((result.status.code(), &error["rank"]), (Some(7), &serde_json::json!(rank)), "{error}");
        assert!(directory.is_without_output());
    };
    refused(&["allgather"], &directory.inputs(&[8, 8, 7, 8]), Some(2));
    refused(&["allgather"], &directory.inputs(&[8, 8, 8]), Some(3));
    refused(&["alltoall"], &directory.inputs(&[9; 4]), Some(0));
    refused(&["scatter"], &directory.inputs(&[8; 2]), None);
    refused(&["scatter", "--bytes", "12"], &directory.inputs(&[8]), Some(0));
    refused(&["allgather", "--dtype", "i32"], &directory.inputs(&[8; 4]), Some(0));
    let cut = directory.path("cut.npy");
    let whole = std::fs::read(directory.path("in0.npy")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() - 1]).unwrap();
    refused(&["scatter"], cut.to_str().unwrap(), None);
    std::fs::write(&cut, b"\x93NUMPY\x01\x00").unwrap();
    refused(&["scatter"], cut.to_str().unwrap(), None);
}
