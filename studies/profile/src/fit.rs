//! Derives the cost of each kind of work from the cost of whole logins.

/// The measured cost of a login, and its units of work.
#[derive(Clone, PartialEq, Debug)]
pub struct CostEquation {
    /// Units of each unknown, in the order of unknowns.
    pub units: Vec<f64>,
    /// Total cost, above zero.
    pub cost: f64,
    /// Weight of its error, above zero.
    pub weight: f64,
}

/// The costs with the best fit.
#[derive(Clone, PartialEq, Debug)]
pub struct FittedCosts {
    /// Cost of each unknown, zero or more.
    pub costs: Vec<f64>,
    /// Computed cost of each equation, as a share of the measured cost.
    pub accounted: Vec<f64>,
    /// Weighted sum of the squared relative errors.
    pub squares: f64,
    /// Standard error of each unknown's cost, taking all equations to be as precise as they are on average. `None` for
    /// a given cost.
    pub errors: Vec<Option<f64>>,
    /// Degrees of freedom: equations minus unknowns without a given cost. At zero, errors are unknown.
    pub freedom: usize,
}

/// Minimum share of an unknown's units that the other unknowns leave unexplained. Below it, an error of measurement
/// makes an error of the cost fifty times as large.
const MIN_UNEXPLAINED_FRACTION: f64 = 0.02;
/// Limit of the growth of the sum of squares when an unknown is omitted. Nearly proportional units can fit errors a
/// little.
const WORSE: f64 = 1.25;
/// The same for exact fits: a relative error of 0.001 per equation.
const NOTHING: f64 = 1e-6;

/// Rounds of the descent: more than any known profile needs.
const ROUNDS: usize = 200_000;

/// Returns the non-negative costs that minimise the weighted sum of squared relative errors. Unknowns with a cost in
/// `given` keep it. If given costs exceed the measured cost of an equation, all of them shrink by the same factor.
///
/// This is a coordinate descent from zero in a fixed order, so the same equations give the same bits. If unknowns are
/// indistinguishable, the split between them is arbitrary ([`find_redundant_unknowns`]).
#[must_use]
pub fn solve_costs(equations: &[CostEquation], given: &[Option<f64>]) -> FittedCosts {
    // Given costs may exceed a login's total, because they were measured at another time than the logins.
    let fixed =
        |e: &CostEquation| -> f64 { e.units.iter().zip(given).map(|(u, g)| u * g.unwrap_or(0.0)).sum() };
    let most = equations.iter().map(|e| fixed(e) / e.cost).fold(0.0, f64::max);
    let shrunk = if most > 1.0 { 1.0 / most } else { 1.0 };
    let mut costs: Vec<f64> = given.iter().map(|g| g.unwrap_or(0.0) * shrunk).collect();
    let rows = relative_rows(equations);
    let goal: Vec<f64> = equations.iter().map(|e| e.weight.sqrt()).collect();
    let columns: Vec<Vec<f64>> = (0..given.len()).map(|at| column_values(&rows, at)).collect();
    let products: Vec<Vec<f64>> =
        columns.iter().map(|a| columns.iter().map(|b| dot_product(a, b)).collect()).collect();
    let wanted: Vec<f64> = columns.iter().map(|column| dot_product(column, &goal)).collect();
    for _ in 0..ROUNDS {
        let mut moved = 0.0_f64;
        for (at, given) in given.iter().enumerate() {
            let square = products[at][at];
            if given.is_some() || square <= 0.0 {
                continue;
            }
            let slope = wanted[at] - dot_product(&products[at], &costs);
            let new = (costs[at] + slope / square).max(0.0);
            let step = new - costs[at];
            costs[at] = new;
            moved = moved.max(step.abs() * square.sqrt());
        }
        if moved < 1e-12 {
            break;
        }
    }
    let left: Vec<f64> = rows.iter().zip(&goal).map(|(row, goal)| goal - dot_product(row, &costs)).collect();
    let accounted: Vec<f64> = equations.iter().map(|e| dot_product(&e.units, &costs) / e.cost).collect();
    let unknown: Vec<usize> = (0..given.len()).filter(|at| given[*at].is_none()).collect();
    let freedom = equations.len().saturating_sub(unknown.len());
    // The variance ignores the weights: a weight states how much an error counts, not how small it is.
    let off = |share: &f64| (1.0 - share) * (1.0 - share);
    let variance = accounted.iter().map(off).sum::<f64>() / freedom as f64;
    let error = |at: usize| {
        let mut others = Vec::new();
        unknown.iter().filter(|other| **other != at).for_each(|other| {
            extend_basis(&mut others, column_values(&rows, *other));
        });
        let own = orthogonal_component(&others, &column_values(&rows, at));
        let passed_on: f64 = own.iter().zip(&goal).map(|(own, goal)| (own * goal) * (own * goal)).sum();
        (variance * passed_on).sqrt() / squared_norm(&own)
    };
    let errors = given.iter().enumerate().map(|(at, given)| given.is_none().then(|| error(at))).collect();
    FittedCosts { costs, accounted, squares: squared_norm(&left), errors, freedom }
}

