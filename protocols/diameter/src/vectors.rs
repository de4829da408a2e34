//! The state tables as printed in RFC 6733 section 5.6 and RFC 3539 appendix A. A line is state, event, actions and
//! next state, in the format of [`DiagramTransition`](usher_core::automaton::DiagramTransition).

/// The peer state machine (RFC 6733 section 5.6).
pub const PEER: &str = "\
Closed; Start; I-Snd-Conn-Req; Wait-Conn-Ack
Closed; R-Conn-CER; R-Accept, Process-CER, R-Snd-CEA; R-Open
Wait-Conn-Ack; I-Rcv-Conn-Ack; I-Snd-CER; Wait-I-CEA
Wait-Conn-Ack; I-Rcv-Conn-Nack; Cleanup; Closed
Wait-Conn-Ack; R-Conn-CER; R-Accept, Process-CER; Wait-Conn-Ack/Elect
Wait-Conn-Ack; Timeout; Error; Closed
Wait-I-CEA; I-Rcv-CEA; Process-CEA; I-Open
Wait-I-CEA; R-Conn-CER; R-Accept, Process-CER, Elect; Wait-Returns
Wait-I-CEA; I-Peer-Disc; I-Disc; Closed
Wait-I-CEA; I-Rcv-Non-CEA; Error; Closed
Wait-I-CEA; Timeout; Error; Closed
Wait-Conn-Ack/Elect; I-Rcv-Conn-Ack; I-Snd-CER, Elect; Wait-Returns
Wait-Conn-Ack/Elect; I-Rcv-Conn-Nack; R-Snd-CEA; R-Open
Wait-Conn-Ack/Elect; R-Peer-Disc; R-Disc; Wait-Conn-Ack
Wait-Conn-Ack/Elect; R-Conn-CER; R-Reject; Wait-Conn-Ack/Elect
Wait-Conn-Ack/Elect; Timeout; Error; Closed
Wait-Returns; Win-Election; I-Disc, R-Snd-CEA; R-Open
Wait-Returns; I-Peer-Disc; I-Disc, R-Snd-CEA; R-Open
Wait-Returns; I-Rcv-CEA; R-Disc; I-Open
Wait-Returns; R-Peer-Disc; R-Disc; Wait-I-CEA
Wait-Returns; R-Conn-CER; R-Reject; Wait-Returns
Wait-Returns; Timeout; Error; Closed
R-Open; Send-Message; R-Snd-Message; R-Open
R-Open; R-Rcv-Message; Process; R-Open
R-Open; R-Rcv-DWR; Process-DWR, R-Snd-DWA; R-Open
R-Open; R-Rcv-DWA; Process-DWA; R-Open
R-Open; R-Conn-CER; R-Reject; R-Open
R-Open; Stop; R-Snd-DPR; Closing
R-Open; R-Rcv-DPR; R-Snd-DPA; Closing
R-Open; R-Peer-Disc; R-Disc; Closed
I-Open; Send-Message; I-Snd-Message; I-Open
I-Open; I-Rcv-Message; Process; I-Open
I-Open; I-Rcv-DWR; Process-DWR, I-Snd-DWA; I-Open
I-Open; I-Rcv-DWA; Process-DWA; I-Open
I-Open; R-Conn-CER; R-Reject; I-Open
I-Open; Stop; I-Snd-DPR; Closing
I-Open; I-Rcv-DPR; I-Snd-DPA; Closing
I-Open; I-Peer-Disc; I-Disc; Closed
Closing; I-Rcv-DPA; I-Disc; Closed
Closing; R-Rcv-DPA; R-Disc; Closed
Closing; Timeout; Error; Closed
Closing; I-Peer-Disc; I-Disc; Closed
Closing; R-Peer-Disc; R-Disc; Closed";

/// The watchdog algorithm (RFC 3539 section 3.4.1, appendix A), with the conditions of each line.
pub const WATCHDOG: &str = "\
OKAY; Receive DWA; Pending = FALSE, SetWatchdog(); OKAY
OKAY; Receive non-DWA; SetWatchdog(); OKAY
SUSPECT; Receive DWA; Pending = FALSE, Failback(), SetWatchdog(); OKAY
SUSPECT; Receive non-DWA; Failback(), SetWatchdog(); OKAY
REOPEN; Receive DWA & NumDWA == 2; Pending = FALSE, NumDWA++, Failback(); OKAY
REOPEN; Receive DWA & NumDWA < 2; Pending = FALSE, NumDWA++; REOPEN
REOPEN; Receive non-DWA; Throwaway(); REOPEN
INITIAL; Receive DWA; Pending = FALSE, Throwaway(); INITIAL
INITIAL; Receive non-DWA; Throwaway(); INITIAL
DOWN; Receive DWA; Pending = FALSE, Throwaway(); DOWN
DOWN; Receive non-DWA; Throwaway(); DOWN
OKAY; Timer expires & !Pending; SendWatchdog(), SetWatchdog(), Pending = TRUE; OKAY
OKAY; Timer expires & Pending; Failover(), SetWatchdog(); SUSPECT
SUSPECT; Timer expires; CloseConnection(), SetWatchdog(); DOWN
INITIAL; Timer expires; AttemptOpen(), SetWatchdog(); INITIAL
DOWN; Timer expires; AttemptOpen(), SetWatchdog(); DOWN
REOPEN; Timer expires & !Pending; SendWatchdog(), SetWatchdog(), Pending = TRUE; REOPEN
REOPEN; Timer expires & Pending & NumDWA < 0; CloseConnection(), SetWatchdog(); DOWN
REOPEN; Timer expires & Pending & NumDWA >= 0; NumDWA = -1, SetWatchdog(); REOPEN
INITIAL; Connection up; SetWatchdog(); OKAY
DOWN; Connection up; NumDWA = 0, SendWatchdog(), SetWatchdog(), Pending = TRUE; REOPEN
OKAY; Connection down; CloseConnection(), Failover(), SetWatchdog(); DOWN
SUSPECT; Connection down; CloseConnection(), SetWatchdog(); DOWN
REOPEN; Connection down; CloseConnection(), SetWatchdog(); DOWN";
