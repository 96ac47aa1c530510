# part.awk -- writes the two texts of one language, without what was seen elsewhere.
#
# Files in this order: lines that belong to another language (English), then
# after pass=train the pages to train on, then after pass=held the others.
# Writes to the prefix given as "out" at the end of the run, since awk knows
# assignments among the operands only when it comes to them: so texts are held
# in memory, a few hundred kilobytes.
# once=1: a line is kept the first time only.  A held-out line that was seen
# anywhere before always goes.  Blank lines part documents; one is kept.
function keep(p) { text[p] = text[p] $0 "\n"; here[p] = 1 }
pass == "" { foreign[$0]; next }
/^[ \t\r]*$/ { if (here[pass]) text[pass] = text[pass] "\n"; here[pass] = 0; next }
$0 in foreign { next }
pass == "train" { if (!once || !($0 in seen)) keep("train"); seen[$0]; next }
!($0 in seen) { keep("held"); seen[$0] }
END {
	printf "%s", text["train"] > (out "/train." lang ".txt")
	printf "%s", text["held"] > (out "/held." lang ".txt")
}
