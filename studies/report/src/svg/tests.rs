use super::*;
use crate::figure::FigureAxis;
use usher_observe::MeanEstimate;

fn measured_point(x: f64, mean: f64, half_width: f64) -> SeriesPoint {
    SeriesPoint::from_estimate(x, &MeanEstimate { mean, half_width, n: 10 })
}

fn small_figure() -> ReportFigure {
    ReportFigure {
        name: "delay".into(),
        title: "Delay over loss".into(),
        x: FigureAxis::new("Loss", "%"),
        y: FigureAxis::new("Delay", "s"),
        series: vec![
            FigureSeries {
                name: "RADIUS/UDP".into(),
                kind: SeriesKind::Measured,
                points: vec![measured_point(0.0, 0.1, 0.01), measured_point(10.0, 0.3, f64::INFINITY)],
                names: vec![],
            },
            FigureSeries {
                name: "closed form".into(),
                kind: SeriesKind::Analytic,
                points: vec![SeriesPoint::from_exact(0.0, 0.1), SeriesPoint::from_exact(10.0, 0.29)],
                names: vec![],
            },
        ],
        panels: Vec::new(),
    }
}

/// Asserts that an XML parser would accept it: tags nest, attributes are quoted.
fn assert_nested(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') && !tag.starts_with('?') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn a_small_figure_is_as_before() {
    let svg = svg_file(&small_figure());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/delay.svg");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(path, &svg).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    assert!(svg == expected, "delay.svg changed: look at it, then run again with UPDATE_SNAPSHOTS=1");
    assert_nested(&svg);
}

#[test]
fn hostile_texts_stay_texts() {
    let mut figure = small_figure();
    let hostile = "</title><script>alert(1)</script>\" onload=\"x";
    figure.title = hostile.into();
    figure.x.title = hostile.into();
    figure.y.unit = hostile.into();
    figure.series[0].name = hostile.into();
    figure.name = hostile.into();
    let svg = svg_file(&figure);
    assert!(!svg.contains("<script"));
    assert_nested(&svg);
}

#[test]
fn an_unknown_interval_has_no_bar_and_a_known_one_has() {
    assert_eq!(svg_file(&small_figure()).matches("class=\"interval\"").count(), 1);
}

#[test]
fn what_others_measured_has_hollow_markers_that_nothing_joins() {
    let mut figure = small_figure();
    let theirs = |x, mean| SeriesPoint {
        low: mean - 0.02,
        high: mean + 0.03,
        n: 7,
        ..SeriesPoint::from_exact(x, mean)
    };
    figure.series[1] = FigureSeries {
        name: "ns-2".into(),
        kind: SeriesKind::Reference,
        points: vec![theirs(0.0, 0.4), theirs(10.0, 0.9)],
        names: vec![],
    };
    let svg = svg_file(&figure);
    assert_nested(&svg);
    // Two points and the legend.
    assert_eq!(svg.matches("class=\"mark hollow\"").count(), 3);
    assert_eq!(svg.matches("class=\"line\" d=\"M").count(), 2, "the other curve, and its legend");
    assert!(svg.contains("0.900 (0.880 to 0.930) s&#10;n = 7"), "{svg}");
    assert!(y_range(&figure, false).1 > 0.92, "the axis spans them");
    assert!(svg.contains("series reference c1"), "a colour of its own");
    figure.series[1].name = "RADIUS/UDP (ns-2)".into();
    assert!(svg_file(&figure).contains("series reference c0"), "the colour of what it stands beside");
}

#[test]
fn a_mean_that_one_replication_moves_is_hollow_and_says_so() {
    let mut figure = small_figure();
    let values = [1.0, 1.0, 2.0, 1.0, 2.0, 29.0];
    let p = &mut figure.series[0].points[0];
    p.median = Some(usher_observe::stats::robust::MedianEstimate::from_values(&values, 0.95));
    assert!(!svg_file(&figure).contains("hollow\" transform"), "a median beside it is no reproach");
    figure.series[0].points[0].moved = usher_observe::stats::robust::find_influential(&[
        (0, 1.0),
        (1, 1.0),
        (2, 2.0),
        (3, 1.0),
        (4, 2.0),
        (5, 29.0),
    ]);
    let svg = svg_file(&figure);
    assert_eq!(svg.matches("class=\"mark hollow\"").count(), 1);
    assert!(svg.contains("one replication moves the mean: 1.4 without it; median 2 (1 to 29) s"), "{svg}");
}

