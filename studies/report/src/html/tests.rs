use super::*;
use crate::{
    BrowserStudy, FigureAxis, FigureSeries, ReportColumn, ReportFigure, ReportSection, ReportTable,
    SeriesKind, SeriesPoint, TableCell,
};
use usher_observe::MeanEstimate;
use usher_observe::manifest::RunHostInfo;

fn test_estimate(mean: f64) -> MeanEstimate {
    MeanEstimate { mean, half_width: mean / 20.0, n: 10 }
}

fn sample_report(text: &str) -> HtmlReport {
    let points = (1..4)
        .map(|i| SeriesPoint::from_estimate(f64::from(i), &test_estimate(0.1 * f64::from(i))))
        .collect();
    let series = FigureSeries { name: text.into(), kind: SeriesKind::Measured, points, names: vec![] };
    let figure = ReportFigure {
        name: "delay".into(),
        title: text.into(),
        x: FigureAxis::new(text, text),
        y: FigureAxis::new(text, text),
        series: vec![series],
        panels: vec![],
    };
    let table = ReportTable {
        title: text.into(),
        columns: vec![ReportColumn::new(text, text), ReportColumn::new("Delay", "s")],
        rows: vec![vec![text.into(), test_estimate(0.25).into()], vec![TableCell::Empty]],
        folded: false,
    };
    HtmlReport {
        title: text.into(),
        question: text.into(),
        findings: vec![text.into()],
        description: text.into(),
        summary: None,
        ladders: vec![],
        partial: Some(text.into()),
        warnings: vec![text.into()],
        sections: vec![ReportSection {
            title: text.into(),
            text: text.into(),
            figures: vec![figure.clone(), figure],
            tables: vec![table],
        }],
        notes: vec![text.into()],
        reruns: vec![RerunCommand { point: text.into(), command: text.into() }],
        manifest: Some(RunManifest {
            usher_version: text.into(),
            study: text.into(),
            seed: 1,
            mode: text.into(),
            parameters: [(text.to_owned(), text.to_owned())].into(),
            plan_hash: text.into(),
            host: RunHostInfo { kernel: text.into(), cpu: text.into(), cores: 2 },
            started: text.into(),
            elapsed_s: 75.4,
            points: 4,
            replications: 40,
            complete: false,
            facts: [(text.to_owned(), ManifestValue::from(text))].into(),
        }),
        live: None,
    }
}

#[test]
fn hostile_texts_stay_texts() {
    let hostile =
        "</script></style></title>--><script>alert(1)</script><img src=x onerror='alert(1)'>\" onclick=\"x";
    let page = sample_report(hostile).to_html();
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("</script").count(), 2);
    assert_eq!(page.matches("</style").count(), 1);
    assert!(!page.contains("<img") && !page.contains("\" onclick"));
    assert!(!page.contains("onerror='"));
    assert!(!page.contains("wasm"), "what runs no study has no right to");
}

