//! Markers: one shape for each series, so that series are distinguishable without colour.

/// An invisible point as a target for the pointer.
pub(super) const HIT: &str = "M-2 0a2 2 0 1 0 4 0a2 2 0 1 0 -4 0z";

const SHAPES: [&str; 6] = [
    "M-4.2 0a4.2 4.2 0 1 0 8.4 0a4.2 4.2 0 1 0 -8.4 0z",
    "M-3.8 -3.8h7.6v7.6h-7.6z",
    "M0 -5L4.7 3.4H-4.7z",
    "M0 -5.4L5.4 0L0 5.4L-5.4 0z",
    "M0 5L4.7 -3.4H-4.7z",
    "M-1.7 -4.6h3.4v2.9h2.9v3.4h-2.9v2.9h-3.4v-2.9h-2.9v-3.4h2.9z",
];

/// Returns the outline of this series' marker, around (0, 0). With seven colours and six shapes, pairs repeat after 42
/// series.
pub(super) fn marker_path(series: usize) -> &'static str {
    SHAPES[series % SHAPES.len()]
}
