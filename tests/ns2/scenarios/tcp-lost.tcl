# Messages over FullTcp at fixed times, so that nothing but the packets that are lost decides: `messages` of them leave `gap`
# seconds apart, each of `bytes`, and are answered by `answer` bytes, or not at all where that is 0. One message opens the connection
# before. A message ends with its answer, or where it arrives. `trace 1` prints the packets of the first link.

source [file join [file dirname [info script]] common.tcl]
source [file join [file dirname [info script]] dialogue.tcl]

options {agent Agent/TCP/FullTcp nagle 0 interval 0.1 segsize 536 window 20 minrto 0.2 maxrto 60 messages 100 gap 0.0371 bytes 200 answer 200 begin 1.013707 tick 0.01 trace 0}

proc begin {id} {
    global par asks
    $asks send $par(bytes) "answer $id"
}

proc answer {id} {
    global par answers
    if {$par(answer) > 0} {
        $answers send $par(answer) "ended $id"
    } else {
        ended $id
    }
}

proc finish {} {
    count to
    results
}

network
if {$par(trace)} {
    $ns trace-queue $client $router stdout
    $ns trace-queue $router $client stdout
}
dialogues
set par(warmup) 0.5
foreach tcp [list $asking $answering] { $tcp set tcpTick_ $par(tick) }
$ns at 0.01 "start 0 none"
$ns at $par(warmup) "count from"
for {set i 1} {$i <= $par(messages)} {incr i} {
    $ns at [expr {$par(begin) + ($i - 1) * $par(gap)}] "start $i none"
}
$ns at [expr {$par(begin) + $par(messages) * $par(gap) + $par(drain)}] finish
$ns run
