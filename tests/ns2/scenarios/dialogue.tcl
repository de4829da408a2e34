# Dialogues over one FullTcp connection: `rounds` is a list of the bytes of each request and its answer in turn.

proc dialogues {} {
    global ns par client server asking answering asks answers
    foreach {node agent app} [list $client asking asks $server answering answers] {
        set $agent [new $par(agent)]
        set tcp [set $agent]
        $tcp set nodelay_ [expr {$par(nagle) ? "false" : "true"}]
        $tcp set interval_ $par(interval)
        $tcp set segsize_ $par(segsize)
        $tcp set window_ $par(window)
        $tcp set minrto_ $par(minrto)
        $tcp set maxrto_ $par(maxrto)
        $ns attach-agent $node $tcp
        set $app [new Application/TcpApp $tcp]
    }
    $ns connect $asking $answering
    $answering listen
    $asks connect $answers
}

proc begin {id} { ask $id 0 }

proc ask {id round} {
    global par asks
    $asks send [lindex $par(rounds) $round] "answer $id $round"
}

proc answer {id round} {
    global ns par
    if {$par(turnaround) > 0} {
        $ns at [expr {[$ns now] + $par(turnaround)}] "reply $id $round"
    } else {
        reply $id $round
    }
}

proc reply {id round} {
    global par answers
    $answers send [lindex $par(rounds) [expr {$round + 1}]] "answered $id $round"
}

proc answered {id round} {
    global par ns
    if {$round + 2 >= [llength $par(rounds)]} {
        ended $id
    } elseif {$par(think) > 0} {
        $ns at [expr {[$ns now] + $par(think)}] "ask $id [expr {$round + 2}]"
    } else {
        ask $id [expr {$round + 2}]
    }
}

# Segments of either side, acknowledgements and repetitions included.
proc sent {} {
    global asking answering
    set all 0
    foreach tcp [list $asking $answering] {
        incr all [expr {[$tcp set ndatapack_] + [$tcp set nackpack_]}]
    }
    return $all
}

proc run {} {
    global ns
    network
    dialogues
    arrivals
    $ns run
}
