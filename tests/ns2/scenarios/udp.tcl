# Datagrams that their sender sends again: every `again` seconds, or by RFC 5080's back-off from 2 s to 16 s where that is
# `rfc5080`; `tries` times in all, and 30 s long with RFC 5080.

source [file join [file dirname [info script]] common.tcl]

options {rounds {200 200} think 0 again 1.0 tries 30}

Class Asker -superclass Agent/MessagePassing
Class Answerer -superclass Agent/MessagePassing

# A datagram of ns-2 has its size with all headers: 28 bytes of IPv4 and UDP.
proc datagram {bytes} { return [expr {$bytes + 28}] }

# `data` is the dialogue and its round, as id/round.
Answerer instproc recv {source port size data} {
    global par sent
    incr sent
    set round [lindex [split $data /] 1]
    $self sendto [datagram [lindex $par(rounds) [expr {$round + 1}]]] $data $source $port
}

Asker instproc recv {source port size data} {
    global ns par waiting
    if {![info exists waiting($data)]} return
    unset waiting($data)
    foreach {id round} [split $data /] break
    incr round 2
    if {$round >= [llength $par(rounds)]} {
        ended $id
    } elseif {$par(think) > 0} {
        $ns at [expr {[$ns now] + $par(think)}] "first $id $round"
    } else {
        first $id $round
    }
}

proc begin {id} { first $id 0 }

proc first {id round} {
    global ns waiting
    set waiting($id/$round) [list 0 [$ns now] 0]
    ask $id $round
}

proc ask {id round} {
    global ns par waiting asker answerer server sent random
    if {![info exists waiting($id/$round)]} return
    foreach {tries since last} $waiting($id/$round) break
    if {$tries >= $par(tries)} return
    if {$par(again) eq "rfc5080"} {
        if {[$ns now] - $since >= 30} return
        set share [$random uniform -0.1 0.1]
        set wait [expr {$last > 0 ? (2 + $share) * $last : (1 + $share) * 2}]
        if {$wait > 16} { set wait [expr {(1 + $share) * 16}] }
    } else {
        set wait $par(again)
    }
    set waiting($id/$round) [list [incr tries] $since $wait]
    incr sent
    $asker sendto [datagram [lindex $par(rounds) $round]] $id/$round [$server node-addr] [$answerer port]
    $ns at [expr {[$ns now] + $wait}] "ask $id $round"
}

set sent 0
proc sent {} { global sent; return $sent }

network
set random [chance]
set asker [new Asker]
set answerer [new Answerer]
foreach {node agent} [list $client $asker $server $answerer] {
    $agent set packetSize_ 1500
    $ns attach-agent $node $agent
}
arrivals
$ns run
