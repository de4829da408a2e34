//! A point as a user types it: `loss=5 %; protocol=diameter`.

use usher_observe::GridPoint;

/// Formats the point in the order of its axes; empty for a point without axes.
pub fn format_point(point: &GridPoint) -> String {
    let pairs: Vec<String> = point.axes().map(|(axis, value)| format!("{axis}={value}")).collect();
    pairs.join("; ")
}

/// Returns the index of the one point that the text names. Semicolons or commas separate the axes, in any order. Axes
/// that are not needed to identify the point may be absent.
///
/// # Errors
/// The fault of the text, and a correct example.
pub fn find_point<'a>(points: impl IntoIterator<Item = &'a GridPoint>, text: &str) -> Result<usize, String> {
    let points: Vec<&GridPoint> = points.into_iter().collect();
    let tight = |s: &str| s.split([';', ',']).map(str::trim).collect::<Vec<_>>().join(",");
    // A value may contain commas and equals signs: try the whole key first.
    if let Some(place) = points.iter().position(|p| tight(&format_point(p)) == tight(text)) {
        return Ok(place);
    }
    let mut left: Vec<usize> = (0..points.len()).collect();
    for pair in split_axis_settings(text) {
        let Some((axis, value)) = pair.split_once('=').map(|(a, v)| (a.trim(), v.trim())) else {
            return Err(format!("\"{pair}\" is not axis=value, such as {}", example_key(&points)));
        };
        if !points.iter().any(|p| p.get(axis).is_some()) {
            let mut axes: Vec<&str> = points.iter().flat_map(|p| p.axes().map(|(a, _)| a)).collect();
            axes.sort_unstable();
            axes.dedup();
            return Err(format!("the study has no axis \"{axis}\"; its axes are {}", axes.join(", ")));
        }
        let before = std::mem::take(&mut left);
        left = before.iter().copied().filter(|&i| points[i].get(axis) == Some(value)).collect();
        if left.is_empty() {
            let mut values: Vec<&str> = Vec::new();
            for v in before.iter().filter_map(|&i| points[i].get(axis)) {
                if !values.contains(&v) {
                    values.push(v);
                }
            }
            return Err(format!("no point has {axis}={value}; values there are {}", values.join(", ")));
        }
    }
    match left[..] {
        [place] => Ok(place),
        [] => Err("the plan has no points".to_owned()),
        [first, second, ..] => Err(format!(
            "{} points match; say which, for example '{}' or '{}'",
            left.len(),
            format_point(points[first]),
            format_point(points[second])
        )),
    }
}

/// Splits the text at semicolons, or else at commas before another axis.
fn split_axis_settings(text: &str) -> Vec<String> {
    let mut pairs: Vec<String> = Vec::new();
    let mark = if text.contains(';') { ';' } else { ',' };
    for part in text.split(mark).map(str::trim).filter(|p| !p.is_empty()) {
        match pairs.last_mut() {
            Some(before) if mark == ',' && !part.contains('=') => {
                before.push_str(", ");
                before.push_str(part);
            }
            _ => pairs.push(part.to_owned()),
        }
    }
    pairs
}

fn example_key(points: &[&GridPoint]) -> String {
    points.first().map_or_else(String::new, |p| format!("'{}'", format_point(p)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_grid() -> Vec<GridPoint> {
        let point = |loss: &str, policy: &str| GridPoint::new([("loss", loss), ("policy", policy)]);
        vec![point("0 %", "a"), point("0 %", "b, c=d"), point("5 %", "a"), point("5 %", "b, c=d")]
    }

    #[test]
    fn every_point_is_found_by_its_key() {
        let grid = test_grid();
        for (i, point) in grid.iter().enumerate() {
            assert_eq!(find_point(&grid, &format_point(point)), Ok(i));
        }
        assert_eq!(find_point(&grid, " policy = a , loss = 5 % "), Ok(2));
        assert_eq!(find_point(&grid[..2], "policy=b, c=d; loss=0 %"), Ok(1));
        let named = [GridPoint::new([("p", "UDP, RFC 5080")]), GridPoint::new([("p", "TCP")])];
        assert_eq!(find_point(&named, "p=UDP, RFC 5080"), Ok(0));
        assert_eq!(find_point(&grid[..1], ""), Ok(0));
        assert_eq!(find_point(&[GridPoint::default()], ""), Ok(0));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let grid = test_grid();
        for (text, say) in [
            ("loss", "\"loss\" is not axis=value, such as 'loss=0 %; policy=a'"),
            ("los=5 %", "the study has no axis \"los\"; its axes are loss, policy"),
            ("loss=7 %", "no point has loss=7 %; values there are 0 %, 5 %"),
            (
                "loss=5 %",
                "2 points match; say which, for example 'loss=5 %; policy=a' or 'loss=5 %; policy=b, c=d'",
            ),
        ] {
            assert_eq!(find_point(&grid, text).unwrap_err(), say);
        }
    }
}