/// Returns the unknowns among the first `kinds` that need no cost. The equations cannot distinguish them from others of
/// these, and fit as well without them. Later unknowns are removed first, so the first of several indistinguishable
/// ones stays.
#[must_use]
pub fn find_redundant_unknowns(equations: &[CostEquation], given: &[Option<f64>], kinds: usize) -> Vec<bool> {
    let rows = relative_rows(equations);
    let mut given = given.to_vec();
    let mut spare = vec![false; given.len()];
    let weights: f64 = equations.iter().map(|e| e.weight).sum();
    let most = solve_costs(equations, &given).squares * WORSE + weights * NOTHING;
    for at in (0..kinds).rev().filter(|at| given[*at].is_none()).collect::<Vec<_>>() {
        let mut others = Vec::new();
        for (other, given) in given.iter().enumerate().take(kinds) {
            if other != at && given.is_none() {
                extend_basis(&mut others, column_values(&rows, other));
            }
        }
        if extend_basis(&mut others, column_values(&rows, at)) {
            continue;
        }
        given[at] = Some(0.0);
        spare[at] = solve_costs(equations, &given).squares <= most;
        if !spare[at] {
            given[at] = None;
        }
    }
    spare
}

/// Returns the units per unit of cost, scaled by weight: errors become weighted relative errors.
fn relative_rows(equations: &[CostEquation]) -> Vec<Vec<f64>> {
    equations.iter().map(|e| e.units.iter().map(|u| e.weight.sqrt() * u / e.cost).collect()).collect()
}

fn column_values(rows: &[Vec<f64>], at: usize) -> Vec<f64> {
    rows.iter().map(|row| row[at]).collect()
}

/// Returns the part of a column orthogonal to an orthonormal basis.
fn orthogonal_component(basis: &[Vec<f64>], column: &[f64]) -> Vec<f64> {
    let mut rest = column.to_vec();
    for direction in basis {
        let along = dot_product(direction, &rest);
        rest.iter_mut().zip(direction).for_each(|(rest, d)| *rest -= along * d);
    }
    rest
}

/// Adds a column to the basis if it lies outside its span; returns true if it was added.
fn extend_basis(basis: &mut Vec<Vec<f64>>, column: Vec<f64>) -> bool {
    let rest = orthogonal_component(basis, &column);
    let (left, all) = (squared_norm(&rest).sqrt(), squared_norm(&column).sqrt());
    let beyond = left > all * MIN_UNEXPLAINED_FRACTION;
    if beyond {
        basis.push(rest.into_iter().map(|x| x / left).collect());
    }
    beyond
}

fn squared_norm(a: &[f64]) -> f64 {
    dot_product(a, a)
}

impl FittedCosts {
    /// Fits the cost of an omitted unknown, zero or more, beside the other costs.
    pub fn fit_omitted_cost(&mut self, equations: &[CostEquation], unknown: usize) {
        self.costs[unknown] = 0.0;
        let share = |e: &CostEquation| e.units[unknown] / e.cost;
        let left = |e: &CostEquation| 1.0 - dot_product(&e.units, &self.costs) / e.cost;
        let square: f64 = equations.iter().map(|e| e.weight * share(e) * share(e)).sum();
        let slope: f64 = equations.iter().map(|e| e.weight * share(e) * left(e)).sum();
        if square > 0.0 {
            self.costs[unknown] = (slope / square).max(0.0);
        }
        self.accounted = equations.iter().map(|e| dot_product(&e.units, &self.costs) / e.cost).collect();
    }
}

