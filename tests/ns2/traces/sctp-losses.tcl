# A transfer over Agent/SCTP from its first chunk on, line by line, in which the packets that `lost` names do not come:
#   ns sctp-losses.tcl lost "3 7" until 5
# 50 ms each way, without a rate to speak of, chunks that fill a packet of 1500 bytes. Milliseconds since the first chunk
# left, then `DATA` with the TSNs that leave or `SACK` with the cumulative TSNs of those that leave, and the sender's window
# and threshold where they have changed, `none` being the 65536 bytes that it begins with. Packets with data are numbered
# from 0, retransmissions included.

array set par {lost {} until 5}
array set par $argv

set ns [new Simulator]
set client [$ns node]
set server [$ns node]
$ns duplex-link $client $server 100Gb 50ms DropTail
set errors [new ErrorModel/List]
$errors unit pkt
# Before the first data go INIT, COOKIE ECHO and a HEARTBEAT.
set list {}
foreach n $par(lost) { lappend list [expr {$n + 3}] }
$errors droplist $list
$errors drop-target [new Agent/Null]
$ns link-lossmodel $errors $client $server

Trace set show_sctphdr_ 1
set sender [new Agent/SCTP]
set receiver [new Agent/SCTP]
foreach {node agent} [list $client $sender $server $receiver] {
    $agent set dataChunkSize_ 1468
    $agent set heartbeatInterval_ 0
    $ns attach-agent $node $agent
}
$ns connect $sender $receiver
set file [file join [pwd] ns2-sctp-[pid].tr]
set trace [open $file w]
$ns trace-queue $client $server $trace
$ns trace-queue $server $client $trace
# The agent writes what it has not initialised between its lines, so that they go to a file of their own.
set windows [open $file.cwnd w]
fconfigure $windows -translation binary
$sender trace cwnd_
$sender attach $windows
set ftp [new Application/FTP]
$ftp attach-agent $sender
$ns at 0 "$ftp start"
$ns at [expr {$par(until) + 0.31}] finish

# Of the trace's lines: event time from to sctp size flags flow source destination type TSN ...
proc finish {} {
    global trace windows file par
    close $trace
    close $windows
    set in [open $file r]
    set at {}
    while {[gets $in line] >= 0} {
        set words [split $line]
        if {[lindex $words 0] ne "+"} continue
        switch -- [lindex $words 6] {
            -------D { set what DATA }
            -------S { set what SACK }
            default continue
        }
        if {![info exists first]} { set first [lindex $words 1] }
        set ms [expr {round(([lindex $words 1] - $first) * 1000)}]
        if {$ms > $par(until) * 1000} break
        lappend at $ms
        lappend lines($ms) $what [lindex $words 11]
    }
    close $in
    set in [open $file.cwnd r]
    fconfigure $in -translation binary
    foreach {- now cwnd ssthresh} [regexp -inline -all {time: ([0-9.]+)[^\n]*cwnd: (\d+)[^\n]*ssthresh: (\d+)} [read $in]] {
        set ms [expr {round(($now - $first) * 1000)}]
        if {$ms < 0 || $ms > $par(until) * 1000} continue
        lappend at $ms
        set window($ms) "cwnd $cwnd ssthresh [expr {$ssthresh == 65536 ? {none} : $ssthresh}]"
    }
    close $in
    file delete $file $file.cwnd
    set last {}
    foreach ms [lsort -integer -unique $at] {
        set text {}
        if {[info exists lines($ms)]} {
            foreach {what tsn} $lines($ms) {
                if {$what ni $text} { lappend text $what }
                lappend text $tsn
            }
        }
        if {[info exists window($ms)] && $window($ms) ne $last} {
            set last $window($ms)
            append text " $last"
        }
        if {$text ne {}} { puts "$ms [string trim $text]" }
    }
    exit 0
}
$ns run
