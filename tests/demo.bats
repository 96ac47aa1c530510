#!/usr/bin/env bats
# demo.bats -- the demo and its parts: text, yardsticks, and one short run from end to end, without a network.

load lib

setup() {
	cd "$BATS_TEST_TMPDIR" || exit
}

ngram() {
	[ -x "$BATS_FILE_TMPDIR/ngram" ] || ${CC:-cc} -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -o "$BATS_FILE_TMPDIR/ngram" "$ROOT/etc/yardstick/ngram.c" -lm
	"$BATS_FILE_TMPDIR/ngram" "$@"
}

# text LANG KIB SEED: one file of text
text() { awk -v kib="$2" -v seed="$3" -f "$ROOT/tests/text.awk" > "$1.txt"; }

# page LANG NAME TITLE PARAGRAPH...: a help page below help/
page() {
	local dir=help/usr/share/help/$1/gnome-help name=$2
	mkdir -p "$dir"
	{
		echo '<?xml version="1.0" encoding="utf-8"?>'
		echo "<page xmlns=\"http://projectmallard.org/1.0/\" type=\"topic\" id=\"$name\">"
		echo "<info><title type=\"link\">hidden</title><credit><name>Somebody</name></credit><desc>$3</desc></info>"
		shift 3
		printf '<p>%s</p>\n' "$@"
		echo '</page>'
	} > "$dir/$name.page"
}

@test "the yardstick gives the bits that were counted by hand" {
	# abaab: c(a) = 3, c(b) = 2, two kinds; after a: b twice, a once.
	# P0(a) = (3 + 2/256)/7, P0(b) = (2 + 2/256)/7, P1(b|a) = (2 + 2 P0(b))/5.
	printf abaab > train
	printf ab > held
	passes ngram -o 0,1 train -- held
	want=$(awk 'BEGIN {
		a = (3 + 2 / 256) / 7; b = (2 + 2 / 256) / 7; ab = (2 + 2 * b) / 5
		printf "held\t0\t2\t2\t%.3f\t%.4f\n", -log(a * b) / log(2), -log(a * b) / log(2) / 2
		printf "held\t1\t2\t2\t%.3f\t%.4f\n", -log(a * ab) / log(2), -log(a * ab) / log(2) / 2 }')
	[ "$(echo "$output" | grep ^held)" = "$want" ]
	# Never seen at all: the last resort is one of 256.
	printf z > other
	passes ngram -o 0 train -- other
	says "$(awk 'BEGIN { printf "%.4f", -log(2 / 256 / 7) / log(2) }')"
}

@test "the yardstick reads tokens and divides by the bytes of their text" {
	# The same symbols as bytes and as 16 and 32 bits, little endian.
	printf abaab > b.train
	printf ab > b.held
	printf 'a\0b\0a\0a\0b\0' > w.train
	printf 'a\0b\0' > w.held
	printf 'a\0\0\0b\0\0\0a\0\0\0a\0\0\0b\0\0\0' > l.train
	printf 'a\0\0\0b\0\0\0' > l.held
	passes ngram -o 1 b.train -- b.held
	bytes=$(echo "$output" | awk '/^all/ { print $5 }')
	passes ngram -o 1 -w 2 -a 256 w.train -- w.held=10
	[ "$(echo "$output" | awk '/^all/ { print $3, $4, $5 }')" = "2 10 $bytes" ]
	passes ngram -o 1 -w 4 -a 256 l.train -- l.held=10
	[ "$(echo "$output" | awk '/^all/ { print $5 }')" = "$bytes" ]
}

@test "the probabilities of the yardstick add up to one" {
	printf 'abracadabra' > train
	for s in $(seq 0 255); do
		printf "ra%b" "\\0$(printf %03o "$s")" > "held.$s"
	done
	printf ra > ra
	passes ngram -o 2 train -- ra
	before=$(echo "$output" | awk '/^all/ { print $5 }')
	passes ngram -o 2 train -- held.*
	echo "$output" | awk -v before="$before" '/^held/ { sum += exp(-log(2) * ($5 - before)) } END { exit !(sum > 0.998 && sum < 1.002) }'
}

