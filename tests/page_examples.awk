# page_examples.awk -- the commands in the EXAMPLES of a manual page, each block
# as a script DIR/01, DIR/02...; prints the name of each, a tab, and the reason
# when the page says that it is not run.
#
# usage: awk -v dir=DIR -f tests/page_examples.awk man/moe-X.1
# A block is  .Bd -literal ... .Ed  or a run of  .Dl  lines.  Where a block has
# lines that begin with "$ ", only those (and what a backslash continues) are
# commands and the rest is what they print.  A block that cannot run here is
# announced by a comment before it:  .\" not run: it needs two nodes

function plain(s) {
	gsub(/\\&/, "", s)
	gsub(/\\-/, "-", s)
	gsub(/\\\(dq/, "\"", s)
	gsub(/\\\(aq/, "'", s)
	gsub(/\\\(ti/, "~", s)
	gsub(/\\\(ha/, "^", s)
	gsub(/\\\(ga/, "`", s)
	gsub(/\\\(rs|\\e/, "\\", s)
	return s
}

function finish(   file, prompt, i, on) {
	if (lines == 0)
		return
	file = dir "/" sprintf("%02d", ++blocks)
	for (i = 1; i <= lines; i++)
		prompt = prompt || line[i] ~ /^\$ /
	for (i = 1; i <= lines; i++) {
		if (line[i] ~ /^\$ /) {
			on = 1
			line[i] = substr(line[i], 3)
		} else if (!on && prompt)
			continue
		print line[i] > file
		on = line[i] ~ /\\$/
	}
	close(file)
	print file "\t" reason
	lines = 0
	reason = ""
}

/^\.Sh/ {
	finish()
	inside = $2 == "EXAMPLES"
	next
}
!inside { next }
/^\.\\" not run: / {
	finish()
	reason = substr($0, 14)
	next
}
/^\.Bd .*-literal/ {
	finish()
	literal = 1
	next
}
/^\.Ed/ {
	literal = 0
	finish()
	next
}
literal { line[++lines] = plain($0); next }
/^\.Dl / {
	line[++lines] = plain(substr($0, 5))
	next
}
{ finish() }
END { finish() }
