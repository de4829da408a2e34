#!/usr/bin/env bash
# Runs ns-2 where it can say something of the founding figures, and prints studies/claims/ns-2.toml:
#   tests/ns2/founding.sh > studies/claims/ns-2.toml
# Takes some minutes. Give a figure's study (aaa-hol, ...) to have its points alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/scenarios"
command -v ns >/dev/null || { echo "ns is missing: scripts/setup test installs Debian's package ns2" >&2; exit 1; }
wanted=${1:-}
seeds=6
# Student's quantile of 95 % for one degree of freedom less than there are seeds.
student=2.570582

# An authentication by EAP-MD5 as the simulator's capture of aaa-hol without loss has it: the bytes of its Diameter (or
# RADIUS) messages, and the time that the 802.16 cell takes between and beside them.
diameter='rounds {348 216 392 172}'
radius='rounds {153 80 163 71}'
cell='think 0.0163 access 0.0403'

# point STUDY X SERIES SCRIPT ARGUMENTS: one point, from all seeds.
point() {
    local study=$1 x=$2 series=$3 script=$4 line
    shift 4
    [ -z "$wanted" ] || [ "$wanted" = "$study" ] || return 0
    # Words in braces are one argument.
    local words=() seed
    readarray -t words < <(grep -oE '\{[^}]*\}|[^ ]+' <<<"$*" | tr -d '{}')
    for ((seed = 1; seed <= seeds; seed++)); do
        ns "$script.tcl" "${words[@]}" seed "$seed"
    done | awk -v t="$student" -v study="$study" -v x="$x" -v series="$series" -v seeds="$seeds" -v command="ns $script.tcl $*" '
        { for (i = 1; i <= NF; i++) { split($i, pair, "="); value[pair[1]] = pair[2] }
          mean[NR] = value["mean"]; sum += value["mean"]; squares += value["mean"] ^ 2
          packets += value["packets"]; done += value["dialogues"]; failed += value["failed"] }
        END {
          m = sum / NR; variance = (squares - NR * m * m) / (NR - 1); if (variance < 0) variance = 0
          half = t * sqrt(variance / NR)
          for (i = 1; i <= NR; i++) for (j = i + 1; j <= NR; j++) if (mean[j] < mean[i]) { s = mean[i]; mean[i] = mean[j]; mean[j] = s }
          printf "\n[[points]]\nstudy = \"%s\"\nx = \"%s\"\nseries = \"%s\"\n", study, x, series
          printf "command = \"%s\"\nseeds = \"1 to %d\"\n", command, seeds
          printf "delay = { mean = %.6g, low = %.6g, high = %.6g, median = %.6g }\n", m, m - half, m + half, (mean[int((NR + 1) / 2)] + mean[int(NR / 2) + 1]) / 2
          printf "packets = %.4g\ndialogues = %d\nfailed = %d\n", packets / NR, done, failed
        }'
}

cat <<'HEAD'
# ns-2's points for the founding figures, from its own runs: made by tests/ns2/founding.sh with Debian's ns2 2.35.
# Delays in seconds: the mean over the runs with these seeds, its interval of 95 %, and the runs' median. `packets` are those
# that both sides sent for each dialogue, `x` and `series` the figure's. What stands for what is in docs/contribute/ns-2.md.
HEAD

for loss in 0 1 2 5 10 15 19; do
    share=$(awk "BEGIN { print $loss / 100 }")
    common="loss $share rate 5 stations 100 duration 200 drain 60 $cell"
    point aaa-hol "$loss %" "Diameter/TCP" tcp-nagle "$diameter $common"
    point aaa-hol "$loss %" "RADIUS/UDP, RFC 5080" udp "$radius $common again rfc5080 tries 5"
    point aaa-hol "$loss %" "RADIUS/UDP, every 3 s" udp "$radius $common again 3 tries 10"
    point aaa-hol "$loss %" "RADIUS/UDP, every 1 s" udp "$radius $common again 1 tries 30"
done
# Of acknowledgements at once FullTcp knows nothing for messages below a segment: a tick each millisecond stands for them.
for nodes in 1 9 17 25 37 75; do
    common="stations $nodes rate $nodes duration 60 drain 60 $cell"
    point aaa-nagle "$nodes" "with Nagle" tcp-nagle "$diameter $common nagle 1 interval 0.001"
    point aaa-nagle "$nodes" "without Nagle" tcp-nagle "$diameter $common nagle 0 interval 0.001"
    point aaa-delack "$nodes" "delayed ACK" tcp-nagle "$diameter $common nagle 0 interval 0.1"
    point aaa-delack "$nodes" "immediate ACK" tcp-nagle "$diameter $common nagle 0 interval 0.001"
    point aaa-congestion "$nodes" "both" tcp-nagle "$diameter $common nagle 1 interval 0.1 background 1275kb"
    point aaa-congestion "$nodes" "delayed ACK" tcp-nagle "$diameter $common nagle 0 interval 0.1 background 1275kb"
    point aaa-congestion "$nodes" "Nagle" tcp-nagle "$diameter $common nagle 1 interval 0.001 background 1275kb"
    point aaa-congestion "$nodes" "none" tcp-nagle "$diameter $common nagle 0 interval 0.001 background 1275kb"
done
