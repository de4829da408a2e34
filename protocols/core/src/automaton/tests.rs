//! Small automata of both forms, and their pictures.

use super::*;
use std::collections::BTreeSet;
use std::panic::catch_unwind;

crate::names! {
    State { Off, Warming = "warming \"up\"", On, Cold, }
}
crate::names! {
    Event { Press, Tick, }
}
crate::names! {
    Guard { Warm = "t > 60 °C", Broken, }
}
crate::names! {
    Action { Heat, Glow, Hum, }
}
crate::automaton! {
    /// A valve.
    Valve("valve", "the manual, \\1"): State from Off, on Event if Guard, do Action;
    Off {
        Press if Broken => [] Cold;
        Press => [Heat] Warming;
        ! ignored [Tick]: "it has no clock";
    }
    Warming {
        Tick if Warm => [Glow, Hum] On;
        Tick => [Heat] Warming;
        Press => [] Off;
    }
    On {
        Press => [] Off;
        ! never [Tick]: "the clock has stopped";
    }
    Cold {
        ! ignored [Press]: "broken";
        ! ignored [Tick]: "broken";
    }
}
crate::automaton! {
    /// The same as a diagram.
    Boxes("boxes", "none"): State from Off, when Guard, do Action;
    Off { _ => Warming; }
    Warming [Heat, Hum] {
        Broken => Cold;
        Warm => On;
        ! waits: "for warmth";
    }
    On [Glow] {
        Broken => Cold;
        _ => Off;
    }
    Cold { ! ends: "for good"; }
}

fn state_after_press(guards: &[Guard]) -> Option<State> {
    Valve::step(State::Off, Event::Press, |guard| guards.contains(&guard)).map(|row| row.to)
}

#[test]
fn rows_are_looked_at_from_the_top() {
    assert_eq!(state_after_press(&[Guard::Broken]), Some(State::Cold));
    assert_eq!(state_after_press(&[Guard::Warm]), Some(State::Warming));
    let arrow = |state, guards: &[Guard]| Boxes::step(state, |g| guards.contains(&g)).map(|row| row.to);
    assert_eq!(arrow(State::Off, &[]), Some(State::Warming));
    assert_eq!(arrow(State::Warming, &[]), None);
    assert_eq!(arrow(State::Warming, &[Guard::Warm, Guard::Broken]), Some(State::Cold));
    assert_eq!(arrow(State::On, &[]), Some(State::Off));
    assert_eq!(arrow(State::Cold, &[Guard::Warm]), None);
    Boxes::cover(|| {
        for state in State::ALL {
            for guards in [&[][..], &[Guard::Warm], &[Guard::Broken]] {
                arrow(*state, guards);
            }
        }
    });
    assert_eq!(Boxes::entry(State::Warming), [Action::Heat, Action::Hum]);
    assert_eq!(Boxes::entry(State::Cold), []);
}

#[test]
fn a_table_prints_as_it_is_written() {
    let expected = "valve (the manual, \\1), from Off
  Off; Press & Broken; ; Cold
  Off; Press; Heat; warming \"up\"
  warming \"up\"; Tick & t > 60 °C; Glow, Hum; On
  warming \"up\"; Tick; Heat; warming \"up\"
  warming \"up\"; Press; ; Off
  On; Press; ; Off
  Off; ignored: Tick (it has no clock)
  On; cannot happen: Tick (the clock has stopped)
  Cold; ignored: Press (broken)
  Cold; ignored: Tick (broken)
";
    assert_eq!(Valve::DIAGRAM.to_string(), expected);
    let boxes = Boxes::DIAGRAM.to_string();
    assert!(boxes.contains("  on entering warming \"up\": Heat, Hum\n"), "{boxes}");
    assert!(boxes.ends_with("  warming \"up\"; waits (for warmth)\n  Cold; ends (for good)\n"), "{boxes}");
}

fn run_events(events: &[(Event, bool)]) {
    let mut state = State::Off;
    for (event, holds) in events {
        if let Some(row) = Valve::step(state, *event, |_| *holds) {
            state = row.to;
        }
    }
}
const PRESS: (Event, bool) = (Event::Press, false);
const TICK: (Event, bool) = (Event::Tick, false);
const WARM: (Event, bool) = (Event::Tick, true);

