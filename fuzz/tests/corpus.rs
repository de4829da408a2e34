//! Runs each target over its corpus, so that fixed failures do not return.

use std::path::Path;
use usher_fuzz::TARGETS;

#[test]
fn each_target_holds_over_its_corpus() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in TARGETS {
        let folder = corpora.join(target.name);
        let files = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            println!("{}", path.display());
            (target.run)(&std::fs::read(&path).unwrap());
            count += 1;
        }
        assert!(count > 0, "{}: put some valid inputs there", folder.display());
    }
}

#[test]
fn each_corpus_has_a_target() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut names: Vec<String> =
        std::fs::read_dir(corpora).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let known: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
    assert_eq!(names, known);
}
