//! `cargo run -p usher-ns2-tests -- SCENARIO...` compares scenarios and prints the table rows.

use usher_ns2_tests::ReferenceRuns;

fn main() -> Result<(), String> {
    for scenario in std::env::args().skip(1) {
        for line in usher_ns2_tests::compare_scenario(&scenario, ReferenceRuns::Live)? {
            println!("{}", line.table_row());
        }
    }
    Ok(())
}
