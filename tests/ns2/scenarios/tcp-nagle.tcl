# Dialogues of two rounds over FullTcp with Nagle's algorithm.

source [file join [file dirname [info script]] common.tcl]
source [file join [file dirname [info script]] dialogue.tcl]

options {agent Agent/TCP/FullTcp nagle 1 interval 0.1 segsize 536 window 20 minrto 0.2 maxrto 60 rounds {150 100 250 120} think 0 turnaround 0 background 0}
run