@test "bad input of the yardstick is one line and a status" {
	printf abc > odd
	: > none
	fails_with 66 ngram absent -- odd
	fails_with 65 ngram -w 2 -a 256 odd -- odd=1
	fails_with 65 ngram -a 90 odd -- odd
	fails_with 65 ngram odd -- none
	fails_with 2 ngram odd
	fails_with 2 ngram -o 9 odd -- odd
	fails_with 2 ngram -o 1,x odd -- odd
	fails_with 2 ngram -w 4 -a 100000 -o 6 odd -- odd=3
	printf ab > even
	fails_with 2 ngram -w 2 -a 30000 even -- even
	fails_with 65 ngram -w 2 -a 256 even -- even=2
	status=0
	ngram odd -- odd > /dev/full 2> err || status=$?
	[ "$status" -eq 74 ]
}

@test "help pages become a line a paragraph, without what is not text" {
	page C a 'A "title" &amp; more' 'Press <keyseq><key>Ctrl</key><key>C</key></keyseq> or choose
		<guiseq><gui>Edit</gui> <gui>Copy</gui></guiseq>.' 'a &lt;b&gt; &amp;lt; &#8594;&#x20AC; &unknown;' \
		'<!-- <p>no</p> -->seen<![CDATA[ <raw> & ]]>too' '</p><screen>$ ls</screen><comment><p>draft</p></comment><p>end'
	passes env LC_ALL=C awk -f "$ROOT/etc/demo-text/mallard.awk" help/usr/share/help/C/gnome-help/a.page
	[ "$output" = 'A "title" & more
Press Ctrl+C or choose Edit > Copy.
a <b> &lt; →€ &unknown;
seen <raw> & too
end' ]
}

@test "what is not translated, comes again or was seen in training is left out" {
	# Twenty pages: the tenth in order is held out.
	for i in $(seq -w 1 20); do
		page C "p$i" 'English title' "English text number $i."
		page de "p$i" 'English title' "Deutscher Text Nummer $i." "English text number $i." 'Immer gleich.'
	done
	page de p10 'Neuer Titel' 'Deutscher Text Nummer 03.' 'Nur hier.'
	page sv p01 'English title' 'Kort text.'
	export DEMO_TEXT_LEAST=100
	passes sh "$ROOT/etc/demo-text/gnome" -l 'de en sv xx' help out
	says 'not among the translations: xx'
	says 'skipped, less than 0 KiB: sv (0 KiB)'
	[ "$(cat out/held.de.txt)" = 'Neuer Titel
Nur hier.' ]
	[ "$(grep -c . out/train.de.txt)" -eq 20 ]      # 19 pages, and once what they all say
	[ "$(grep -c English out/train.de.txt)" -eq 0 ]
	[ "$(cat out/held.en.txt)" = 'English text number 10.' ]
	[ ! -e out/train.sv.txt ]
	# Documents stay parted.
	[ "$(head -n 4 out/train.de.txt | tail -n 2)" = '
Deutscher Text Nummer 02.' ]
	# The same again is no work; other input is not overwritten.
	passes sh "$ROOT/etc/demo-text/gnome" -l 'de en sv xx' help out
	says 'up to date'
	fails_with 73 sh "$ROOT/etc/demo-text/gnome" -l 'de' help out
	[ -z "$(find . -name '.text.*')" ]
}

@test "a text of one's own is split the same way each time, and no held-out line is in training" {
	mkdir mine
	(cd mine && text de 80 1 && text sv 70 2 && tr -s '\n' < sv.txt > f && mv f sv.txt && text it 70 3 && text small 20 4)
	head -n 50 mine/de.txt > mine/held.it.txt
	passes sh "$ROOT/etc/demo-text/own" mine out
	says 'skipped, less than 64 KiB: small ('
	passes sh "$ROOT/etc/demo-text/own" mine again
	rm out/made-from again/made-from
	diff -r out again
	for l in de sv; do
		[ -z "$(grep . out/held.$l.txt | grep -Fxf out/train.$l.txt)" ]
		# Nothing is lost, and about a twentieth is held out.
		[ "$(cat out/train.$l.txt out/held.$l.txt | grep . | sort | cksum)" = "$(grep . mine/$l.txt | sort | cksum)" ]
		[ $((20 * $(wc -c < out/held.$l.txt))) -gt $(($(wc -c < mine/$l.txt) / 2)) ]
		[ $((20 * $(wc -c < out/held.$l.txt))) -lt $(($(wc -c < mine/$l.txt) * 2)) ]
	done
	same mine/it.txt out/train.it.txt
	same mine/held.it.txt out/held.it.txt
}

@test "folders without text, and text that cannot be split, are refused" {
	mkdir empty one bad
	fails_with 66 sh "$ROOT/etc/demo-text/own" absent out
	fails_with 66 sh "$ROOT/etc/demo-text/own" empty out
	echo 'one line' > one/en.txt
	fails_with 65 sh "$ROOT/etc/demo-text/own" one out
	(cd bad && text a 70 1 && mv a.txt 'a b.txt')
	fails_with 65 sh "$ROOT/etc/demo-text/own" bad out
	fails_with 66 sh "$ROOT/etc/demo-text/gnome" empty out
	fails_with 66 env TEXT=absent sh "$ROOT/etc/demo"
	fails_with 2 env DEMO='a b' sh "$ROOT/etc/demo"
	fails_with 2 env DEMO_SECONDS=many sh "$ROOT/etc/demo"
	[ ! -e out ]
}

@test "the package is fetched once, unpacked, and needs a network only for that" {
	need dpkg-deb
	page C a 'Title' 'Text.'
	mkdir help/DEBIAN bin
	printf '%s\n' 'Package: gnome-user-docs' 'Version: 1-1' 'Architecture: all' 'Maintainer: nobody <n@example.org>' 'Description: test' > help/DEBIAN/control
	dpkg-deb -b help gnome-user-docs_1-1_all.deb > log
	rm -r help
	# An apt-get without a network, then one that has the package.
	printf '#!/bin/sh\necho "E: Temporary failure resolving" >&2\nexit 100\n' > bin/apt-get
	chmod +x bin/apt-get
	if compgen -G '/var/cache/apt/archives/gnome-user-docs_*.deb' > /dev/null; then skip "apt-get already keeps the package"; fi
	mkdir demo
	run --separate-stderr env PATH="$PWD/bin:$PATH" sh "$ROOT/etc/demo-text/fetch" demo/help
	[ "$status" -eq 69 ]
	says 'cannot download gnome-user-docs: Temporary failure resolving.'
	says 'TEXT=DIR'
	[ -z "$(ls -A demo)" ]
	printf '#!/bin/sh\ncase "$*" in *download*) cp "%s" . ;; esac\n' "$PWD/gnome-user-docs_1-1_all.deb" > bin/apt-get
	passes env PATH="$PWD/bin:$PATH" sh "$ROOT/etc/demo-text/fetch" demo/help
	[ -f demo/help/usr/share/help/C/gnome-help/a.page ]
	# From now on without: the unpacked text, then the package beside it.
	printf '#!/bin/sh\nexit 100\n' > bin/apt-get
	passes env PATH="$PWD/bin:$PATH" sh "$ROOT/etc/demo-text/fetch" demo/help
	says 'up to date'
	rm -r demo/help
	passes env PATH="$PWD/bin:$PATH" sh "$ROOT/etc/demo-text/fetch" demo/help
	# A torn download is not believed.
	rm -r demo/help
	head -c 300 gnome-user-docs_1-1_all.deb > demo/gnome-user-docs_1-1_all.deb
	run --separate-stderr env PATH="$PWD/bin:$PATH" sh "$ROOT/etc/demo-text/fetch" demo/help
	[ "$status" -eq 69 ]
}

@test "the short demo runs from end to end, and a second time finds everything done" {
	mkdir mine
	(cd mine && text de 80 1 && text sv 80 2)
	export TEXT=$PWD/mine DEMO=$PWD/demo
	passes sh "$ROOT/etc/demo" --short
	says 'What was made'
	says 'tokens/s'
	says 'Held-out text, bits per byte'
	# Every command is shown, every set stands in the table, the loss went down.
	[ "$(echo "$output" | grep -c '^\$ ')" -ge 12 ]
	echo "$output" | awk '$1 == "all" { for (i = 2; i <= 5; i++) if ($i < 0.5 || $i > 8) exit 1; found = 1 } END { exit !found }'
	echo "$output" | awk '$1 == "loss" { found = $2 > $NF + 0.2 } END { exit !found }'
	echo "$output" | grep -Eq '^  (de|sv) +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$'
	passes moe-ckpt verify demo/run
	before=$(cksum < demo/run/metrics.jsonl)
	passes sh "$ROOT/etc/demo" --short
	says 'up to date'
	[ "$(grep -c moe.metrics/1 demo/run/metrics.jsonl)" -eq 20 ]
	[ "$(cksum < demo/run/metrics.jsonl)" = "$before" ]
}

@test "a demo with little time takes fewer steps, keeps their number, and fails as it beats nothing" {
	mkdir mine
	(cd mine && text de 130 1 && text sv 130 2)
	export TEXT=$PWD/mine DEMO=$PWD/demo DEMO_SECONDS=1
	run --separate-stderr sh "$ROOT/etc/demo"
	[ "$status" -eq 1 ]
	says 'fewer steps, to end within 1 s'
	says 'does not beat both yardsticks'
	steps=$(grep -c moe.metrics/1 demo/run/metrics.jsonl)
	[ "$steps" -eq 20 ]
	# With more time it is still the same run, and done.
	DEMO_SECONDS=100
	run --separate-stderr sh "$ROOT/etc/demo"
	[ "$status" -eq 1 ]
	[ "$(grep -c moe.metrics/1 demo/run/metrics.jsonl)" -eq "$steps" ]
}

@test "an interrupted demo ends with 130 and goes on where it was" {
	mkdir mine
	(cd mine && text de 80 1)
	export TEXT=$PWD/mine DEMO=$PWD/demo
	# A terminal sends the interrupt to all of the group.
	setsid --wait bash -c 'trap - INT; exec sh "$0" --short' "$ROOT/etc/demo" > out 2> err &
	job=$!
	for _ in $(seq 600); do
		[ ! -s demo/run/metrics.jsonl ] || break
		sleep 0.05
	done
	pid=$(ps -o pid= --ppid "$job" | head -n 1)
	kill -INT -- "-${pid:-$job}" || kill -INT -- "-$job"
	status=0
	wait "$job" || status=$?
	if grep -q 'Held-out text, bits' out; then skip "the run was over before the interrupt"; fi
	[ "$status" -eq 130 ]
	grep -q 'goes on from here' err
	passes sh "$ROOT/etc/demo" --short
	[ "$(grep -c moe.metrics/1 demo/run/metrics.jsonl)" -eq 20 ]
}

# A result made up for the summary: summary MODEL prints it and returns its status.
summary() {
	mkdir -p s
	printf '#kind\ttensors\ttotal\tactive\nall\t1\t2000000\t1000000\n' > s/count.tsv
	echo '{"vocab_size":4096,"tokens":1000000,"text_bytes":3000000}' > s/train.json
	echo '{"vocab_size":4096,"tokens":10000,"text_bytes":30000}' > s/held.json
	printf 'x/held.de.txt\t2\t1\t1\t1\t3.3\nx/held.de.txt\t3\t1\t1\t1\t2.7\nall\t2\t1\t1\t1\t3.3\nall\t3\t1\t1\t1\t2.7\n' > s/bytes.tsv
	printf 'x/held/de.bin\t1\t1\t1\t1\t2.3\nall\t1\t1\t1\t1\t2.3\n' > s/tokens.tsv
	printf '#step\tset\ttokens\tloss\tppl\tbits_per_byte\n2\tde\t9000\t%s\t1\t%s\n' "$(awk -v b="$1" 'BEGIN { print b * 3 * log(2) }')" "$1" > s/eval.tsv
	printf '{"schema":"moe.metrics/1","step":%s,"tokens":%s,"loss":%s,"step_s":0.5,"flops":5e10,"mfu":0.5,"rss":1000000}\n' \
		1 1000 8 2 2000 7 2 2000 4 > s/metrics.jsonl
	awk -v D=demo -v seconds=10 -v langs=de -f "$ROOT/etc/demo.awk" s/count.tsv s/train.json s/held.json s/bytes.tsv s/tokens.tsv s/eval.tsv s/metrics.jsonl
}

@test "the demo fails unless the model beats three bytes and one token of context" {
	passes summary 2.1
	says 'the model beats'
	# A repeated step counts once, with its last row; speed and share follow.
	says '2,000 tokens/s, 100 GFLOP/s, 50 % of the 200 GFLOP/s'
	says 'loss     8.00 #_ 4.00'
	says '2,000 tokens in 1 s'
	run --separate-stderr summary 2.5
	[ "$status" -eq 1 ]
	run --separate-stderr summary 2.8
	[ "$status" -eq 1 ]
	says 'does not beat both'
}
