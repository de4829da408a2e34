# bench-tcp-100 as nearly as ns-2 has it without Tcl in its loop: `ns ns2.tcl CLIENTS DIALOGUES`. Each client has a FullTcp
# connection over a link of its own to a router, and all share one link to the server. Client i sends request k at
# 1 s + i × 100 ms / CLIENTS + k × 100 ms; the answer leaves when the request has come, which is known beforehand. Prints the segments that
# were sent, the octets that the clients were sent and have acknowledged, and the seconds that the event loop took.

foreach {clients dialogues} $argv break
remove-all-packet-headers
add-packet-header IP TCP
set ns [new Simulator]
$ns use-scheduler Calendar
set router [$ns node]
set server [$ns node]
$ns duplex-link $router $server [expr {$clients * 100}]kb 10ms DropTail
foreach {from to} [list $router $server $server $router] { $ns queue-limit $from $to [expr {$clients * 10}] }

Agent/TCP/FullTcp set nodelay_ true
Agent/TCP/FullTcp set segsize_ 1460
Agent/TCP/FullTcp set interval_ 0.2
Agent/TCP/FullTcp set segsperack_ 2
Agent/TCP/FullTcp set window_ 40
# The time of 240 octets on both links, and some: by then the request has come.
set way [expr {0.011 + 240 * 8 / 100e6 + 240 * 8 / ($clients * 100e3) + 1e-6}]

proc generator {agent start packets} {
    global ns
    set traffic [new Application/Traffic/CBR]
    $traffic set packetSize_ 200
    $traffic set interval_ 0.1
    $traffic set random_ 0
    $traffic set maxpkts_ $packets
    $traffic attach-agent $agent
    $ns at $start "$traffic start"
}

for {set i 0} {$i < $clients} {incr i} {
    set client [$ns node]
    $ns duplex-link $client $router 100Mb 1ms DropTail
    foreach {from to} [list $client $router $router $client] { $ns queue-limit $from $to 1000 }
    set asks [new Agent/TCP/FullTcp]
    set answers [new Agent/TCP/FullTcp]
    $ns attach-agent $client $asks
    $ns attach-agent $server $answers
    $ns connect $asks $answers
    $answers listen
    lappend agents $asks $answers
    set first [expr {1 + $i * 0.1 / $clients}]
    # The first request opens the connection, a turn earlier, and has no answer.
    generator $asks [expr {$first - 0.1}] [expr {$dialogues + 1}]
    generator $answers [expr {$first + $way}] $dialogues
}

$ns at [expr {1.5 + $dialogues * 0.1}] {
    set seconds [expr {([clock clicks -microseconds] - $begun) / 1e6}]
    set segments 0
    set acknowledged 0
    foreach {asks answers} $agents {
        foreach agent [list $asks $answers] {
            incr segments [expr {[$agent set ndatapack_] + [$agent set nackpack_]}]
        }
        incr acknowledged [$answers set ack_]
    }
    puts "segments=$segments acknowledged=$acknowledged seconds=$seconds"
    exit 0
}
# After routes are computed.
$ns at 0 { set begun [clock clicks -microseconds] }
$ns run
