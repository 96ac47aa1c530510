#!/bin/sh
# every external symbol starts with the name of its file or folder
#
# Read from the objects, so that no macro can hide one.  The objects of the
# last build are looked at; a source without one is a violation by itself.
. "$LINT/lib"
if [ -z "${MOE_BUILD-}" ]; then
	eval "$(make -s --no-print-directory where 2> /dev/null)"
fi
core_files > "$LINT_TMP/core"
# What this build leaves out (MPI is absent, or its stand-in) is looked at where it is built.
cat "$MOE_BUILD/off.list" 2> /dev/null | tr ' ' '\n' > "$LINT_TMP/off"
grep '\.c$' "$LINT_TMP/core" | grep -vxF -f "$LINT_TMP/off" | while read -r f; do
	if [ -f "$MOE_BUILD/obj/${f%.c}.o" ]; then
		echo "$MOE_BUILD/obj/${f%.c}.o"
	else
		echo "$f:1: has no object in $MOE_BUILD; run make" >> "$LINT_TMP/none"
	fi
done > "$LINT_TMP/objects"
{
	cat /dev/null "$LINT_TMP/none" 2> /dev/null
	tr '\n' '\0' < "$LINT_TMP/objects" | xargs -0 -r "${NM:-nm}" -A -g --defined-only |
		awk -v obj="$MOE_BUILD/obj/" -v core="$LINT_TMP/core" '
		BEGIN {
			while ((getline h < core) > 0)
				if (sub(/\.h$/, "", h)) header[h]
		}
		# The names a symbol of this source may start with: the words of its
		# path, "-" as "_"; and for fs_out.c beside fs.h also fs, since a
		# module may have several sources.
		function names(f, path, part, n, a, i) {
			sub(/\.c$/, "", f)
			part = path = f
			sub(/^(common|src)\//, "", path)
			gsub(/-/, "_", path)
			gsub(/\//, " ", path)
			n = split(path, a, " ")
			for (i = 1; i <= n; i++)
				if (a[i] ~ /^moe_/) path = path " " substr(a[i], 5)
			while (part ~ /_[^\/_]*$/) {
				sub(/_[^\/_]*$/, "", part)
				if (part in header) {
					i = part
					sub(/.*\//, "", i)
					path = path " " i
				}
			}
			return path
		}
		function line_of(f, symbol, s, at, found) {
			while (!found && (getline s < f) > 0) {
				at++
				found = s ~ "(^|[^a-zA-Z0-9_])" symbol "([^a-zA-Z0-9_]|$)"
			}
			close(f)
			return found ? at : 1
		}
		$NF ~ /^(__|\.)/ || $NF == "main" || NF < 3 { next }
		# The two strings that the whole tree is named after, and the checked
		# product of sizes, which belongs to no module more than to another.
		$NF ~ /^moe_(version|parts)$/ || $NF == "size_mul" { next }
		{
			f = substr($1, length(obj) + 1)
			sub(/\.o:.*/, ".c", f)
			if (!(f in allowed)) allowed[f] = names(f)
			n = split(allowed[f], a, " ")
			for (i = 1; i <= n; i++)
				if ($NF == a[i] || index($NF, a[i] "_") == 1) next
			print f ":" line_of(f, $NF) ": external symbol " $NF " starts with none of: " allowed[f]
		}'
} | verdict
