# What the scenarios have in common: a client, a router and a server, arrivals by a Poisson process, and one line of
# results. Parameters are pairs of name and value on the command line: `ns tcp-reno.tcl loss 0.05 seed 3`.

# Reads the command line over the defaults, which are pairs, too.
proc options {defaults} {
    global par argv
    array set par {loss 0 seed 1 rate 10 warmup 20 duration 100 drain 200 delay 0.010 bandwidth 1.5Mb queue 50 background 0 jitter 0 stations 0 access 0 up {} down {}}
    array set par $defaults
    foreach {name value} $argv {
        if {![info exists par($name)]} {
            puts stderr "no parameter is named '$name'; there are: [lsort [array names par]]"
            exit 2
        }
        set par($name) $value
    }
}

# A stream of chance of its own. The first call seeds them all.
proc chance {} {
    global par seeded defaultRNG
    if {![info exists seeded]} {
        $defaultRNG seed $par(seed)
        set seeded 1
    }
    return [new RNG]
}

# client -- router -- server: the first link as the parameters say, with loss both ways, the second fast.
proc network {} {
    global ns par client router server
    set ns [new Simulator]
    set client [$ns node]
    set router [$ns node]
    set server [$ns node]
    $ns duplex-link $client $router $par(bandwidth) ${par(delay)}s DropTail
    $ns duplex-link $router $server 100Mb 0ms DropTail
    $ns queue-limit $client $router $par(queue)
    $ns queue-limit $router $client $par(queue)
    $ns queue-limit $router $server 1000
    $ns queue-limit $server $router 1000
    foreach {from to lost} [list $client $router $par(up) $router $client $par(down)] {
        if {[llength $lost] > 0} {
            set errors [new ErrorModel/List]
            $errors unit pkt
            $errors droplist $lost
        } else {
            set draw [new RandomVariable/Uniform]
            $draw use-rng [chance]
            set errors [new ErrorModel]
            $errors unit pkt
            # The connection opens without loss.
            $errors set rate_ 0
            $ns at $par(warmup) "$errors set rate_ $par(loss)"
            $errors ranvar $draw
        }
        $errors drop-target [new Agent/Null]
        $ns link-lossmodel $errors $from $to
    }
    if {$par(background) > 0} {
        set source [new Agent/UDP]
        $source set packetSize_ 1000
        $ns attach-agent $client $source
        set sink [new Agent/Null]
        $ns attach-agent $router $sink
        $ns connect $source $sink
        set traffic [new Application/Traffic/CBR]
        $traffic set packetSize_ 1000
        $traffic set rate_ $par(background)
        $traffic set random_ $par(jitter)
        $traffic attach-agent $source
        $ns at [expr {[[chance] uniform 0 0.006]}] "$traffic start"
    }
}

# Dialogues begin by a Poisson process; each is begun by the scenario's `begin`, and says `ended` of itself. With
# `stations`, each is of one of so many, drawn for it, and waits without being counted while that has another under way.
# `access` is a time that every dialogue takes beside.
proc arrivals {} {
    global ns par gaps next place
    set place [chance]
    set gaps [new RandomVariable/Exponential]
    $gaps use-rng [chance]
    $gaps set avg_ [expr {1.0 / $par(rate)}]
    set next 0
    $ns at [$gaps value] arrive
    $ns at $par(warmup) "count from"
    $ns at [expr {$par(warmup) + $par(duration)}] "count to"
    $ns at [expr {$par(warmup) + $par(duration) + $par(drain)}] results
}

proc arrive {} {
    global ns par gaps next place busy
    if {$par(stations) > 0} {
        set station [expr {int([$place uniform 0 $par(stations)])}]
        if {[info exists busy($station)]} {
            incr busy($station)
        } else {
            set busy($station) 0
            start [incr next] $station
        }
    } else {
        start [incr next] none
    }
    set at [expr {[$ns now] + [$gaps value]}]
    if {$at < $par(warmup) + $par(duration)} {
        $ns at $at arrive
    }
}

proc start {id station} {
    global ns began of
    set began($id) [$ns now]
    set of($id) $station
    begin $id
}

proc ended {id} {
    global ns par next began delay of busy
    if {[info exists delay($id)]} return
    set delay($id) [expr {[$ns now] - $began($id) + $par(access)}]
    if {$of($id) eq "none"} return
    $ns at [expr {[$ns now] + $par(access)}] "free $of($id)"
}

# A station is free for the next that waits, if there is one and the measured time is not over.
proc free {station} {
    global ns par next busy
    if {$busy($station) > 0 && [$ns now] < $par(warmup) + $par(duration)} {
        incr busy($station) -1
        start [incr next] $station
    } else {
        unset busy($station)
    }
}

# The packets that the scenario's agents have sent so far.
proc count {when} {
    global packets
    set packets($when) [sent]
}

# One line: what was asked, and of the dialogues that began in the measured time the delays in seconds.
proc results {} {
    global par began delay packets argv0
    set delays {}
    set failed 0
    foreach id [array names began] {
        if {$began($id) < $par(warmup)} continue
        if {[info exists delay($id)]} {
            lappend delays $delay($id)
        } else {
            incr failed
        }
    }
    set delays [lsort -real $delays]
    set n [llength $delays]
    set sum 0.0
    foreach d $delays { set sum [expr {$sum + $d}] }
    set line "scenario=[file rootname [file tail $argv0]]"
    foreach name [lsort [array names par]] { append line " $name=[join $par($name) ,]" }
    append line " dialogues=$n failed=$failed mean=[expr {$sum / $n}]"
    foreach {name share} {median 0.5 p95 0.95} {
        append line " $name=[lindex $delays [expr {int($share * ($n - 1))}]]"
    }
    append line " packets=[expr {double($packets(to) - $packets(from)) / $n}]"
    puts $line
    exit 0
}
