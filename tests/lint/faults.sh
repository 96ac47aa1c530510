#!/bin/sh
# every fault of the list has a test that exists, or the reason why it has none
. "$LINT/lib"
T=tests/fault/TABLE
[ -d tests/fault ] || exit 0
if [ ! -f $T ]; then
	echo "$T:1: is missing"
	exit 1
fi
# What a row may name: of bats, "FILE: NAME"; of C, "FILE: FUNCTION" where cmocka
# is told of it; a whole program, "FILE" alone.
{
	tree | grep -E '^tests/.*\.bats$' | tr '\n' '\0' | xargs -0 -r awk '
		/^@test "/ { s = $0; sub(/^@test "/, "", s); sub(/" [{]$/, "", s); print FILENAME ": " s }' /dev/null
	tree | grep -E '^tests/.*\.c$' | tr '\n' '\0' | xargs -0 -r awk '
		{
			while (match($0, /(cmocka_unit_test[a-z_]*|EACH|T)\([a-z_0-9]+/)) {
				s = substr($0, RSTART, RLENGTH)
				$0 = substr($0, RSTART + RLENGTH)
				sub(/.*\(/, "", s)
				print FILENAME ": " s
			}
		}' /dev/null
	tree | grep -E '^tests/(fuzz|comm|conform)/.*\.c$'
} > "$LINT_TMP/tests"
awk -v table=$T '
	FILENAME != table { there[$0] = 1; next }
	/^#/ || /^$/ { next }
	function bad(s) { print table ":" FNR ": " s }
	function close_row() { if (id != "" && !n) print table ":" row ": " id " names no test and gives no reason" }
	/^\t- ./ { n++; next }
	/^\t/ {
		s = substr($0, 2)
		n++
		if (!(s in there))
			bad("no such test: " s)
		next
	}
	/^F[1-9][0-9]*\t./ {
		close_row()
		split($0, f, "\t")
		id = f[1]
		row = FNR
		n = 0
		if (id in seen)
			bad(id " stands here twice")
		seen[id] = 1
		next
	}
	{ bad("neither a row nor a test") }
	END {
		close_row()
		for (i = 1; i <= 35; i++)
			if (!(("F" i) in seen))
				print table ":1: F" i " is missing"
	}' "$LINT_TMP/tests" $T | verdict
