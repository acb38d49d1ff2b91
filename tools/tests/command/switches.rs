//! What the command says of networks whose switches compute.

use crate::{json, stdout};

const CARDS: &str = "mock:mpi-fpga:fat:8";

#[test]
fn info_lists_what_the_switches_compute() {
    let text = stdout(&["info", "--cards", CARDS]);
    let line =
        |begin: &str| text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{begin}: {text}"));
    assert!(line("in the switches").contains("allreduce (tree), broadcast (tree)"), "{text}");
    let of = |selector: &str| json(&["info", "--cards", selector])["capabilities"]["switch"].clone();
    let switch = of("mock:mpi-fpga:2x2x2");
    let allreduce = switch["collectives"].as_array().unwrap().iter().find(|one| one["operation"] == "allreduce");
    assert_eq!(allreduce.unwrap()["forms"], serde_json::json!(["tree", "doubling", "halving"]));
    assert_eq!(switch["reductions"], serde_json::json!(["sum", "min", "max", "and", "or", "xor"]));
    assert!(switch["element_types"].as_array().unwrap().contains(&"f64".into()), "{switch}");
    assert!(of("mock:optweb:4").is_null());
    assert!(!stdout(&["info", "--cards", "mock:optweb:4"]).contains("in the switches"));
}

#[test]
fn the_terms_of_a_plan_for_switches_add_up_to_its_arrival() {
    let plan = |more: &[&str]| {
        let plan = ["plan", "allreduce", "--bytes", "4KiB", "--dtype", "f32", "--op", "sum", "--explain"];
        json(&[&plan[..], more].concat())
    };
    let found = plan(&["--cards", CARDS]);
    assert_eq!(found["algorithm"], "switch");
    let (switch, number) = (&found["switch"], |value: &serde_json::Value| value.as_f64().unwrap());
    let terms = ["send_us", "latency_us", "gaps_us", "receive_us"].map(|term| number(&switch[term]));
    assert!(terms.iter().all(|term| *term > 0.0), "{switch}");
    let arrival = number(&found["predicted"]["arrival_us"]);
    assert!((terms.iter().sum::<f64>() - arrival).abs() < 1e-3, "{terms:?} {arrival}");
    assert!(number(&switch["without"]["arrival_us"]) > arrival, "{switch}");
    assert_ne!(switch["without"]["algorithm"], "switch");
    // Another algorithm has no such terms.
    assert!(plan(&["--cards", CARDS, "--algorithm", "ring"])["switch"].is_null());
    assert!(plan(&["--cards", "mock:optweb:8"])["switch"].is_null());
}
