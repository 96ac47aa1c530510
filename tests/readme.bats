#!/usr/bin/env bats
# readme.bats -- every code block of README.md runs as it stands, one after the other.
#
# A copy of the tree stands in for the real one, with a smaller training run
# and invented help pages, so that it takes seconds.  The first block (the demo
# and all tests) and make are replaced by what says that they were called:
# demo.bats runs the one, and whoever runs this file has run the others.

load lib

# blocks FILE DIR: each fenced block as DIR/NN; anything but sh is an error.
blocks() {
	awk -v dir="$2" '
		/^```/ && !on { on = 1; n++; file = sprintf("%s/%02d", dir, n); printf "" > file; if ($0 != "```sh") { print FILENAME ":" FNR ": a block that is not sh"; bad = 1 } next }
		/^```/ { on = 0; next }
		on { print > file }
		END { exit bad || on || !n }' "$1"
}

# Blocks that start ranks run where there is MPI, and are left out elsewhere.
of_ranks() { grep -qE -e '--ranks [2-9].* -o |moe-train verify' "$1"; }

tree() {
	mkdir -p bin tree/bin tree/tests tree/demo
	cp -r "$ROOT/README.md" "$ROOT/etc" "$ROOT/man" tree
	local cmd
	for cmd in tree/etc/demo tree/tests/check; do
		printf '#!/bin/sh\necho "called %s"\n' "$cmd" > $cmd
	done
	# Far fewer steps, the same model.
	sed -E -i 's/^( *steps:).*/\1 3/; s/warmup: [0-9]+, decay: [0-9]+/warmup: 1, decay: 1/' tree/etc/small.yaml
	grep -q 'steps: 3' tree/etc/small.yaml
	printf '#!/bin/sh\nln -s "$MOE_BIN"/moe-* bin\n' > bin/make
	printf '#!/bin/sh\ncase "$*" in *download*) cp "$PACKAGE" . ;; esac\n' > bin/apt-get
	command -v man > /dev/null || printf '#!/bin/sh\nexec mandoc "$2"\n' > bin/man
	chmod +x bin/*
}

# The package that the demo asks for, with invented pages in three languages.
package() {
	local l n dir
	mkdir -p help/DEBIAN
	printf '%s\n' 'Package: gnome-user-docs' 'Version: 1-1' 'Architecture: all' 'Maintainer: nobody <n@example.org>' 'Description: test' > help/DEBIAN/control
	n=0
	for l in C de fr; do
		dir=help/usr/share/help/$l/gnome-help
		mkdir -p "$dir"
		n=$((n + 1))
		awk -v kib=130 -v seed=$n -v mallard=1 -f "$ROOT/tests/text.awk" | awk -v dir="$dir" '
			NR % 50 == 1 { if (f) print "</page>" > f; f = sprintf("%s/p%03d.page", dir, NR / 50); print "<page xmlns=\"http://projectmallard.org/1.0/\">" > f }
			{ print > f }
			END { print "</page>" > f }'
	done
	dpkg-deb -b help gnome-user-docs_1-1_all.deb > log
	PACKAGE=$PWD/gnome-user-docs_1-1_all.deb
	export PACKAGE
}

@test "every code block of the README runs" {
	need dpkg-deb
	need mandoc
	cd "$BATS_TEST_TMPDIR"
	mkdir blocks
	blocks "$ROOT/README.md" blocks
	tree
	package
	# One shell for all, as a reader would have; it says how far it came.
	no_ranks > why
	for b in blocks/*; do
		if [ -s why ] && of_ranks "$b"; then
			rm "$b"
			continue
		fi
		echo "echo 'block ${b#*/}' >&3"
		cat "$b"
	done > all
	status=0
	(cd tree && PATH=$BATS_TEST_TMPDIR/bin:/usr/bin:/bin MANPAGER=cat sh -eu ../all) > out 2> err 3> reached < /dev/null || status=$?
	if [ "$status" -ne 0 ]; then
		echo "status $status in"
		cat "blocks/$(tail -n 1 reached | cut -d' ' -f2)"
		tail -n 20 out err
	fi
	[ "$status" -eq 0 ]
	[ "$(head -n 2 out)" = 'called tree/etc/demo
called tree/tests/check' ]
	[ "$(wc -l < reached)" -eq "$(find blocks -type f | wc -l)" ]
	# They did what they say.
	grep -q '^Klicken Sie auf' out
	[ -f tree/demo/run/latest/model.safetensors.index.json ]
	[ -s why ] || mv tree/demo/ranks out "$BATS_FILE_TMPDIR"
}

@test "the blocks of several ranks were among them" {
	need_ranks
	need dpkg-deb
	need mandoc
	cd "$BATS_FILE_TMPDIR"
	moe-ckpt verify -q ranks
	grep -q '"mesh": *{"replicas": *1, *"efsdp": *1, *"ep": *2}' ranks/latest/MANIFEST.json
	grep -qE '^ *1x1x2 +gradient ' out
}

@test "the README names what is there: programs, subcommands and files" {
	# Program and subcommands of the table.
	sed -n 's/^| `\(moe-[a-z]*\)` |.*| `\([a-z ]*\)` |$/\1 \2/p' "$ROOT/README.md" > "$BATS_TEST_TMPDIR/table"
	for p in "$MOE_BIN"/moe-*; do
		p=${p##*/}
		echo "$p $("$p" --print-options | awk -F'\t' '!/^#/ && $3 == "" { printf "%s%s", sep, $1; sep = " " }')"
	done > "$BATS_TEST_TMPDIR/built"
	# The first is the default; the order of the others is free.
	norm() { while read -r p first rest; do echo "$p $first $(echo "$rest" | tr ' ' '\n' | sort | xargs)"; done < "$1" | sort; }
	diff <(norm "$BATS_TEST_TMPDIR/table") <(norm "$BATS_TEST_TMPDIR/built")
	for f in $(grep -oE '\]\([A-Za-z./-]+\)' "$ROOT/README.md" | tr -d '()]'); do
		[ -e "$ROOT/$f" ] || { echo "README.md: no $f" && false; }
	done
}

@test "a block that fails, and one that is not shell, are seen" {
	cd "$BATS_TEST_TMPDIR"
	mkdir b
	printf '```sh\ntrue\n```\ntext\n```sh\nfalse\n```\n' > ok.md
	blocks ok.md b
	[ "$(cat b/01 b/02)" = 'true
false' ]
	printf '```python\nprint()\n```\n' > bad.md
	run blocks bad.md b
	[ "$status" -eq 1 ]
	says 'bad.md:1: a block that is not sh'
	: > none.md
	run blocks none.md b
	[ "$status" -eq 1 ]
}

@test "the vocabulary that the README learns is the one of etc/small.yaml" {
	grep -q -e "--vocab-size $(sed -n 's/^ *vocab_size: *//p' "$ROOT/etc/small.yaml") " "$ROOT/README.md"
}