#[test]
fn coverage_fails_where_a_row_was_not_taken() {
    let whole = || {
        run_events(&[PRESS, PRESS, TICK, PRESS, TICK, WARM, PRESS]);
        run_events(&[(Event::Press, true), PRESS]);
    };
    Valve::cover(whole);
    let missing = catch_unwind(|| Valve::cover(|| run_events(&[PRESS, TICK]))).unwrap_err();
    let said = missing.downcast_ref::<String>().unwrap();
    assert!(said.contains("Off; Press & Broken; ; Cold") && !said.contains("Heat; warming"), "{said}");
    // A query is not a step.
    let asked = || {
        run_events(&[PRESS, TICK, WARM, PRESS, PRESS, PRESS]);
        assert!(Valve::find(State::Off, Event::Press, |_| true).is_some());
    };
    assert!(catch_unwind(|| Valve::cover(asked)).is_err());
    let never = || {
        whole();
        run_events(&[PRESS, WARM, TICK]);
    };
    let met = catch_unwind(|| Valve::cover(never)).unwrap_err();
    assert!(met.downcast_ref::<String>().unwrap().contains("happened and cannot"));
}

/// Splits a graph into tokens by the grammar of Graphviz. Quoted strings lose their quotes.
fn tokenize_dot(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => {
                let mut escaped = false;
                let end = rest[1..].find(|c| {
                    let ends = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                });
                end.expect("a string has an end") + 2
            }
            '-' => "->".len(),
            c if c.is_alphanumeric() => rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len()),
            '{' | '}' | '[' | ']' | ';' | '=' => 1,
            other => panic!("{other:?} is no token"),
        };
        tokens.push(rest[..length].to_string());
        rest = rest[length..].trim_start();
    }
    tokens
}

/// Returns the nodes and edges of a graph. Panics if the text is not a graph.
fn parse_graph(text: &str) -> (BTreeSet<String>, Vec<(String, String)>) {
    let tokens = tokenize_dot(text);
    let words: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let [b"digraph", name, b"{", inner @ .., b"}"] =
        &words.iter().map(|w| w.as_bytes()).collect::<Vec<_>>()[..]
    else {
        panic!("no graph: {text}")
    };
    assert!(name.starts_with(b"\""));
    let (mut nodes, mut edges) = (BTreeSet::new(), Vec::new());
    for statement in inner.split(|w| *w == b";").filter(|s| !s.is_empty()) {
        let statement: Vec<&str> = statement.iter().map(|w| core::str::from_utf8(w).unwrap()).collect();
        match statement[..] {
            ["label", "=", _] | ["node", "[", "shape", "=", "box", "]"] => {}
            [node, "[", "label" | "shape", "=", _, "]"] => assert!(nodes.insert(node.to_string())),
            [from, "->", to] | [from, "->", to, "[", "label", "=", _, "]"] => {
                edges.push((from.to_string(), to.to_string()));
            }
            _ => panic!("no statement: {statement:?}"),
        }
    }
    assert!(edges.iter().all(|(from, to)| nodes.contains(from) && nodes.contains(to)), "{text}");
    (nodes, edges)
}

#[test]
fn a_picture_is_a_graph_of_all_states_and_rows() {
    for diagram in [Valve::DIAGRAM, Boxes::DIAGRAM] {
        let (nodes, edges) = parse_graph(&diagram.to_dot().to_string());
        assert_eq!((nodes.len(), edges.len()), (diagram.boxes.len() + 1, diagram.lines.len() + 1));
    }
    let text = Boxes::DIAGRAM.to_dot().to_string();
    for line in [
        r#"  "Off" -> "warming \"up\"" [label="UCT"];"#,
        r#"  "warming \"up\"" [label="warming \"up\"\nHeat\nHum"];"#,
        r#"  "warming \"up\"" -> "On" [label="t > 60 °C"];"#,
        r#"  "On" -> "Off" [label="else"];"#,
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let text = Valve::DIAGRAM.to_dot().to_string();
    assert!(text.contains(r#"label="valve\nthe manual, \\1";"#), "{text}");
    assert!(text.contains(r#"  "Off" -> "Cold" [label="Press & Broken"];"#), "{text}");
}
