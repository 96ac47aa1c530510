/* bench.c -- moe-bench: how fast it is, against what limit. */
#include "base/opt.h"
#include "bench.h"

int main(int argc, char **argv)
{
    const struct opt_cmd cmds[] = { bench_op_cmd, bench_step_cmd, bench_io_cmd };

    return opt_main("moe-bench", "how fast is it, against what limit", cmds, sizeof cmds / sizeof cmds[0], argc, argv);
}