#[test]
fn odd_data_draw_something() {
    let mut figure = small_figure();
    for points in [
        vec![],
        vec![measured_point(f64::NAN, 1.0, 0.1)],
        vec![measured_point(1.0, f64::NAN, f64::NAN)],
        vec![measured_point(0.0, 0.0, 0.0)],
        vec![measured_point(1.0, -5.0, 7.0), measured_point(2.0, 1e300, 1.0)],
        vec![measured_point(-1e300, 1e-300, 0.0), measured_point(1e300, 2.0, 0.0)],
    ] {
        figure.series[0].points = points;
        for log in [false, true] {
            let svg = draw_figure(
                &figure,
                FigureScaleVariant { log_x: log, log_y: log },
                DrawingLayout::Standalone,
            );
            assert_nested(&svg);
            assert!(!svg.contains("NaN ") && !svg.contains("inf"), "{svg}");
        }
    }
    figure.series.clear();
    assert_nested(&svg_file(&figure));
}

#[test]
fn categories_stand_side_by_side() {
    let mut figure = small_figure();
    figure.x = FigureAxis::with_categories("Method", ["EAP-MD5", "EAP-TLS"]);
    figure.series[1] = figure.series[0].clone();
    for (series, shift) in figure.series.iter_mut().zip([0.0, 0.1]) {
        series.points = vec![measured_point(0.0, 1.0 + shift, 0.1), measured_point(1.0, 2.0 + shift, 0.1)];
    }
    let svg = svg_file(&figure);
    assert!(svg.contains(">EAP-MD5</text>") && svg.contains("Method: EAP-TLS"));
    assert_eq!(svg.matches("class=\"line\" d=\"M").count(), 2, "only the legend has lines");
}

#[test]
fn a_measured_position_is_shown_with_its_significant_digits() {
    let mut figure = small_figure();
    figure.series[0].points =
        vec![measured_point(0.123_456_789_012_345_67, 0.1, 0.01), measured_point(0.015, 0.2, 0.01)];
    figure.series[1].points =
        vec![SeriesPoint::from_exact(123_456_789.0, 1.0), SeriesPoint::from_exact(f64::INFINITY, 1.0)];
    let svg = svg_file(&figure);
    for told in ["Loss: 0.12346 %&#10;", "Loss: 0.015 %&#10;", "Loss: 123456789 %&#10;"] {
        assert!(svg.contains(told), "{told}: {svg}");
    }
    assert!(figure.to_csv().contains("0.12345678901234"), "programs have them all");
}

#[test]
fn there_is_nothing_between_whole_numbers() {
    let ticks = |xs: &[f64]| {
        let mut figure = small_figure();
        for series in &mut figure.series {
            series.points = xs.iter().map(|x| SeriesPoint::from_exact(*x, 1.0)).collect();
        }
        let svg = svg_file(&figure);
        ["2.5", "2.0", "2"].map(|label| svg.contains(&format!(">{label}</text>")))
    };
    assert_eq!(ticks(&[1.0, 2.0, 3.0, 4.0]), [false, false, true], "clients");
    assert_eq!(ticks(&[1.0, 2.2, 3.0, 4.0]), [true, true, false], "seconds");
}

#[test]
fn a_logarithm_is_offered_where_it_means_something() {
    let mut figure = small_figure();
    assert!(suits_log_y(&figure) && !suits_log_x(&figure));
    figure.series[0].points[0].mean = 0.0;
    assert!(!suits_log_y(&figure));
    figure.y.log = true;
    assert!(!FigureScaleVariant::for_figure(&figure).log_y);
}

