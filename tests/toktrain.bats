#!/usr/bin/env bats
# toktrain.bats -- moe-tokenize train: splits, languages, samples, bounds.
load lib

setup() {
	cd "$BATS_TEST_TMPDIR" || exit 1
	words de "der Hund sieht den Hasen und der Hase sieht den Wald im Jahr 1984 und 2026"
	words fr "le chien voit le lapin et le lapin voit la forêt en 1984 et en 2026"
	words mt "il-kelb jara l-fenek u l-fenek jara l-foresta fl-1984 u fl-2026"
}

# words LANG SENTENCE: a text of its words in many orders, the same in every run
words() {
	awk -v s="$2" 'BEGIN {
		n = split(s, w, " "); x = length(s)
		for (i = 0; i < 400; i++) {
			for (k = 0; k < 9; k++) { x = (x * 1103 + 12345) % 65536; printf "%s%s", w[int(x / 7) % n + 1], k < 8 ? " " : ".\n" }
			if (i % 5 == 4) print ""
		}
	}' > "$1.txt"
}

@test "a vocabulary is learned and used with the split that was asked for" {
	for s in gpt2 cl100k o200k llama3 qwen2 qwen3.5 tekken kimi deepseek_v3; do
		passes moe-tokenize train -q --vocab-size 300 --scheme $s -o $s.json de.txt fr.txt
		passes moe-tokenize encode -q --check -t $s.json de.txt fr.txt mt.txt
	done
	run ! cmp -s qwen2.json llama3.json
	fails_with 2 moe-tokenize train -q --vocab-size 300 --scheme nosuch -o x.json de.txt
	says "deepseek_v3"
	[ ! -e x.json ]
}

@test "numbers are learned in groups as long as was asked" {
	passes moe-tokenize train -q --vocab-size 287 --digits 1 -o one.json de.txt
	passes moe-tokenize train -q --vocab-size 287 --digits 4 -o four.json de.txt
	[ "$(printf 2026 | moe-tokenize encode -t one.json | wc -c)" -eq 16 ]
	[ "$(printf 2026 | moe-tokenize encode -t four.json | wc -c)" -lt 16 ]
	fails_with 2 moe-tokenize train -q --vocab-size 300 --scheme gpt2 --digits 3 -o x.json de.txt
}

@test "an expression of one's own is written to the vocabulary and obeyed" {
	passes moe-tokenize train -q --vocab-size 275 --split '\p{L}+|[^\p{L}]' -o own.json de.txt
	grep -q '\[^\\\\p{L}\]' own.json
	passes moe-tokenize encode -q --check -t own.json de.txt
	passes moe-tokenize train -q --vocab-size 275 --split '(\p{L})+|([^\p{L}])' -o group.json de.txt
	[ "$(moe-tokenize encode -t own.json de.txt | cksum)" = "$(moe-tokenize encode -t group.json de.txt | cksum)" ]
	fails_with 2 moe-tokenize train -q --vocab-size 275 --split '(' -o x.json de.txt
	fails_with 2 moe-tokenize train -q --vocab-size 275 --split 'a' --scheme gpt2 -o x.json de.txt
}

@test "NFC is learned from and written" {
	printf 'cafe\314\201 caf\303\251 cafe\314\201 caf\303\251\n' > c.txt
	passes moe-tokenize train -q --vocab-size 261 --nfc -o nfc.json c.txt
	[ "$(printf 'cafe\314\201' | moe-tokenize encode -t nfc.json | od -An -td4)" = "$(printf 'caf\303\251' | moe-tokenize encode -t nfc.json | od -An -td4)" ]
	# Marks are brought into order in a time that is not the square of their number.
	awk 'BEGIN { x = 1; printf "a"; for (i = 0; i < 1000000; i++) { x = (x * 16807) % 2147483647; printf "%s", int(x / 64) % 2 ? "\314\226" : "\314\201" } }' > marks
	passes timeout 20 moe-tokenize encode -q -t nfc.json -o marks marks
	moe-tokenize decode -t nfc.json marks > got
	below=$(grep -ob "$(printf '\314\226')" marks | wc -l)
	# One of those above joins the letter: those below do not stand in its way.
	{ printf '\303\241'; yes "$(printf '\314\226')" | head -n "$below"; yes "$(printf '\314\201')" | head -n $((999999 - below)); } | tr -d '\n' > want
	same got want
}