fn dot_product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_equation(units: &[f64], cost: f64) -> CostEquation {
        CostEquation { units: units.to_vec(), cost, weight: 1.0 }
    }
    fn is_near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6 * b.abs().max(1e-3)
    }

    #[test]
    fn methods_that_build_on_each_other_are_solved_exactly() {
        // A request, a digest and a TLS packet; the signature is given.
        let equations = [
            make_equation(&[1.0, 0.0, 0.0, 0.0], 10.0),
            make_equation(&[2.0, 1.0, 0.0, 0.0], 23.0),
            make_equation(&[9.0, 0.0, 8.0, 1.0], 90.0 + 8.0 * 5.0 + 600.0),
        ];
        let solved = solve_costs(&equations, &[None, None, None, Some(600.0)]);
        for (cost, right) in solved.costs.iter().zip([10.0, 3.0, 5.0, 600.0]) {
            assert!(is_near(*cost, right), "{solved:?}");
        }
        assert!(solved.accounted.iter().all(|share| is_near(*share, 1.0)), "{solved:?}");
    }

    #[test]
    fn what_a_wakeup_costs_comes_of_loads_that_differ() {
        // A login of 8, and 5 per wakeup.
        let at = |wakeups: f64| make_equation(&[1.0, wakeups], 8.0 + 5.0 * wakeups);
        let solved = solve_costs(&[at(1.0), at(0.6), at(0.2)], &[None, None]);
        assert!(is_near(solved.costs[0], 8.0) && is_near(solved.costs[1], 5.0), "{solved:?}");
    }

    #[test]
    fn no_cost_is_below_zero() {
        // The second method costs less than the first part of it: the rest is free, and both share the error.
        let solved =
            solve_costs(&[make_equation(&[1.0, 0.0], 10.0), make_equation(&[2.0, 1.0], 18.0)], &[None, None]);
        assert!(solved.costs[1] == 0.0 && (9.0..10.0).contains(&solved.costs[0]), "{solved:?}");
        assert!(solved.accounted[0] < 1.0 && solved.accounted[1] > 1.0, "{solved:?}");
    }

    #[test]
    fn what_was_left_out_has_what_is_left() {
        // The first unknown explains 8 of each, the second the rest.
        let equations = [make_equation(&[1.0, 1.0], 10.0), make_equation(&[1.0, 0.0], 8.0)];
        let of = |costs: [f64; 2]| FittedCosts {
            costs: costs.to_vec(),
            accounted: Vec::new(),
            squares: 0.0,
            errors: vec![None; 2],
            freedom: 0,
        };
        let mut solved = of([8.0, 5.0]);
        solved.fit_omitted_cost(&equations, 1);
        assert!(is_near(solved.costs[1], 2.0) && is_near(solved.accounted[0], 1.0), "{solved:?}");
        let mut too_much = of([20.0, 0.0]);
        too_much.fit_omitted_cost(&equations, 1);
        assert_eq!(too_much.costs, [20.0, 0.0]);
    }

    #[test]
    fn what_weighs_more_is_met_better() {
        let of = |cost: f64, weight: f64| CostEquation { weight, ..make_equation(&[1.0], cost) };
        let solved = solve_costs(&[of(10.0, 100.0), of(20.0, 1.0)], &[None]);
        // The mean of both, with weights 100 / 10² and 1 / 20².
        assert!(
            is_near(solved.costs[0], (100.0 / 10.0 + 1.0 / 20.0) / (100.0 / 100.0 + 1.0 / 400.0)),
            "{solved:?}"
        );
    }

    /// Messages, IKE_SAs, RADIUS requests and key derivations of a gateway.
    const PSK: [f64; 4] = [6.0, 1.0, 0.0, 3.0];
    const EAP_MD5: [f64; 4] = [10.0, 1.0, 2.0, 2.0];
    const EAP_MSCHAPV2: [f64; 4] = [14.0, 1.0, 4.0, 3.0];
    const PSK_PROBED: [f64; 4] = [22.0, 1.0, 0.0, 3.0];

    /// Costs of messages, IKE_SAs, RADIUS requests and key derivations.
    const COSTS: [f64; 4] = [7.0, 40.0, 25.0, 0.5];

    fn redundant_kinds_of(all: &[[f64; 4]]) -> Vec<bool> {
        let equations: Vec<CostEquation> =
            all.iter().map(|units| make_equation(units, dot_product(units, &COSTS))).collect();
        find_redundant_unknowns(&equations, &[None; 4], 4)
    }

    #[test]
    fn logins_alone_do_not_separate_message_request_and_fixed_costs() {
        assert_eq!(redundant_kinds_of(&[PSK]), [false, true, true, true]);
        // With EAP, each two IKE messages go with one RADIUS request: no method distinguishes them. The cost of an
        // IKE_SA is then part of its messages, and the costs of the methods are right.
        assert_eq!(redundant_kinds_of(&[PSK, EAP_MD5]), [false, true, false, true]);
        assert!(redundant_kinds_of(&[PSK, EAP_MD5, EAP_MSCHAPV2])[1]);
        // Additional requests distinguish them.
        assert_eq!(redundant_kinds_of(&[PSK, PSK_PROBED]), [false, false, true, true]);
        assert_eq!(redundant_kinds_of(&[PSK, PSK_PROBED, EAP_MD5]), [false, false, false, true]);
    }

    /// EAP adds requests to the AAA server and saves key derivations. No cost is below zero, so the sign of its own cost
    /// decides which of both has it.
    #[test]
    fn eap_cheaper_than_its_messages_is_priced_by_derivations() {
        let of = |costs: [f64; 4]| {
            let equations = [PSK, PSK_PROBED, EAP_MD5].map(|u| make_equation(&u, dot_product(&u, &costs)));
            find_redundant_unknowns(&equations, &[None; 4], 4)
        };
        assert_eq!(of([7.0, 40.0, 25.0, 0.5]), [false, false, false, true]);
        assert_eq!(of([7.0, 40.0, 0.0, 20.0]), [false, false, true, false]);
    }

    #[test]
    fn what_the_equations_are_not_met_without_stays() {
        // A login by TLS costs far more than its requests by MD5: TLS packets get a cost, and the digest needs none.
        let equations = [make_equation(&[2.0, 1.0, 0.0], 16.0), make_equation(&[7.0, 0.0, 6.0], 200.0)];
        assert_eq!(find_redundant_unknowns(&equations, &[None; 3], 3), [false, true, false]);
        // A given cost stays and has no effect on the others.
        assert_eq!(find_redundant_unknowns(&equations, &[Some(1.0), None, None], 3), [false; 3]);
        // Only kinds of work can be omitted.
        assert_eq!(find_redundant_unknowns(&[make_equation(&[1.0, 1.0], 2.0)], &[None; 2], 1), [false; 2]);
        assert_eq!(find_redundant_unknowns(&[make_equation(&[1.0, 1.0], 2.0)], &[None; 2], 2), [false, true]);
    }

    #[test]
    fn three_costs_are_solved_from_logins_with_further_messages() {
        let costs = [7.0, 40.0, 25.0, 0.0];
        let of = |units: &[f64; 4]| make_equation(units, dot_product(units, &costs));
        let equations = [of(&PSK), of(&PSK_PROBED), of(&EAP_MD5), of(&EAP_MSCHAPV2)];
        let solved = solve_costs(&equations, &[None, None, None, Some(0.0)]);
        for (cost, right) in solved.costs.iter().zip(costs) {
            assert!((cost - right).abs() < 1e-3, "{solved:?}");
        }
        assert!(solved.errors.iter().take(3).all(|error| error.is_some_and(|e| e < 1e-3)), "{solved:?}");
    }

    /// Compares the errors with the textbook's variance of a coefficient, for two balanced kinds.
    #[test]
    fn errors_are_those_of_least_squares() {
        let equations = [
            make_equation(&[1.0, 0.0], 1.0),
            make_equation(&[1.0, 0.0], 1.2),
            make_equation(&[0.0, 1.0], 1.0),
            make_equation(&[0.0, 1.0], 0.8),
        ];
        let solved = solve_costs(&equations, &[None, None]);
        assert_eq!(solved.freedom, 2);
        let variance = |units: usize| -> f64 {
            let share = |e: &CostEquation| e.units[units] / e.cost;
            equations.iter().map(|e| share(e) * share(e)).sum()
        };
        let left: f64 = solved.accounted.iter().map(|share| (1.0 - share) * (1.0 - share)).sum();
        for at in 0..2 {
            let expected = (left / 2.0 / variance(at)).sqrt();
            assert!(is_near(solved.errors[at].unwrap(), expected), "{solved:?} {expected}");
        }
        // Nearly proportional kinds have far larger errors.
        let together = |a: f64, cost: f64| make_equation(&[1.0, a], cost);
        let solved =
            solve_costs(&[together(1.0, 2.0), together(1.1, 2.1), together(0.95, 1.9)], &[None, None]);
        assert!(solved.errors.iter().all(|error| error.unwrap() > 0.1), "{solved:?}");
        // The weight of an equation does not reduce its error.
        let weighs = |cost: f64, weight: f64| CostEquation { weight, ..make_equation(&[1.0], cost) };
        let solved = solve_costs(&[weighs(1.0, 100.0), weighs(1.1, 1.0), weighs(0.9, 1.0)], &[None]);
        assert!((0.09..0.11).contains(&solved.errors[0].unwrap()), "{solved:?}");
        // With as many unknowns as equations, errors are unknown.
        let none = solve_costs(&[make_equation(&[1.0], 1.0)], &[None]);
        assert!(none.freedom == 0 && !none.errors[0].unwrap().is_finite(), "{none:?}");
        assert_eq!(solve_costs(&equations, &[Some(1.0), None]).errors[0], None);
    }

    #[test]
    fn given_costs_shrink_to_what_there_is() {
        let solved = solve_costs(&[make_equation(&[1.0, 1.0], 100.0)], &[None, Some(200.0)]);
        assert_eq!((solved.costs[0], solved.costs[1]), (0.0, 100.0));
        assert_eq!(solve_costs(&[], &[None, Some(2.0)]).costs, [0.0, 2.0]);
    }
}