/// Two series compared in three panels each.
fn in_panels() -> ReportFigure {
    let mut figure = small_figure();
    let own = figure.series[0].clone();
    let names = ["a, tcp", "a, udp", "b, tcp", "b, udp", "c, tcp", "c, udp"];
    figure.series = names.map(|name| FigureSeries { name: name.into(), ..own.clone() }).into();
    let panel = |i: usize| crate::FigurePanel {
        title: ["a", "b", "c"][i].into(),
        series: vec![(2 * i, "tcp".into()), (2 * i + 1, "udp".into())],
    };
    figure.panels = (0..3).map(panel).collect();
    figure
}

#[test]
fn panels_have_one_colour_for_each_thing_compared() {
    let svg = svg_file(&in_panels());
    assert_nested(&svg);
    assert_eq!(svg.matches("class=\"panel\"").count(), 3);
    for colour in ["c0", "c1"] {
        assert_eq!(svg.matches(&format!("class=\"series measured {colour}\"")).count(), 3);
        assert_eq!(svg.matches(&format!("class=\"label {colour}\"")).count(), 1, "one legend");
    }
    assert!(svg.contains(">tcp</text>") && !svg.contains("class=\"series measured c2\""));
    // A click on a name hides the series in every panel.
    assert_eq!(svg.matches("data-series=\"1\"").count(), 4);
}

#[test]
fn on_a_telephone_names_stand_below_and_panels_below_each_other() {
    let size = |svg: &str| -> Vec<f64> {
        let (_, rest) = svg.split_once("viewBox=\"0 0 ").unwrap();
        rest.split_once('"').unwrap().0.split(' ').map(|n| n.parse().unwrap()).collect()
    };
    for figure in [small_figure(), in_panels()] {
        let variant = FigureScaleVariant::for_figure(&figure);
        let (wide, narrow) = (
            draw_figure(&figure, variant, DrawingLayout::Wide),
            draw_figure(&figure, variant, DrawingLayout::Narrow),
        );
        assert_nested(&narrow);
        assert_eq!((size(&wide)[0], size(&narrow)[0]), (800.0, 380.0));
        assert!(size(&narrow)[1] > 300.0 && !narrow.contains("class=\"leader\""));
        let ids = |svg: &str| svg.matches(" id=\"").count();
        assert_eq!(ids(&wide), ids(&narrow));
    }
}

#[test]
fn no_name_of_an_axis_is_cut() {
    let long = "messages of RADIUS from the gateway that were sent again, per completed dialogue of a station that has \
                roamed from one network to another and has come back to the first one, with its own address";
    let number = |line: &str, name: &str| -> f64 {
        let (_, rest) = line.split_once(&format!(" {name}=\"")).unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    };
    for mut figure in [small_figure(), in_panels()] {
        (figure.x.title, figure.y.title) = (long.into(), long.into());
        for (size, width) in [
            (DrawingLayout::Standalone, WIDTH),
            (DrawingLayout::Wide, WIDTH),
            (DrawingLayout::Narrow, NARROW),
        ] {
            let svg = draw_figure(&figure, FigureScaleVariant::for_figure(&figure), size);
            assert_nested(&svg);
            let mut said = [String::new(), String::new()];
            let mut below = 0.0f64;
            for line in svg.lines().filter(|line| line.contains("class=\"name\"")) {
                let text = line.split_once('>').unwrap().1.trim_end_matches("</text>");
                let centred = line.contains("text-anchor=\"middle\"");
                let (x, wide) = (number(line, "x"), text_width(text, 12.5));
                let (from, to) = if centred { (x - wide / 2.0, x + wide / 2.0) } else { (x, x + wide) };
                // A panel is as wide as its group allows.
                let room = if !figure.panels.is_empty() && centred { width.min(400.0) } else { width };
                assert!(from >= 0.0 && to <= room, "{text}: {from} to {to} of {room}");
                said[usize::from(centred)].push_str(&format!("{text} "));
                below = below.max(number(line, "y"));
            }
            let whole = |unit: &str| format!("{long} ({unit})");
            assert_eq!(said[0].trim_end(), whole("s"));
            assert!(said[1].starts_with(&whole("%")) && !svg.contains('…'));
            let (_, rest) = svg.split_once("viewBox=\"0 0 ").unwrap();
            let height: f64 = rest.split(['"', ' ']).nth(1).unwrap().parse().unwrap();
            assert!(below < height, "{below} of {height}");
        }
    }
    let place = |name: &str| {
        let figure = ReportFigure { y: FigureAxis::new(name, ""), ..small_figure() };
        let svg = draw_figure(&figure, FigureScaleVariant::for_figure(&figure), DrawingLayout::Narrow);
        svg.lines().find(|line| line.contains("class=\"name\" x=\"16\"")).map(|line| number(line, "y"))
    };
    assert_eq!(
        (place("Delay"), place(long)),
        (Some(20.0), Some(20.0)),
        "the plot moves down, not the name up"
    );
    assert_eq!(place(""), None);
}

