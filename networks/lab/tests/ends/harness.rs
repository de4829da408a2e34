//! libtest's command line for a program with `harness = false`: it lists its tests, or runs those that are named.

/// The options of libtest that take a value.
const VALUED: [&str; 6] = ["--test-threads", "--skip", "--format", "--color", "--logfile", "-Z"];

/// Lists or runs tests, by the arguments of this program.
pub(crate) fn run_named_tests(tests: &[(&str, fn())]) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let values = arguments.iter().zip(arguments.iter().skip(1));
    let is_value = |at: usize| at > 0 && VALUED.contains(&&*arguments[at - 1]);
    let names = (0..arguments.len()).filter(|at| !arguments[*at].starts_with('-') && !is_value(*at));
    let names: Vec<&str> = names.map(|at| &*arguments[at]).collect();
    let skipped: Vec<&str> =
        values.filter(|(option, _)| *option == "--skip").map(|(_, name)| &**name).collect();
    let fits = |name: &str, filter: &str| if has("--exact") { name == filter } else { name.contains(filter) };
    let chosen = tests.iter().filter(|(name, _)| {
        (names.is_empty() || names.iter().any(|filter| fits(name, filter)))
            && !skipped.iter().any(|filter| fits(name, filter))
    });
    // No test is ignored.
    let chosen: Vec<&(&str, fn())> = if has("--ignored") { Vec::new() } else { chosen.collect() };
    if has("--list") {
        chosen.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    for (name, test) in &chosen {
        test();
        println!("test {name} ... ok");
    }
    let (passed, out) = (chosen.len(), tests.len() - chosen.len());
    println!("test result: ok. {passed} passed; 0 failed; 0 ignored; 0 measured; {out} filtered out");
}
