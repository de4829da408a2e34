//! What is written about metrics names those that runs have.

use usher_scenario::metrics::{METRICS, Of};

#[test]
fn the_document_names_every_metric_and_no_other() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let document = std::fs::read_to_string(document).unwrap();
    let cells = document.lines().filter_map(|l| l.strip_prefix("| `")?.split(" |").next());
    let mut named: Vec<String> =
        cells.flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`').to_owned()).collect();
    let mut known: Vec<String> = METRICS
        .iter()
        .map(|m| match m.of {
            Of::Run => m.name.to_owned(),
            Of::Link => format!("{}.LINK", m.name),
            Of::Cell => format!("{}.CELL", m.name),
            Of::Host => format!("{}.HOST", m.name),
        })
        .collect();
    named.sort();
    known.sort();
    assert_eq!(named, known);
}
