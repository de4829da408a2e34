//! Writes a sample report of made-up numbers to the folder named on the command line.

use usher_observe::MeanEstimate;
use usher_observe::manifest::{ManifestValue, RunHostInfo, RunManifest};
use usher_report::{
    FigureAxis, FigureSeries, HtmlReport, ReportColumn, ReportFigure, ReportSection, ReportTable,
    RerunCommand, SeriesKind, SeriesPoint, TableCell,
};

const LOSSES: [f64; 6] = [0.0, 1.0, 5.0, 10.0, 15.0, 20.0];

fn measured_series(name: &str, delay: impl Fn(f64) -> f64) -> FigureSeries {
    let point = |loss: f64| {
        let mean = delay(loss);
        SeriesPoint::from_estimate(
            loss,
            &MeanEstimate { mean, half_width: mean * (0.01 + loss / 400.0), n: 10 },
        )
    };
    FigureSeries {
        name: name.into(),
        kind: SeriesKind::Measured,
        points: LOSSES.map(point).into(),
        names: vec![],
    }
}

fn sample_figures() -> Vec<ReportFigure> {
    let closed = |loss: f64| 0.045 + 2.0 * loss / (100.0 - loss);
    let delay = ReportFigure {
        name: "delay-by-loss".into(),
        title: "Authentication delay over packet loss".into(),
        x: FigureAxis::new("Packet loss", "%"),
        y: FigureAxis::new("Mean authentication delay", "s"),
        series: vec![
            measured_series("Diameter/TCP", |l| 0.046 + l * l * 0.004),
            measured_series("RADIUS/UDP, exponential back-off", |l| 0.045 + l * 0.0235),
            measured_series("RADIUS/UDP, fixed 1 s", |l| 0.045 + l * 0.0135),
            FigureSeries {
                name: "RADIUS/UDP, fixed 2 s, closed form".into(),
                kind: SeriesKind::Analytic,
                points: (0..=40)
                    .map(|i| f64::from(i) / 2.0)
                    .map(|l| SeriesPoint::from_exact(l, closed(l)))
                    .collect(),
                names: vec![],
            },
        ],
        panels: Vec::new(),
    };
    let method = |name: &str, scale: f64| FigureSeries {
        name: name.into(),
        kind: SeriesKind::Measured,
        points: [4.2, 9.6, 17.1]
            .iter()
            .enumerate()
            .map(|(i, m)| {
                SeriesPoint::from_estimate(
                    i as f64,
                    &MeanEstimate { mean: m * scale, half_width: 0.6 * scale, n: 10 },
                )
            })
            .collect(),
        names: vec![],
    };
    let packets = ReportFigure {
        name: "packets-by-method".into(),
        title: "Packets per authentication by method at 5 % loss".into(),
        x: FigureAxis::with_categories("Method", ["EAP-MD5", "EAP-TLS 1.3", "EAP-TLS 1.2"]),
        y: FigureAxis::new("Packets per authentication", ""),
        series: vec![method("RADIUS/UDP", 1.0), method("Diameter/TCP", 1.4)],
        panels: Vec::new(),
    };
    vec![delay, packets]
}

fn sample_table(figure: &ReportFigure) -> ReportTable {
    let measured: Vec<&FigureSeries> =
        figure.series.iter().filter(|s| s.kind == SeriesKind::Measured).collect();
    let mut columns = vec![ReportColumn::new("Packet loss", "%")];
    columns.extend(measured.iter().map(|s| ReportColumn::new(&s.name, "s")));
    let row = |(i, loss): (usize, &f64)| {
        let mut row = vec![TableCell::from(loss.to_string())];
        row.extend(measured.iter().map(|s| {
            let p = s.points[i];
            TableCell::Estimate(MeanEstimate { mean: p.mean, half_width: p.high - p.mean, n: p.n })
        }));
        row
    };
    ReportTable {
        title: "Mean authentication delay".into(),
        columns,
        rows: LOSSES.iter().enumerate().map(row).collect(),
        folded: false,
    }
}

fn sample_manifest() -> RunManifest {
    RunManifest {
        usher_version: env!("CARGO_PKG_VERSION").into(),
        study: "sample".into(),
        seed: 1,
        mode: "quick".into(),
        parameters: [("loss", "0, 1, 5, 10, 15, 20 %"), ("rate", "5 per second")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
        plan_hash: "5f1c0d6a".into(),
        host: RunHostInfo { kernel: "Linux 6.1.0".into(), cpu: "Example CPU".into(), cores: 2 },
        started: "2026-01-31T12:00:00Z".into(),
        elapsed_s: 8.4,
        points: 18,
        replications: 180,
        complete: false,
        facts: [
            ("packet_hops", ManifestValue::from(4_000_000u64)),
            ("peak_rss_bytes", ManifestValue::from(18_874_368u64)),
        ]
        .map(|(k, v)| (k.to_owned(), v))
        .into(),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("name the folder to write into")?;
    let figures = sample_figures();
    let report = HtmlReport {
        title: "Cost of head-of-line blocking for an authentication".into(),
        question: "When packets are lost between NAS and AAA server, how long does a user wait with Diameter over \
                   TCP, and how long with RADIUS over UDP?"
            .into(),
        findings: vec![
            "Up to 5 % loss Diameter/TCP answers sooner: 146 ms at 5 %, against 163 ms for RADIUS/UDP with back-off."
                .into(),
            "From 10 % on RADIUS/UDP is faster, since no exchange waits for another's lost segment.".into(),
        ],
        description: "One NAS authenticates users with EAP-MD5 at 5 per second through one server; each packet of \
                      the link between them is lost with the same probability. Numbers here are made up."
            .into(),
        partial: Some("Interrupted after 18 of 24 points; run the same command again to go on.".into()),
        warnings: Vec::new(),
        sections: vec![ReportSection {
            title: "Delay and load".into(),
            text: "Points are means over replications, bars their 95 % confidence intervals; the dashed curve is \
                   a closed form."
                .into(),
            tables: vec![sample_table(&figures[0])],
            figures,
        }],
        notes: vec!["At 20 % loss one of 10 replications reached the limit before the asked precision.".into()],
        reruns: LOSSES
            .map(|loss| RerunCommand {
                point: format!("loss={loss} transport=tcp"),
                command: format!("usher study run sample --seed 1 --set loss={loss} --set transport=tcp"),
            })
            .into(),
        manifest: Some(sample_manifest()),
        live: None,
        ..HtmlReport::default()
    };
    println!("{}", report.write_files(folder.as_ref())?.display());
    Ok(())
}
