#!/usr/bin/env bats
# stats.bats -- moe-tokenize stats: numbers that can be checked by hand.

load lib

# Bytes are written as ByteLevel characters: C3 A9 (e with acute accent) is two
# entries; "bc" is an entry that no merge yields.
setup() {
	cd "$BATS_TEST_TMPDIR" || exit
	cat > tok.json <<- 'JSON'
		{"version":"1.0","truncation":null,"padding":null,
		"added_tokens":[
		{"id":0,"content":"<|endoftext|>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},
		{"id":12,"content":"<unk>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
		"normalizer":null,
		"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},
		"post_processor":null,
		"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true},
		"model":{"type":"BPE","dropout":null,"unk_token":"<unk>","continuing_subword_prefix":null,"end_of_word_suffix":null,
		"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,
		"vocab":{"<|endoftext|>":0,"a":1,"b":2,"c":3,"Ġ":4,"ab":5,"Ġab":6,"Ċ":7,"Ã":8,"©":9,",":10,"bc":11,"<unk>":12},
		"merges":["a b","Ġ ab"]}}
	JSON
	printf 'ab ab c\n' > en.txt
	printf 'cab é ab,b\n' > valid.xx
}

field() { printf '%s' "$1" | sed 's/[,{}]/\n/g' | sed -n "s/^\"$2\"://p" | head -n 1; }

# row KEY VALUE: the line of $output that has it.
row() { printf '%s\n' "$output" | grep "\"$1\":\"$2\"" | head -n 1; }

# is LINE KEY=VALUE...: numbers agree to six digits.
is() {
	local line=$1 pair got
	shift
	for pair; do
		got=$(field "$line" "${pair%%=*}")
		awk -v a="$got" -v b="${pair#*=}" 'BEGIN { d = a - b; exit !(a != "" && a != "null" && d < 1e-6 && d > -1e-6) }' || {
			echo "$pair expected, got $got in $line"
			return 1
		}
	done
}

# ab | Ġab | Ġ c | LF: 5 tokens, no word in two of them.
# c ab | Ġ Ã © | Ġab , b | LF: 9 tokens; every word is in several, and of the
# plain words cab, e, ab and b the last two are whole.
@test "the numbers of two small texts are those computed by hand" {
	passes moe-tokenize stats --json --base en -t tok.json en.txt valid.xx
	is "$(row language en)" files=1 bytes=8 words=3 tokens=5 bytes_per_token=1.6 fertility=1.6666667 parity=1 continued=0 \
		retention=1 used=5 utilisation=0.45454545 partial=0 unknown=0 invalid_utf8=0
	is "$(row language xx)" files=1 bytes=12 words=3 tokens=9 bytes_per_token=1.3333333 fertility=3 parity=1.8 continued=1 \
		retention=0.5 used=9 utilisation=0.81818182 partial=2 unknown=0
	is "$(row schema moe.tokenize-stats-total/1)" vocab_size=13 languages=2 bytes=20 words=6 tokens=14 fertility=2.3333333 \
		mean_fertility=2.3333333 mean_parity=1.4 worst_parity=1.8 gini=0.14285714 continued=0.5 used=9 unreachable=1
	[ "$(field "$(row schema moe.tokenize-stats-total/1)" worst)" = '"xx"' ]
	[ "$(field "$(row schema moe.tokenize-stats-total/1)" gini_of)" = '"tokens"' ]
}

@test "without a base there is no parity, and Gini is of tokens a word" {
	passes moe-tokenize stats --json -t tok.json en.txt valid.xx
	[ "$(field "$(row language xx)" parity)" = null ]
	# fertilities 5/3 and 3
	is "$(row schema moe.tokenize-stats-total/1)" gini=0.14285714
	[ "$(field "$(row schema moe.tokenize-stats-total/1)" gini_of)" = '"fertility"' ]
	passes moe-tokenize stats -t tok.json en.txt valid.xx
	case $output in *parity*) false ;; esac
}

@test "what no token stands for is counted as unknown, and invalid bytes are named" {
	printf '? ab\n' > a.zz
	passes moe-tokenize stats --json -t tok.json a.zz
	is "$(row language zz)" tokens=3 unknown=1 words=2
	printf 'ab \377\n' > a.zz
	passes moe-tokenize stats --json -t tok.json a.zz
	is "$(row language zz)" invalid_utf8=1
	says 'zz: bytes that are no valid UTF-8: 1'
}

@test "languages are named by files or by hand, and files of one language are one row" {
	mkdir d
	cp en.txt d/en.txt
	cp valid.xx d/README
	gzip -k en.txt
	printf '{"text":"ab ab c\\n"}\n' > train.en.jsonl
	passes moe-tokenize stats --tsv -t tok.json en.txt d/en.txt en.txt.gz train.en.jsonl d/README yy=valid.xx valid.xx
	[ "$(printf '%s\n' "$output" | grep ^tok | head -n 4 | cut -f 2-4 | tr '\t\n' ': ')" = 'en:4:32 README:1:12 yy:1:12 xx:1:12 ' ]
	: > empty.txt
	passes moe-tokenize stats -t tok.json empty.txt
}

@test "a word that lies across reads is one word, whoever reads" {
	# Slabs are of 8 MiB; a word of 20 MiB spans three of them.
	head -c 20000000 /dev/zero | tr '\0' 'c' > one.txt
	printf ' ab' >> one.txt
	for j in 1 3; do
		passes moe-tokenize stats --json -j $j -t tok.json one.txt
		is "$(row language one)" words=2 tokens=20000001 continued=0.5 retention=0.5
	done
}

@test "vocabularies stand side by side" {
	mkdir m
	cp tok.json m/tokenizer.json
	passes moe-tokenize stats --base en -t tok.json -t m/tokenizer.json en.txt valid.xx
	says 'tok  /word  parity  m  /word  parity'
	says 'worst language'
	passes moe-tokenize stats --json -t tok.json -t m/tokenizer.json en.txt valid.xx
	[ "$(printf '%s\n' "$output" | wc -l)" -eq 6 ]
}

@test "lines of JSON are measured under all keys, beside plain text, and what is in them is decided about as by encode" {
	printf '%s\n' '{"t":"ab ab c","u":"ab"}' '{"t":"ab"}' 'no' '{"t":"ab","u":"c"}' > en.jsonl
	fails_with 65 moe-tokenize stats -t tok.json --key t --key u en.jsonl en.txt
	says 'en.jsonl:2: "u" is absent'
	passes moe-tokenize stats --json -t tok.json --key t --key u --on key=skip --on json=skip en.jsonl en.txt
	is "$(row language en)" bytes=20 words=9 tokens=12
	says 'counted in the text: 1 line that is no JSON object (left out), 1 value that is missing (left out)'
	fails_with 2 moe-tokenize stats -t tok.json --on key=keep en.jsonl
}

@test "what cannot be measured is refused in one line" {
	fails_with 2 moe-tokenize stats en.txt
	says 'no vocabulary'
	fails_with 2 moe-tokenize stats --base de -t tok.json en.txt
	says 'no text of that language'
	fails_with 2 moe-tokenize stats -t tok.json -t tok.json -
	says 'standard input can be read once, and each of 2 vocabularies reads it'
	fails_with 2 moe-tokenize stats -t tok.json -t tok.json en=<(cat en.txt)
	says 'can be read once, and each of 2'
	passes moe-tokenize stats -t tok.json en=<(cat en.txt)
	fails_with 66 moe-tokenize stats -t tok.json none.txt
	fails_with 2 moe-tokenize stats --json --tsv -t tok.json en.txt
	fails_with 2 moe-tokenize stats -t tok.json en=- xx=-
	says 'standard input is named twice'
	fails_with 2 moe-tokenize stats -t tok.json --key text en.txt
	says 'no text is named like them'
	: > none.en
	fails_with 65 moe-tokenize stats -t tok.json --base en none.en valid.xx
	says '--base en: its texts are empty'
	# What cannot be said is no number.
	moe-tokenize stats -t tok.json none.en > out
	[ "$(grep -c '^tokens a word.* -$' out)" = 2 ]
	run ! grep -q ' 0\.00$' out
	passes moe-tokenize stats -t tok.json < en.txt
	[ "$(moe-tokenize stats --json -t tok.json < en.txt | head -n 1 | grep -o '"tokens":[0-9]*')" = '"tokens":5' ]
	run --separate-stderr moe-tokenize stats --json -t tok.json en=- < en.txt
	is "$(row language en)" tokens=5
}