@test "the result is the same for any number of threads, in every way of training" {
	for how in "" "--parity" "--weight mt=3.5" "--sample-bytes 20000" "--memory 20000" "--scheme deepseek_v3 --nfc"; do
		# shellcheck disable=SC2086
		for j in 1 7; do passes moe-tokenize train -q -j $j --vocab-size 290 $how -o "t$j.json" -f de.txt fr.txt mt.txt; done
		cmp t1.json t7.json
	done
}

@test "packed texts and lines of JSON are learned from as the plain text is" {
	passes moe-tokenize train -q --vocab-size 290 -o plain.json de.txt
	gzip -k de.txt
	passes moe-tokenize train -q --vocab-size 290 -o gz.json de.txt.gz
	cmp plain.json gz.json
	awk 'BEGIN { printf "{\"body\": \"" } { printf "%s\\n", $0 } END { print "\"}" }' de.txt > de.jsonl
	passes moe-tokenize train -q --vocab-size 290 --key body -o json.json de.jsonl
	cmp plain.json json.json
	{ echo '{"other":1}'; cat de.jsonl; echo '{"body'; } > web.jsonl
	fails_with 65 moe-tokenize train -q --vocab-size 290 --key body -o x.json web.jsonl
	passes moe-tokenize train --vocab-size 290 --key body --on key=skip --on json=skip -o skipped.json web.jsonl
	says 'counted in the text: 1 line that is no JSON object (left out), 1 value that is missing (left out)'
	cmp plain.json skipped.json
	fails_with 2 moe-tokenize train -q --vocab-size 290 --key body -o x.json de.txt
	says "no text is named like them"
}