#[test]
fn what_a_live_report_carries_stays_data() {
    let data = "{\"text\":\"</script><script>alert(1)</script>\"}".to_owned();
    let live = Some(BrowserStudy { data, module: vec![0xfb, 0xff, 0x1f, 0x8b] });
    let page = HtmlReport { live, ..sample_report("a") }.to_html();
    // The style of figures; the page's script, data, module, worker and their starter.
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (6, 6));
    assert!(page.contains(r#"{"text":"\u003c/script>\u003cscript>alert(1)\u003c/script>"}"#));
    assert!(page.contains("id=\"live-module\">+/8fiw==</script>"));
    assert!(page.contains("'wasm-unsafe-eval'") && page.contains("worker-src blob:"));
    for fetching in ["https://", "src=", "fetch(", "<link", "<iframe", "importScripts", "XMLHttpRequest"] {
        assert!(!page.contains(fetching), "{fetching}");
    }
}

#[test]
fn nothing_is_fetched() {
    let page = sample_report("plain").to_html();
    // The only addresses are XML namespaces, which are not fetched.
    let namespace = "http://www.w3.org/2000/svg";
    assert_eq!(page.matches("http://").count(), page.matches(namespace).count());
    for fetching in [
        "https://", "src=", "href=\"h", "href=\"/", "@import", "url(h", "url(/", "fetch(", "<link", "<iframe",
    ] {
        assert!(!page.contains(fetching), "{fetching}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn the_question_and_the_answer_come_first() {
    let mut report = sample_report("plain");
    report.question = "What does loss cost?".into();
    report.findings = vec!["Twice as much.".into()];
    let page = report.to_html();
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(at("What does loss cost?") < at("Twice as much."));
    assert!(at("Twice as much.") < at("<figure"));
    assert!(at("<figure") < at("How this report was made"));
    assert!(at("Partial results.") < at("Twice as much."));
    report.warnings = vec!["Dialogues failed.".into()];
    let page = report.to_html();
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(at("role=\"alert\">Dialogues failed.") < at("Twice as much."));
    report.partial = None;
    assert!(!report.to_html().contains("Partial results."));
}

#[test]
fn many_findings_are_folded() {
    let mut report = sample_report("plain");
    let page = |report: &HtmlReport| {
        let page = report.to_html();
        let (head, _) = page.split_once("</header>").unwrap();
        head.to_owned()
    };
    report.findings = (1..=12).map(|n| format!("Finding {n}.")).collect();
    assert!(!page(&report).contains("<details"));
    report.findings.extend(["Finding 13.".to_owned(), "Finding 14.".to_owned()]);
    let head = page(&report);
    let (open, folded) = head.split_once("<summary>2 more</summary>").unwrap();
    assert!(open.contains("Finding 12.") && !open.contains("Finding 13."));
    assert!(folded.contains("Finding 13.") && folded.contains("Finding 14."));
}

#[test]
fn two_figures_of_one_name_share_no_identifier() {
    let page = sample_report("plain").to_html();
    let ids: Vec<&str> = page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let distinct: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!(ids.len(), distinct.len(), "{ids:?}");
}

#[test]
fn numbers_carry_interval_count_and_sorting_key() {
    let page = sample_report("plain").to_html();
    assert!(
        page.contains("data-key=\"0.25\">0.250 ± 0.013 <small title=\"replications\">(10)</small>"),
        "{page}"
    );
    assert!(page.contains("1 min 15 s of computing"));
}

#[test]
fn the_same_report_gives_the_same_bytes() {
    assert_eq!(sample_report("plain").to_html(), sample_report("plain").to_html());
}

#[test]
fn an_empty_report_is_a_page() {
    let page = HtmlReport::default().to_html();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
}

#[test]
fn all_files_are_written() {
    let folder = std::env::temp_dir().join(format!("usher-report-{}", std::process::id()));
    let path = sample_report("plain").write_files(&folder).unwrap();
    assert_eq!(path, folder.join("report.html"));
    assert!(std::fs::read_to_string(folder.join("figures/delay.svg")).unwrap().starts_with("<?xml"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_mean_that_one_replication_moves_has_its_median_below_it() {
    let values = [1.0, 1.0, 2.0, 1.0, 2.0, 29.0];
    let median = usher_observe::stats::robust::MedianEstimate::from_values(&values, 0.95);
    let mut report = sample_report("plain");
    report.sections[0].tables[0].rows[0][1] =
        TableCell::Moved(MeanEstimate::from_values(&values, 0.95), median);
    let html = report.to_html();
    assert!(html.contains("class=\"number moved\" data-key=\"6\""), "sorts by its mean");
    assert!(html.contains("<small>median 2 (1 to 29)</small>"), "{html}");
}

#[test]
fn parts_are_found_by_a_list_and_links_stay_within_the_folder() {
    let mut report = sample_report("plain");
    assert!(!report.to_html().contains("<nav"), "one part needs no list");
    report.sections =
        (0..5).map(|i| ReportSection { title: format!("Part <{i}>"), ..ReportSection::default() }).collect();
    let link = |to: &str| TableCell::Link { text: "its report".into(), to: to.into() };
    report.summary = Some(ReportTable {
        columns: vec![ReportColumn::new("Study", "")],
        rows: vec![
            vec![link("a-quick/report.html")],
            vec![link("javascript:alert(1)")],
            vec![link("//host/x")],
        ],
        ..ReportTable::default()
    });
    let page = report.to_html();
    for i in 0..5 {
        assert!(page.contains(&format!("<a href=\"#part-{i}\">Part &lt;{i}&gt;</a>")));
        assert!(page.contains(&format!("<section id=\"part-{i}\">")));
    }
    assert!(page.contains("<a href=\"a-quick/report.html\">its report</a>"));
    assert!(!page.contains("javascript:") && !page.contains("//host"));
}

#[test]
fn long_tables_fold_and_sentences_are_stacked_on_a_telephone() {
    let mut report = sample_report("plain");
    let row = vec![TableCell::from("a"), TableCell::from("word ".repeat(30))];
    let table = ReportTable {
        title: "Statements".into(),
        columns: vec![ReportColumn::new("Claim", ""), ReportColumn::new("Why", "")],
        rows: vec![row],
        folded: true,
    };
    report.sections[0].tables = vec![table];
    let page = report.to_html();
    assert!(page.contains("<summary>Statements (1)</summary>"));
    assert!(page.contains("class=\"sortable stacked\"") && page.contains("data-heading=\"Why\""));
    report.warnings = (0..9).map(|i| format!("Warning {i}.")).collect();
    assert!(report.to_html().contains("<summary>9 warnings about these results</summary>"));
}

#[test]
fn wide_tables_fill_the_window_and_stack_on_a_phone() {
    let mut report = sample_report("plain");
    let mut page = |columns: usize| {
        let headings = (0..columns).map(|i| ReportColumn::new(format!("Column {i}"), ""));
        let rows = vec![vec![TableCell::from("a"); columns]];
        report.sections[0].tables =
            vec![ReportTable { columns: headings.collect(), rows, ..ReportTable::default() }];
        report.to_html()
    };
    let few = page(4);
    assert!(few.contains("<table class=\"sortable\">") && !few.contains("data-heading=\"Column 3\""));
    let many = page(5);
    assert!(
        many.contains("<table class=\"sortable wide cards\">") && many.contains("data-heading=\"Column 4\"")
    );
    assert!(page(9).contains("<table class=\"sortable wide\">"), "more are scrolled");
}

#[test]
fn messages_are_a_part_of_their_own() {
    let mut report = sample_report("plain");
    let message = crate::FlowMessage {
        sent: 0.0,
        arrived: Some(0.1),
        from: 0,
        to: 1,
        name: "PADI".into(),
        ..Default::default()
    };
    let hosts = vec!["client".into(), "concentrator".into()];
    report.ladders = vec![crate::MessageFlow {
        title: "PPPoE".into(),
        hosts,
        messages: vec![message],
        ..Default::default()
    }];
    let page = report.to_html();
    assert!(page.contains("<h2>Messages</h2>") && page.contains(">PADI</text>"));
}
