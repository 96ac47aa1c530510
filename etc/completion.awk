# completion.awk -- bash completion from the option tables of one program.
#
# usage: moe-X --print-options | awk -v prog=moe-X -f etc/completion.awk
# Offers subcommands, options, and the words of a choice; where a file or a
# free value stands, the shell's own completion is left to do its work.

BEGIN { FS = "\t" }
/^#/ { next }
$3 == "" {
	n++
	cmd[n] = $1
	all = all (n > 1 ? " " : "") $1
	next
}
{
	opts[$1] = opts[$1] " --" $3 ($2 != "" ? " -" $2 : "")
	if ($4 == "")
		next
	pattern = $1 ":--" $3 ($2 != "" ? " | " $1 ":-" $2 : "")
	if ($4 ~ /\|/) {
		words = $4
		gsub(/\|/, " ", words)
		takes = takes "\t" pattern ") COMPREPLY=($(compgen -W '" words "' -- \"$cur\")); return ;;\n"
	} else
		takes = takes "\t" pattern ") return ;;\n"
}
END {
	fn = prog
	gsub(/-/, "_", fn)
	print "# " prog " -- bash completion, made from its option tables"
	print "_" fn "() {"
	print "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd='" cmd[1] "'"
	print "\tCOMPREPLY=()"
	if (n > 0) {
		print "\tif [ \"$COMP_CWORD\" -gt 1 ]; then"
		print "\t\tcase ${COMP_WORDS[1]} in"
		bar = all
		gsub(/ /, " | ", bar)
		print "\t\t" bar ") cmd=${COMP_WORDS[1]} ;;"
		print "\t\tesac"
		print "\tfi"
		print "\tcase $cmd:$prev in"
		printf "%s", takes
		print "\tesac"
		print "\tcase $cur in"
		print "\t-*)"
		print "\t\tcase $cmd in"
		for (i = 1; i <= n; i++)
			print "\t\t" cmd[i] ") COMPREPLY=($(compgen -W '" substr(opts[cmd[i]], 2) "' -- \"$cur\")) ;;"
		print "\t\tesac"
		print "\t\t;;"
		print "\t*) if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W '" all "' -- \"$cur\")); fi ;;"
		print "\tesac"
	}
	print "}"
	print "complete -o bashdefault -o default -F _" fn " " prog
}
