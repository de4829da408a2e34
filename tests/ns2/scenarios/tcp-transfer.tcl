# Answers of 10 kB over FullTcp with a smallest retransmission timeout of a second: each is a transfer.

source [file join [file dirname [info script]] common.tcl]
source [file join [file dirname [info script]] dialogue.tcl]

options {agent Agent/TCP/FullTcp nagle 0 interval 0.1 segsize 536 window 20 minrto 1 maxrto 60 rounds {200 10000} think 0 turnaround 0 background 0 rate 0.05 duration 2000 drain 2000}
run
