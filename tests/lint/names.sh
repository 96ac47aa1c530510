#!/bin/sh
# base names of C files are unique, lower_snake, and say what is inside
. "$LINT/lib"
c_files | awk '
	{
		n = split($0, p, "/")
		base = p[n]
		stem = base
		sub(/\.([ch]|inc)$/, "", stem)
		dir = substr($0, 1, length($0) - length(base))
		if (base in seen)
			print $0 ":1: the base name is taken by " seen[base]
		else
			seen[base] = $0
		# A header and its source are one module and lie together, or the
		# source one folder further down.
		if ((stem in home) && index(dir, home[stem]) != 1 && index(home[stem], dir) != 1)
			print $0 ":1: the module name is taken in " home[stem]
		home[stem] = dir
		if (base !~ /^[a-z0-9_]+\.([ch]|inc)$/ && $0 !~ /^src\/moe-[a-z]+\.c$/)
			print $0 ":1: the name is not lower_snake"
		if (stem ~ /^(utils?|misc|helpers?|types|common|stuff)$/)
			print $0 ":1: the name says nothing"
	}' | sort -u | verdict