@test "parity brings the languages together, and says so" {
	cat de.txt de.txt de.txt de.txt > de4.txt
	passes moe-tokenize train -q --vocab-size 290 -o by-count.json de=de4.txt mt=mt.txt
	run -0 moe-tokenize train -v --vocab-size 290 --parity -o parity.json de=de4.txt mt=mt.txt
	[[ $output == *"mt: "*"merges were chosen for it"* ]]
	run -0 moe-tokenize stats --tsv -t by-count.json -t parity.json de=de.txt mt=mt.txt
	tokens() { awk -F '\t' -v v="$1" -v l="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "tokens") c = i } $1 == v && $2 == l { print $c; exit }' <<< "$output"; }
	[ "$(tokens parity mt)" -lt "$(tokens by-count mt)" ]
	passes moe-tokenize train -q --vocab-size 290 --parity --dev de=de.txt --dev mt=mt.txt --parity-after 5 --parity-window 10 -o dev.json de=de4.txt mt=mt.txt
	fails_with 2 moe-tokenize train -q --vocab-size 290 --parity -o x.json de.txt
	fails_with 2 moe-tokenize train -q --vocab-size 290 --parity --dev de=de.txt -o x.json de.txt mt.txt
	says "1 of 2"
	fails_with 2 moe-tokenize train -q --vocab-size 290 --dev de=de.txt -o x.json de.txt mt.txt
	fails_with 2 moe-tokenize train -q --vocab-size 290 --parity --parity-after 34 -o x.json de.txt mt.txt
	: > empty
	fails_with 2 moe-tokenize train -q --vocab-size 290 --parity --dev de=empty --dev mt=empty -o x.json de.txt mt.txt
	says "0 of 2"
	fails_with 2 moe-tokenize train -q --vocab-size 290 --parity --dev sv=de.txt -o x.json de.txt mt.txt
	fails_with 65 moe-tokenize train -q --vocab-size 290 --parity -o x.json de.txt mt.txt xx=empty
	says "the texts of xx are empty"
	# A weight is of frequencies, which parity alone does not look at.
	fails_with 2 moe-tokenize train -q --vocab-size 290 --parity --weight mt=3 -o x.json de.txt mt.txt
	passes moe-tokenize train -q --vocab-size 290 --parity --parity-after 5 --weight mt=3 -o w.json de.txt mt.txt
	[ ! -e x.json ]
}

@test "a sample is about as large as was asked, the same each time, and of all of the text" {
	run -0 moe-tokenize train --vocab-size 280 --sample-bytes 8000 -o s.json de.txt
	[[ $output == *"from a sample of "* ]]
	passes moe-tokenize train -q -f --vocab-size 280 --sample-bytes 8000 -o s2.json de.txt
	cmp s.json s2.json
	passes moe-tokenize train -q --vocab-size 280 --sample-bytes 1G -o all.json de.txt
	passes moe-tokenize train -q --vocab-size 280 -o whole.json de.txt
	cmp all.json whole.json
	fails_with 2 moe-tokenize train -q --vocab-size 280 --sample-bytes 8000 -o x.json < de.txt
	fails_with 2 moe-tokenize train -q --vocab-size 280 --sample-bytes 8000 -o x.json <(cat de.txt)
	says 'can be read once, and --sample-bytes reads twice'
	fails_with 2 moe-tokenize train -q --vocab-size 280 --sample-bytes 8000 --parity --dev de=- --dev fr=fr.txt -o x.json de.txt fr.txt < de.txt
}

@test "where memory is bounded rare pieces go first, and it is said" {
	awk 'BEGIN { for (i = 0; i < 20000; i++) printf "w%dx the end\n", i }' > rare.txt
	run -0 moe-tokenize train --vocab-size 262 --memory 200k --digits 9 -o b.json rare.txt
	[[ $output == *"forgotten to stay within --memory"* ]]
	[ "$(printf ' the' | moe-tokenize encode -t b.json | wc -c)" -eq 4 ]
	# The whole program stays within it, but for what reading takes.
	if [ -x "$(type -P time)" ]; then
		awk 'BEGIN { x = 1; for (i = 0; i < 400000; i++) { x = (x * 16807) % 2147483647; y = (y * 7 + x) % 2147483647; printf "%d.%d the end\n", x, y } }' | tr 0-9. g-q > many.txt
		peak() { { command time -f %M moe-tokenize train -q -f -j 2 --vocab-size 262 --memory "$1" -o m.json many.txt; } 2>&1 | tail -n 1; }
		[ "$(peak 0)" -gt 80000 ]
		[ "$(peak 16Mi)" -lt 50000 ]
	fi
	fails_with 65 moe-tokenize train -q --vocab-size 400 --memory 1 -o x.json rare.txt
	says "no other pair is seen 2 times in what --memory had room for"
}

@test "text without a space is cut where words may not be longer, and takes no time" {
	awk 'BEGIN { x = 1; for (i = 0; i < 300000; i++) { x = (x * 16807) % 2147483647; printf "%s", substr("ACGT", int(x / 64) % 4 + 1, 1) } }' > dna.txt
	run -0 moe-tokenize train --vocab-size 300 --max-word 64 -o dna.json dna.txt
	[[ $output == *"were cut because they are longer than 64 bytes"* ]]
}

@test "nothing is merged that is seen no more" {
	printf 'abababab' > ab.txt
	run moe-tokenize train -q --vocab-size 300 --min-frequency 1 --eod '<e>' -o ab.json ab.txt
	[ "$status" -eq 65 ]
	[[ $output == *"supports a vocabulary of 260 tokens"* ]]
	passes moe-tokenize train -q --vocab-size 260 --min-frequency 1 --eod '<e>' -o ab.json ab.txt
	[ "$(printf abababab | moe-tokenize encode -t ab.json | wc -c)" -eq 4 ]
}

@test "reserved tokens have their names and places" {
	passes moe-tokenize train -q --vocab-size 280 --special '<user>' --reserved 3 -o r.json de.txt
	grep -q '<|reserved_2|>' r.json
	[ "$(printf '<|reserved_0|>' | moe-tokenize encode -t r.json --specials | od -An -td4 | tr -d ' ')" = 258 ]
	fails_with 2 moe-tokenize train -q --vocab-size 270 --reserved 100 -o x.json de.txt
}

@test "weights that are none are refused" {
	fails_with 2 moe-tokenize train -q --vocab-size 280 --weight de=2 --weight de=3 -o x.json de.txt fr.txt
	for w in de=0 de=-1 de=abc de=1.23456 xx=1 de; do
		fails_with 2 moe-tokenize train -q --vocab-size 280 --weight "$w" -o x.json de.txt fr.txt
	done
	[ ! -e x.json ]
}
