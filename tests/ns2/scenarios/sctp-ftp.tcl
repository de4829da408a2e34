# A transfer one way over Agent/SCTP, on one stream or on several: ns-2's SCTP tells nobody of what has come, so that it
# is read from the trace, by TSN and stream. Its agent sends on its own only what a source has that never ends; the first
# `chunks` chunks of it count. A chunk is delivered once it and, unless `unordered`, all before it of its stream have come;
# its delay counts from when the first chunk left.

source [file join [file dirname [info script]] common.tcl]

options {size 1000 chunks 1500 streams 1 unordered 0 heartbeat 30 drain 40}

# Of the trace's lines: from when on, and when each TSN has come; its packets of both kinds are counted.
rename results print
proc results {} {
    global trace file par began delay packets
    close $trace
    set in [open $file r]
    set packets(from) 0
    set packets(to) 0
    while {[gets $in line] >= 0} {
        # event time from to sctp size flags flow source destination type? TSN uid stream SSN
        foreach {event time from to type size flags flow source destination association tsn uid stream} $line break
        if {$type ne "sctp"} continue
        if {$event eq "+" && ($from == 0 || $to == 0)} { incr packets(to) }
        if {$flags ne "-------D"} continue
        if {$event eq "+" && ![info exists first]} { set first $time }
        if {$event eq "r" && $to == 2 && ![info exists came($tsn)]} { set came($tsn) [list $time $stream] }
    }
    close $in
    file delete $file
    for {set tsn 1} {$tsn <= $par(chunks)} {incr tsn} {
        set began($tsn) $par(warmup)
        if {![info exists came($tsn)]} {
            # Those that wait behind it have not been delivered either.
            if {$par(unordered)} continue
            break
        }
        foreach {at stream} $came($tsn) break
        if {!$par(unordered)} {
            if {[info exists last($stream)] && $last($stream) > $at} { set at $last($stream) }
            set last($stream) $at
        }
        set delay($tsn) [expr {$at - $first}]
    }
    print
}

Trace set show_sctphdr_ 1
network
set sender [new Agent/SCTP]
set receiver [new Agent/SCTP]
foreach {node agent} [list $client $sender $server $receiver] {
    $agent set numOutStreams_ $par(streams)
    $agent set unordered_ $par(unordered)
    $agent set heartbeatInterval_ $par(heartbeat)
    $agent set dataChunkSize_ [expr {$par(size) + 16}]
    $ns attach-agent $node $agent
}
$ns connect $sender $receiver
set ftp [new Application/FTP]
$ftp attach-agent $sender
set file [file join [pwd] ns2-sctp-[pid].tr]
set trace [open $file w]
$ns trace-queue $client $router $trace
$ns trace-queue $router $client $trace
$ns trace-queue $router $server $trace
$ns at $par(warmup) "$ftp start"
$ns at [expr {$par(warmup) + $par(drain)}] results
$ns run
