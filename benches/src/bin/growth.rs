//! Measures the growth of time and memory with the number of stations at constant utilisation: `bench-tcp-100` with
//! 100 to a million clients. The shared link and queues grow with them.

use serde_json::{Value, json};
use std::process::ExitCode;
use usher_benches::{
    MeasuredRun, STUDY, dialogues_per_station, main as bench, median, network_settings, timed_run_settings,
};
use usher_report::{FigureAxis, FigureSeries, ReportFigure, SeriesPoint};

const SIZES: [u64; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];
/// The largest factor by which the time of a packet-hop may grow from 10² stations to this number.
const GROWTH: [(u64, f64); 3] = [(10_000, 1.5), (100_000, 2.5), (1_000_000, 3.0)];
/// The limit of a station's memory in bytes, with everything that [`ScalingMeasurement::station`] counts. It is 1433, 1392
/// and 1368 for 10⁴ (median of 15 runs), 10⁵ and 10⁶ stations. It does not fall monotonically, since tables double at
/// powers of two: 1385 for 8000 stations, 1467 for 8500, 1383 for 14,000, 1461 for 17,000.
const STATION: f64 = 1400.0;
/// The limit of an idle connection's memory in bytes: both ends and its share of the tables.
const CONNECTION: f64 = 1024.0;
/// The minimum number of stations for which the memory of a station exceeds page granularity.
const ENOUGH: u64 = 10_000;
/// The file of the figure.
const FIGURE: &str = "growth.svg";

struct ScalingMeasurement {
    stations: u64,
    /// Time of a packet-hop.
    nanoseconds: f64,
    /// Memory of a station with its host, link, application and idle connection.
    station: f64,
    /// Memory of an idle connection.
    connection: f64,
}

/// Returns settings for a run in which every client opens its connection and stays idle. The run ends when the first
/// dialogue begins.
fn idle_station_settings(stations: u64, transport: &str) -> Vec<String> {
    let mut set = network_settings(stations);
    set.push(format!("workload.transport={transport}"));
    set.push("workload.arrivals.start=5 s".into());
    set.push("run.duration=5000000001 ns".into());
    set
}

fn measure_growth(stations: u64, runs: usize) -> Result<ScalingMeasurement, String> {
    let timed = (0..runs)
        .map(|_| {
            MeasuredRun::run_in_child(STUDY, &timed_run_settings(stations, dialogues_per_station(stations)))
        })
        .collect::<Result<Vec<_>, _>>()?;
    // A peak of 22 MB varies by 0.2 MB between runs.
    let memory = |stations, transport: &str| -> Result<f64, String> {
        let peak = || {
            Ok(MeasuredRun::run_in_child(STUDY, &idle_station_settings(stations, transport))?.peak_rss_bytes
                as f64)
        };
        Ok(median((0..runs).map(|_| peak()).collect::<Result<Vec<_>, String>>()?))
    };
    // Compared with one station over the same transport, since the program's own memory for TCP, mostly code, belongs
    // to no station. It is 29 kB, 3 bytes for each of 10⁴ stations (8.42 MB with TCP, 8.39 MB with UDP, medians of
    // 15).
    let more = |transport: &str| -> Result<f64, String> {
        Ok((memory(stations, transport)? - memory(1, transport)?) / (stations - 1) as f64)
    };
    let (with, without) = (more("tcp")?, more("udp")?);
    Ok(ScalingMeasurement {
        stations,
        nanoseconds: median(timed.iter().map(|r| 1e9 / r.packet_hop_rate())),
        station: with,
        connection: with - without,
    })
}

fn growth_figure(sizes: &[ScalingMeasurement]) -> ReportFigure {
    let points = sizes.iter().map(|s| SeriesPoint::from_exact(s.stations as f64, s.nanoseconds)).collect();
    ReportFigure {
        name: "growth".into(),
        title: "Time of a packet-hop over the number of stations, at constant utilisation".into(),
        x: FigureAxis::new("Stations", "").with_log_scale(),
        y: FigureAxis::new("Time of a packet-hop", "ns"),
        series: vec![FigureSeries { name: STUDY.into(), points, ..FigureSeries::default() }],
        panels: Vec::new(),
    }
}

fn exceeded_growth_limits(sizes: &[ScalingMeasurement]) -> Vec<String> {
    let mut missed = Vec::new();
    let time = |stations| sizes.iter().find(|s| s.stations == stations).map_or(f64::NAN, |s| s.nanoseconds);
    for (stations, limit) in GROWTH {
        let ratio = time(stations) / time(SIZES[0]);
        if ratio.is_nan() || ratio > limit {
            missed.push(format!(
                "{stations} stations: a packet-hop takes {ratio:.2} times as long as with {}, of at most {limit}",
                SIZES[0]
            ));
        }
    }
    for s in sizes.iter().filter(|s| s.stations >= ENOUGH) {
        for (what, bytes, limit) in
            [("a station", s.station, STATION), ("an idle connection", s.connection, CONNECTION)]
        {
            if bytes.is_nan() || bytes > limit {
                missed
                    .push(format!("{} stations: {bytes:.0} bytes for {what} of at most {limit}", s.stations));
            }
        }
    }
    missed
}

fn main() -> ExitCode {
    bench(3, |arguments| {
        if !arguments.json {
            println!("stations  ns per packet-hop  times 10²  bytes per station  bytes per idle connection");
        }
        let mut sizes: Vec<ScalingMeasurement> = Vec::new();
        for stations in SIZES {
            let size = measure_growth(stations, arguments.runs)?;
            if !arguments.json {
                let ratio = size.nanoseconds / sizes.first().map_or(size.nanoseconds, |s| s.nanoseconds);
                let memory = if stations >= ENOUGH {
                    format!("{:17.0}  {:25.0}", size.station, size.connection)
                } else {
                    format!("{:>17}  {:>25}", "-", "-")
                };
                println!("{stations:8}  {:17.1}  {ratio:9.2}  {memory}", size.nanoseconds);
            }
            sizes.push(size);
        }
        std::fs::write(FIGURE, growth_figure(&sizes).to_svg())
            .map_err(|e| format!("cannot write {FIGURE}: {e}"))?;
        if !arguments.json {
            println!("The figure is {FIGURE}.");
        }
        let rows: Vec<Value> = sizes
            .iter()
            .map(|s| {
                let of_enough = |bytes: f64| (s.stations >= ENOUGH).then_some(bytes);
                json!({
                    "stations": s.stations,
                    "ns_per_packet_hop": s.nanoseconds,
                    "bytes_per_station": of_enough(s.station),
                    "bytes_per_idle_connection": of_enough(s.connection),
                })
            })
            .collect();
        Ok((json!(rows), exceeded_growth_limits(&sizes)))
    })
}
