# completion.awk -- shell completion from the option tables of one program.
#
# usage: moe-X --print-options | awk -v prog=moe-X [-v shell=bash|zsh|fish] -f etc/completion.awk
# Offers subcommands, options, and the words of a choice; where a file or a
# free value stands, the shell's own completion is left to do its work.
# Refuses a shell it does not know.

BEGIN {
	FS = "\t"
	if (shell == "")
		shell = "bash"
	if (shell !~ /^(bash|zsh|fish)$/) {
		print "completion.awk: no completion for the shell " shell > "/dev/stderr"
		failed = 1
		exit 2
	}
}
/^#/ { next }
$3 == "" {
	n++
	cmd[n] = $1
	about[n] = $6
	next
}
{
	i = ++n_opts[$1]
	letter[$1, i] = $2
	name[$1, i] = $3
	arg[$1, i] = $4
	help[$1, i] = $6
}

# The subcommands with something between them.
function all(between,   i, s) {
	for (i = 1; i <= n; i++)
		s = s (i > 1 ? between : "") cmd[i]
	return s
}

function words(choice) {
	gsub(/\|/, " ", choice)
	return choice
}

# Inside single quotes of a shell, where a quote ends them; fish has an escape.
function quoted(s) {
	if (shell == "fish") {
		gsub(/\\/, "\\\\", s)
		gsub(/'/, "\\'", s)
	} else
		gsub(/'/, "'\\''", s)
	return "'" s "'"
}

function bash(   c, i, k, opts, pattern) {
	print "_" fn "() {"
	print "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd='" cmd[1] "'"
	print "\tCOMPREPLY=()"
	if (n > 0) {
		print "\tif [ \"$COMP_CWORD\" -gt 1 ]; then"
		print "\t\tcase ${COMP_WORDS[1]} in"
		print "\t\t" all(" | ") ") cmd=${COMP_WORDS[1]} ;;"
		print "\t\tesac"
		print "\tfi"
		print "\tcase $cmd:$prev in"
		for (k = 1; k <= n; k++) {
			c = cmd[k]
			for (i = 1; i <= n_opts[c]; i++) {
				if (arg[c, i] == "")
					continue
				pattern = c ":--" name[c, i] (letter[c, i] != "" ? " | " c ":-" letter[c, i] : "")
				if (arg[c, i] ~ /\|/)
					print "\t" pattern ") COMPREPLY=($(compgen -W '" words(arg[c, i]) "' -- \"$cur\")); return ;;"
				else
					print "\t" pattern ") return ;;"
			}
		}
		print "\tesac"
		print "\tcase $cur in"
		print "\t-*)"
		print "\t\tcase $cmd in"
		for (k = 1; k <= n; k++) {
			opts = ""
			for (i = 1; i <= n_opts[cmd[k]]; i++)
				opts = opts " --" name[cmd[k], i] (letter[cmd[k], i] != "" ? " -" letter[cmd[k], i] : "")
			print "\t\t" cmd[k] ") COMPREPLY=($(compgen -W '" substr(opts, 2) "' -- \"$cur\")) ;;"
		}
		print "\t\tesac"
		print "\t\t;;"
		print "\t*) if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W '" all(" ") "' -- \"$cur\")); fi ;;"
		print "\tesac"
	}
	print "}"
	print "complete -o bashdefault -o default -F _" fn " " prog
}

# A description stands between brackets, and a colon ends a message.
function plain(s) {
	gsub(/\\|\[|\]|:/, "\\\\&", s)
	return s
}

# Options may all be repeated here: a list may, and the program itself says
# when another one was given twice.
function zsh_spec(c, i,   what, tail) {
	what = "[" plain(help[c, i]) "]"
	if (arg[c, i] ~ /\|/)
		tail = ":" plain(name[c, i]) ":(" words(arg[c, i]) ")"
	else if (arg[c, i] != "")
		tail = ":" plain(arg[c, i]) ":_files"
	print "\t\t\t" quoted("*--" name[c, i] (tail != "" ? "=" : "") what tail) " \\"
	if (letter[c, i] != "")
		print "\t\t\t" quoted("*-" letter[c, i] (tail != "" ? "+" : "") what tail) " \\"
}

function zsh(   i, k) {
	print "_" fn "() {"
	if (n > 0) {
		print "\tlocal cmd=" cmd[1]
		print "\tlocal -a cmds"
		print "\tcmds=("
		for (k = 1; k <= n; k++)
			print "\t\t" quoted(cmd[k] ":" about[k])
		print "\t)"
		print "\tif (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then"
		print "\t\t_describe subcommand cmds"
		print "\t\t_files"
		print "\t\treturn"
		print "\tfi"
		print "\tcase $words[2] in"
		print "\t" all("|") ")"
		print "\t\tcmd=$words[2]"
		print "\t\tshift words"
		print "\t\t(( CURRENT-- ))"
		print "\t\t;;"
		print "\tesac"
		print "\tcase $cmd in"
		for (k = 1; k <= n; k++) {
			print "\t" cmd[k] ")"
			print "\t\t_arguments -s -S \\"
			for (i = 1; i <= n_opts[cmd[k]]; i++)
				zsh_spec(cmd[k], i)
			print "\t\t\t'*:file:_files'"
			print "\t\t;;"
		}
		print "\tesac"
	} else
		print "\t_files"
	print "}"
	print "_" fn " \"$@\""
}

function fish(   c, i, k, s) {
	if (n == 0)
		return
	print "function __" fn "_cmd"
	print "\tset -l words (commandline -opc)"
	print "\tif set -q words[2]; and contains -- $words[2] " all(" ")
	print "\t\techo $words[2]"
	print "\telse"
	print "\t\techo " cmd[1]
	print "\tend"
	print "end"
	for (k = 1; k <= n; k++)
		print "complete -c " prog " -n 'test (count (commandline -opc)) -eq 1' -a " cmd[k] " -d " quoted(about[k])
	for (k = 1; k <= n; k++) {
		c = cmd[k]
		for (i = 1; i <= n_opts[c]; i++) {
			s = "complete -c " prog " -n 'test (__" fn "_cmd) = " c "'"
			if (letter[c, i] != "")
				s = s " -s " letter[c, i]
			s = s " -l " name[c, i]
			if (arg[c, i] ~ /\|/)
				s = s " -x -a " quoted(words(arg[c, i]))
			else if (arg[c, i] != "")
				s = s " -r"
			print s " -d " quoted(help[c, i])
		}
	}
}

END {
	if (failed)
		exit 2
	fn = prog
	gsub(/-/, "_", fn)
	# The first line of a function of zsh must be this one.
	if (shell == "zsh")
		print "#compdef " prog
	print "# " prog " -- " shell " completion, made from its option tables"
	if (shell == "bash")
		bash()
	else if (shell == "zsh")
		zsh()
	else
		fish()
}
