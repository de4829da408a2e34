//! `cargo run -p usher-ns2-tests -- SCENARIO...` compares scenarios and prints the table's rows.

fn main() -> Result<(), String> {
    for scenario in std::env::args().skip(1) {
        for line in usher_ns2_tests::compare(&scenario)? {
            println!("{}", line.row());
        }
    }
    Ok(())
}
