#!/bin/sh
# no module includes itself by way of others
#
# A module is a .c and its .h; an x_y beside an x is a part of x (a second
# source, or a header only for it), so those two may know each other.  tsort
# names the members of a loop, and the lines that make it are printed.
. "$LINT/lib"
includes | awk '
	function module(path) {
		sub(/\.([ch]|inc)$/, "", path)
		sub(/^common\//, "", path)
		return path
	}
	{
		dir = $1
		sub(/[^\/]*$/, "", dir)
		from = module($1)
		to = module($3 ~ /\// ? $3 : dir $3)
		if (from != to && index(from, to "_") != 1 && index(to, from "_") != 1)
			print from, to, $1 ":" $2
	}' > "$LINT_TMP/pairs"
cut -d' ' -f1,2 "$LINT_TMP/pairs" | tsort 2>&1 > /dev/null | sed -n 's/^tsort: //p' | grep -v 'input contains a loop' > "$LINT_TMP/loop"
awk 'NR == FNR { loop[$1]; next } ($1 in loop) && ($2 in loop) { print $3 ": cycle: " $1 " -> " $2 }' \
	"$LINT_TMP/loop" "$LINT_TMP/pairs" | verdict
