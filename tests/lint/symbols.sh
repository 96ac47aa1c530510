#!/bin/sh
# every external symbol starts with the name of its file or folder
#
# Read from the objects, so that no macro can hide one.  The objects of the
# last build are looked at; a source without one is a violation by itself.
. "$LINT/lib"
if [ -z "${MOE_BUILD-}" ]; then
	eval "$(make -s --no-print-directory where 2> /dev/null)"
fi
core_files | grep '\.c$' > "$LINT_TMP/sources"
while read -r f; do
	o=$MOE_BUILD/obj/${f%.c}.o
	if [ ! -f "$o" ]; then
		echo "$f:1: has no object in $MOE_BUILD; run make"
		continue
	fi
	# Prefixes: the words of the path from its folder on, "-" as "_"; and for
	# fs_out.c beside fs.h also fs, since a module may have several sources.
	allowed=$(echo "${f%.c}" | sed 's|^common/||; s|^src/||; s|-|_|g' | tr '/' ' ')
	part=${f%.c}
	while [ "$part" != "${part%_*}" ]; do
		part=${part%_*}
		if [ -f "$part.h" ]; then allowed="$allowed ${part##*/}"; fi
	done
	"${NM:-nm}" -g --defined-only "$o" | awk -v f="$f" -v allowed="$allowed" '
		BEGIN {
			n = split(allowed, a, " ")
			for (i = 1; i <= n; i++)
				if (a[i] ~ /^moe_/) a[++n] = substr(a[i], 5)
		}
		NF < 3 || $3 ~ /^(__|\.)/ || $3 == "main" { next }
		# The two strings that the whole tree is named after, and the checked
		# product of sizes, which belongs to no module more than to another.
		f == "common/base/version.c" && $3 ~ /^moe_/ { next }
		$3 == "size_mul" { next }
		{
			for (i = 1; i <= n; i++)
				if ($3 == a[i] || index($3, a[i] "_") == 1) next
			line = 1
			while ((getline s < f) > 0) {
				at++
				if (s ~ "(^|[^a-zA-Z0-9_])" $3 "([^a-zA-Z0-9_]|$)") { line = at; break }
			}
			close(f); at = 0
			print f ":" line ": external symbol " $3 " starts with none of: " allowed
		}'
done < "$LINT_TMP/sources" | verdict
