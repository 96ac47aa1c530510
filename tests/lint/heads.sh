#!/bin/sh
# every source opens with a comment that names it, and text is clean
. "$LINT/lib"
{
	tree | grep -E '\.(c|h|inc|awk)$|^Makefile$'
	sh_files
} | sort -u | tr '\n' '\0' | xargs -0 awk '
	FNR == 1 {
		base = FILENAME
		sub(/.*\//, "", base)
		first = $0
		c = FILENAME ~ /\.([ch]|inc)$/
		if (c && index($0, "/* " base " -- ") != 1)
			print FILENAME ":1: does not open with \"/* " base " -- \""
	}
	FNR == 2 && !c && first !~ /^# / && $0 !~ /^# / { print FILENAME ":2: does not open with a comment" }
	/[ \t]$/ { print FILENAME ":" FNR ": white space at the end" }
	/\r/ { print FILENAME ":" FNR ": carriage return" }' /dev/null | verdict
