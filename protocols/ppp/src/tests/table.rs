//! Compares the automaton with RFC 1661's table, cell by cell.

use crate::automaton::{Event, OptionNegotiation, State};

/// RFC 1661 §4.1, a line per cell: states 0 to 5, then 6 to 9.
const TABLE: &str = "\
Up   | 2     irc,scr/6   -       -               -       -     | -           -           -           -
Down | -     -           0       tls/1           0       1     | 1           1           1           tld/1
Open | tls/1 1           irc,scr/6 3r            5r      5r    | 6           7           8           9r
Close| 0     tlf/0       2       2               4       4     | irc,str/4   irc,str/4   irc,str/4   tld,irc,str/4
TO+  | -     -           -       -               str/4   str/5 | scr/6       scr/6       scr/8       -
TO-  | -     -           -       -               tlf/2   tlf/3 | tlf/3p      tlf/3p      tlf/3p      -
RCR+ | -     -           sta/2   irc,scr,sca/8   4       5     | sca/8       sca,tlu/9   sca/8       tld,scr,sca/8
RCR- | -     -           sta/2   irc,scr,scn/6   4       5     | scn/6       scn/7       scn/6       tld,scr,scn/6
RCA  | -     -           sta/2   sta/3           4       5     | irc/7       scr/6x      irc,tlu/9   tld,scr/6x
RCN  | -     -           sta/2   sta/3           4       5     | irc,scr/6   scr/6x      irc,scr/8   tld,scr/6x
RTR  | -     -           sta/2   sta/3           sta/4   sta/5 | sta/6       sta/6       sta/6       tld,zrc,sta/5
RTA  | -     -           2       3               tlf/2   tlf/3 | 6           6           8           tld,scr/6
RUC  | -     -           scj/2   scj/3           scj/4   scj/5 | scj/6       scj/7       scj/8       scj/9
RXJ+ | -     -           2       3               4       5     | 6           6           8           9
RXJ- | -     -           tlf/2   tlf/3           tlf/2   tlf/3 | tlf/3       tlf/3       tlf/3       tld,irc,str/5
RXR  | -     -           2       3               4       5     | 6           7           8           ser/9";

#[test]
fn the_table_is_the_rfcs() {
    OptionNegotiation::cover(|| {
        for (line, &event) in TABLE.lines().zip(Event::ALL) {
            let (name, cells) = line.split_once('|').unwrap();
            assert_eq!(name.trim(), event.name());
            let cells: Vec<&str> = cells.split_whitespace().filter(|cell| *cell != "|").collect();
            assert_eq!(cells.len(), State::ALL.len(), "{name}");
            for (&state, cell) in State::ALL.iter().zip(cells) {
                if cell == "-" {
                    assert!(OptionNegotiation::find(state, event, |_| true).is_none(), "{state:?}, {name}");
                    continue;
                }
                let row =
                    OptionNegotiation::step(state, event).unwrap_or_else(|| panic!("{state:?}, {name}"));
                let actions: Vec<&str> = row.actions.iter().map(|action| action.name()).collect();
                let slash = if actions.is_empty() { "" } else { "/" };
                let ours = format!("{}{slash}{}", actions.join(","), row.to as usize);
                assert_eq!(ours, cell.trim_end_matches(['r', 'p', 'x']), "{state:?}, {name}");
            }
        }
    });
    assert_eq!(TABLE.lines().count(), Event::ALL.len());
}
