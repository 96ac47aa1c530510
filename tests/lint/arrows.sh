#!/bin/sh
# includes point downward: src > train > {ckpt optim sim} > shard > {model tok data} > comm > dev > base
#
# Folders in one pair of braces never see each other, nobody outside includes a
# back-end folder, and the paths of the core carry their folder.
. "$LINT/lib"
includes | awk '
	BEGIN {
		n = split("base:1 dev:2 comm:3 model:4 tok:4 data:4 shard:5 ckpt:6 optim:6 sim:6 train:7 src:8", a, " ")
		for (i = 1; i <= n; i++) {
			split(a[i], b, ":")
			layer[b[1]] = b[2]
		}
	}
	function say(s) { print $1 ":" $2 ": " s }
	function folder(path, p) {
		split(path, p, "/")
		return p[1] == "common" ? p[2] : p[1]
	}
	function exists(path, r, l) {
		r = (getline l < path) >= 0
		close(path)
		return r
	}
	{
		from = folder($1)
		if (!(from in layer)) {
			say("folder \"" from "\" has no place among the layers")
			next
		}
		if ($3 == "version_build.h" && $1 == "common/base/version.c")
			next
		dir = $1
		sub(/[^\/]*$/, "", dir)
		if ($3 !~ /\//) {
			if (from != "src")
				say("\"" $3 "\" does not carry its folder")
			else if (!exists(dir $3))
				say("\"" $3 "\" is not in the same folder")
			next
		}
		if ($3 ~ /\.\./) {
			say("\"" $3 "\" climbs out of its folder")
			next
		}
		if (!exists("common/" $3))
			say("\"" $3 "\" is not in common/")
		to = folder("common/" $3)
		if (!(to in layer))
			say("folder \"" to "\" has no place among the layers")
		else if (to != from && layer[to] >= layer[from])
			say(from " must not include " $3 (layer[to] == layer[from] ? ": they are siblings" : ": the arrow points up"))
		if (match($3, /^(dev\/(ref|cpu|cuda|trace|timed)|comm\/(self|mpi|nccl))\//)) {
			back = "common/" substr($3, 1, RLENGTH)
			if (index($1, back) != 1)
				say("\"" $3 "\" belongs to a back end; only its own folder includes it")
		}
	}' | verdict
