# The same over FullTcp with selective acknowledgements.

source [file join [file dirname [info script]] common.tcl]
source [file join [file dirname [info script]] dialogue.tcl]

options {agent Agent/TCP/FullTcp/Sack nagle 0 interval 0.1 segsize 536 window 20 minrto 0.2 maxrto 60 rounds {200 200} think 0 turnaround 0 background 0}
run