#[test]
fn there_is_nothing_beyond_a_share_of_one() {
    let mut figure = small_figure();
    figure.series.truncate(1);
    figure.y = FigureAxis::new("Share", "").with_shares(true);
    for points in [[(0.91, 0.78), (0.05, 0.3)], [(0.99, 0.08), (0.98, 0.002)], [(1.0, 0.0), (1.0, 0.0)]] {
        figure.series[0].points =
            (0..).map(f64::from).zip(points).map(|(x, (mean, half))| measured_point(x, mean, half)).collect();
        for log in [false, true] {
            let (low, high) = y_range(&figure, log);
            assert!(low >= 0.0 && high <= 1.0, "{low} to {high}");
            let ticks = AxisScale::new(low, high, log, 300.0, 0.0).round_ends().ticks();
            assert!(ticks.iter().all(|t| t.value >= 0.0 && t.value <= 1.0 + 1e-9), "{points:?}: {ticks:?}");
        }
    }
    let reached = measured_point(0.0, 0.91, 0.78).clamp_interval(true);
    assert_eq!((reached.high, reached.half_width()), (1.0, None));
    assert!((reached.low - 0.13).abs() < 1e-9);
    figure.series[0].points = vec![reached];
    let svg = svg_file(&figure);
    assert!(svg.contains("0.91 (0.13 to 1.00)&#10;n = 10"), "{svg}");
    assert_eq!(
        measured_point(0.0, 0.91, 0.78).clamp_interval(false).high,
        0.91 + 0.78,
        "two for each may be more than one"
    );
    assert_eq!(
        measured_point(0.0, 0.5, f64::INFINITY).clamp_interval(true).interval(),
        None,
        "an unknown one stays so"
    );
}

#[test]
fn names_that_do_not_fit_side_by_side_are_turned() {
    let mut figure = small_figure();
    let long = |n: usize| format!("Diameter over TCP, number {n}");
    figure.x = FigureAxis::with_categories("Method", (0..12).map(long));
    assert_eq!(svg_file(&figure).matches("rotate(-35)").count(), 12);
    figure.x = FigureAxis::with_categories("Method", ["a", "b"]);
    assert!(!svg_file(&figure).contains("rotate"));
}

#[test]
fn boxes_traces_and_other_runs_have_their_shapes() {
    let mut figure = small_figure();
    let of = |kind| FigureSeries {
        kind,
        points: vec![
            SeriesPoint::from_box_values(0.0, &[1.0, 2.0, 3.0, 4.0, 9.0]),
            measured_point(10.0, 1.0, 0.1),
        ],
        ..FigureSeries::default()
    };
    figure.series = vec![
        of(SeriesKind::Box),
        of(SeriesKind::Trace),
        FigureSeries { name: "RADIUS/UDP (B)".into(), ..of(SeriesKind::Other) },
    ];
    let svg = svg_file(&figure);
    assert_nested(&svg);
    assert_eq!(svg.matches("class=\"box\"").count(), 1);
    assert!(svg.contains("quartiles 2 and 4, all 1 to 9") && svg.contains("series other"));
}
