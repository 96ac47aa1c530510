#!/bin/sh
# no source or script is longer than 800 lines, no header and no Makefile than 250
. "$LINT/lib"
{
	tree | grep -E '\.(c|h|inc|cu|cuh|awk|py|gp)$|(^|/)Makefile$'
	sh_files
} | sort -u | tr '\n' '\0' | xargs -0 awk '
	function judge() { if (n > limit) print name ":" n ": longer than " limit " lines" }
	FNR == 1 {
		judge()
		name = FILENAME
		limit = name ~ /\.(h|cuh)$|(^|\/)Makefile$/ ? 250 : 800
	}
	{ n = FNR }
	END { judge() }' /dev/null | verdict
