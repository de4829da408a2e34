//! From what logins cost as a whole to what each kind of work costs.

/// What one login was measured to cost, and of what it is made.
#[derive(Clone, PartialEq, Debug)]
pub struct Equation {
    /// Units of each unknown, in the order of the unknowns.
    pub units: Vec<f64>,
    /// What they cost together, above zero.
    pub cost: f64,
    /// How much its error counts, above zero.
    pub weight: f64,
}

/// The costs that fit best.
#[derive(Clone, PartialEq, Debug)]
pub struct Solution {
    /// Of each unknown, zero or more.
    pub costs: Vec<f64>,
    /// What they give for each equation, as a share of its cost.
    pub accounted: Vec<f64>,
}

/// Rounds of the descent. Each brings the costs nearer; this many are more than any profile was seen to need.
const ROUNDS: usize = 20_000;

/// The costs, none below zero, for which the sum of the squares of the equations' relative errors, by their weights, is least. Unknowns for which
/// `given` has a cost keep that one, but for when all that an equation has together is more than it was measured to cost: then the
/// given ones shrink, all by the same factor.
///
/// Coordinate descent from zero, in a fixed order: the same equations give the same bits, and of unknowns that nothing tells apart
/// the first gets all.
#[must_use]
pub fn solve(equations: &[Equation], given: &[Option<f64>]) -> Solution {
    // What is given may be more than there is: a machine's reference was taken at another moment than its logins.
    let fixed = |e: &Equation| -> f64 { e.units.iter().zip(given).map(|(u, g)| u * g.unwrap_or(0.0)).sum() };
    let most = equations.iter().map(|e| fixed(e) / e.cost).fold(0.0, f64::max);
    let shrunk = if most > 1.0 { 1.0 / most } else { 1.0 };
    let mut costs: Vec<f64> = given.iter().map(|g| g.unwrap_or(0.0) * shrunk).collect();
    // Relative errors: each row is divided by its cost.
    let root = |e: &Equation| e.weight.sqrt();
    let rows: Vec<Vec<f64>> =
        equations.iter().map(|e| e.units.iter().map(|u| root(e) * u / e.cost).collect()).collect();
    let mut left: Vec<f64> = rows.iter().zip(equations).map(|(row, e)| root(e) - dot(row, &costs)).collect();
    for _ in 0..ROUNDS {
        let mut moved = 0.0_f64;
        for (at, given) in given.iter().enumerate() {
            let square: f64 = rows.iter().map(|row| row[at] * row[at]).sum();
            if given.is_some() || square <= 0.0 {
                continue;
            }
            let slope: f64 = rows.iter().zip(&left).map(|(row, left)| row[at] * left).sum();
            let new = (costs[at] + slope / square).max(0.0);
            let step = new - costs[at];
            costs[at] = new;
            for (row, left) in rows.iter().zip(&mut left) {
                *left -= row[at] * step;
            }
            moved = moved.max(step.abs() * square.sqrt());
        }
        if moved < 1e-12 {
            break;
        }
    }
    let accounted = rows.iter().zip(equations).map(|(row, e)| dot(row, &costs) / root(e)).collect();
    Solution { costs, accounted }
}

impl Solution {
    /// Gives one unknown, which was left out, the cost that fits best beside those of the others, zero or more.
    pub fn fit(&mut self, equations: &[Equation], unknown: usize) {
        self.costs[unknown] = 0.0;
        let share = |e: &Equation| e.units[unknown] / e.cost;
        let left = |e: &Equation| 1.0 - dot(&e.units, &self.costs) / e.cost;
        let square: f64 = equations.iter().map(|e| e.weight * share(e) * share(e)).sum();
        let slope: f64 = equations.iter().map(|e| e.weight * share(e) * left(e)).sum();
        if square > 0.0 {
            self.costs[unknown] = (slope / square).max(0.0);
        }
        self.accounted = equations.iter().map(|e| dot(&e.units, &self.costs) / e.cost).collect();
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn equation(units: &[f64], cost: f64) -> Equation {
        Equation { units: units.to_vec(), cost, weight: 1.0 }
    }
    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6 * b.abs().max(1e-3)
    }

    #[test]
    fn methods_that_build_on_each_other_are_solved_exactly() {
        // A request, a digest, a packet of TLS; the signature is given.
        let equations = [
            equation(&[1.0, 0.0, 0.0, 0.0], 10.0),
            equation(&[2.0, 1.0, 0.0, 0.0], 23.0),
            equation(&[9.0, 0.0, 8.0, 1.0], 90.0 + 8.0 * 5.0 + 600.0),
        ];
        let solved = solve(&equations, &[None, None, None, Some(600.0)]);
        for (cost, right) in solved.costs.iter().zip([10.0, 3.0, 5.0, 600.0]) {
            assert!(near(*cost, right), "{solved:?}");
        }
        assert!(solved.accounted.iter().all(|share| near(*share, 1.0)), "{solved:?}");
    }

    #[test]
    fn what_a_wakeup_costs_comes_of_loads_that_differ() {
        // A login of 8, and 5 for each time that the server woke up for it.
        let at = |wakeups: f64| equation(&[1.0, wakeups], 8.0 + 5.0 * wakeups);
        let solved = solve(&[at(1.0), at(0.6), at(0.2)], &[None, None]);
        assert!(near(solved.costs[0], 8.0) && near(solved.costs[1], 5.0), "{solved:?}");
    }

    #[test]
    fn no_cost_is_below_zero() {
        // The second method costs less than the first part of it alone: the rest is free, and the error is shared.
        let solved = solve(&[equation(&[1.0, 0.0], 10.0), equation(&[2.0, 1.0], 18.0)], &[None, None]);
        assert!(solved.costs[1] == 0.0 && (9.0..10.0).contains(&solved.costs[0]), "{solved:?}");
        assert!(solved.accounted[0] < 1.0 && solved.accounted[1] > 1.0, "{solved:?}");
    }

    #[test]
    fn what_was_left_out_has_what_is_left() {
        // The first explains 8 of each, the second the rest.
        let equations = [equation(&[1.0, 1.0], 10.0), equation(&[1.0, 0.0], 8.0)];
        let mut solved = Solution { costs: vec![8.0, 5.0], accounted: Vec::new() };
        solved.fit(&equations, 1);
        assert!(near(solved.costs[1], 2.0) && near(solved.accounted[0], 1.0), "{solved:?}");
        let mut too_much = Solution { costs: vec![20.0, 0.0], accounted: Vec::new() };
        too_much.fit(&equations, 1);
        assert_eq!(too_much.costs, [20.0, 0.0]);
    }

    #[test]
    fn what_weighs_more_is_met_better() {
        let of = |cost: f64, weight: f64| Equation { weight, ..equation(&[1.0], cost) };
        let solved = solve(&[of(10.0, 100.0), of(20.0, 1.0)], &[None]);
        // The mean of both with weights of 100 / 10² and 1 / 20².
        assert!(
            near(solved.costs[0], (100.0 / 10.0 + 1.0 / 20.0) / (100.0 / 100.0 + 1.0 / 400.0)),
            "{solved:?}"
        );
    }

    #[test]
    fn given_costs_shrink_to_what_there_is() {
        let solved = solve(&[equation(&[1.0, 1.0], 100.0)], &[None, Some(200.0)]);
        assert_eq!((solved.costs[0], solved.costs[1]), (0.0, 100.0));
        assert_eq!(solve(&[], &[None, Some(2.0)]).costs, [0.0, 2.0]);
    }
}
