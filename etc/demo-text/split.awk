# split.awk -- holds out every 20th block of one text: dir/train, dir/held.
#
# A block is a document (blank lines part them) where there are 40 or more, else
# a run of lines, made so that there are about 100.  Ends with 1 when there are
# fewer than 40 lines: a part of a line would break a sentence.
/^[ \t\r]*$/ { blank = 1; next }
{ n++; if (n == 1 || blank) { first[n] = 1; docs++ } blank = 0; line[n] = $0 }
END {
	if (n < 40) exit 1
	run = docs >= 40 ? 0 : n < 200 ? 1 : int(n / 100)
	printf "" > (dir "/train")
	printf "" > (dir "/held")
	for (i = 1; i <= n; i++) {
		if (run ? (i - 1) % run == 0 : (i in first)) block++
		to = dir (block % 20 == 10 ? "/held" : "/train")
		# The border stays where a document ends or a part was cut out.
		if (i > 1 && ((i in first) || to != last)) print "" > to
		print line[i] > to
		last = to
	}
}
