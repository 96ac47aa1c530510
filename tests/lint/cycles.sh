#!/bin/sh
# no module includes itself by way of others
#
# A module is a .c and its .h.  tsort names the members of a loop, and the
# lines that make it are printed.
. "$LINT/lib"
includes | awk '
	{
		m = $1
		sub(/^common\//, "", m)
		sub(/\.([ch]|inc)$/, "", m)
		dir = $1
		sub(/[^\/]*$/, "", dir)
		t = $3
		if (t !~ /\//) t = dir t
		sub(/^common\//, "", t)
		sub(/\.([ch]|inc)$/, "", t)
		if (m != t) print m, t, $1 ":" $2
	}' > "$LINT_TMP/pairs"
cut -d' ' -f1,2 "$LINT_TMP/pairs" | tsort 2>&1 > /dev/null | sed -n 's/^tsort: //p' | grep -v 'input contains a loop' > "$LINT_TMP/loop"
awk 'NR == FNR { loop[$1]; next } ($1 in loop) && ($2 in loop) { print $3 ": cycle: " $1 " -> " $2 }' \
	"$LINT_TMP/loop" "$LINT_TMP/pairs" | verdict
