#!/bin/sh
# Measures every algorithm of a collective over sizes, and prints the fastest one of each size, with its time in us.
# Run: shell/crossover.sh broadcast --cards mock:optweb:8
set -eu
table=$(mktemp)
trap 'rm -f "$table"' EXIT
fpgactl bench coll "${@:-broadcast}" -b 64 -e 4M -f 16 --algorithm all --csv "$table" >/dev/null
awk -F , '
    NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
    $column["p50_us"] == "" { next }
    !($column["bytes"] in best) || $column["p50_us"] < best[$column["bytes"]] {
        best[$column["bytes"]] = $column["p50_us"]
        name[$column["bytes"]] = $column["algorithm"]
    }
    END { for (bytes in best) print bytes, name[bytes], best[bytes] }
' "$table" | sort -n
